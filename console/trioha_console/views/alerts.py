"""Alerts: what the rules say is wrong, the worst first. Acknowledging says that somebody knows."""

from __future__ import annotations

from typing import ClassVar

import attrs
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from trioha.watch.alerts import Alert, Alerts
from trioha.watch.collector import Interest
from trioha.watch.rule import Rule
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import Cell, GridColumn, cell
from trioha_console.frame import Frame
from trioha_console.roles import ALERT_MARKS, ALERT_ROLES, lines_of
from trioha_console.views.view import View
from trioha_console.widgets.grid import Grid


@attrs.frozen
class AlertLine:
    alert: Alert
    wall_ms: int

    @property
    def age_s(self) -> float:
        return max(0.0, (self.wall_ms - self.alert.since_wall_ms) / 1000)


def _level(line: AlertLine, _: int) -> Cell:
    alert = line.alert
    return cell(f"{ALERT_MARKS[alert.level]} {alert.level.name}", ALERT_ROLES[alert.level])


def _text(line: AlertLine, _: int) -> Cell:
    return cell(line.alert.text, "dim" if line.alert.acknowledged else "")


SHAPE: Shape[AlertLine] = Shape(
    name="alerts",
    identity=lambda line: line.alert.key,
    search=lambda line: f"{line.alert.rule} {line.alert.subject} {line.alert.text}",
    columns=(
        GridColumn(title="LEVEL", cell=_level, key=lambda line: int(line.alert.level), width=6),
        columns.age("FOR", lambda line: line.age_s, 8),
        columns.text(
            "SEEN", lambda line: "seen" if line.alert.acknowledged else "new", 4, role="accent"
        ),
        columns.text("RULE", lambda line: line.alert.rule, 16, width_max=20),
        GridColumn(
            title="WHAT", cell=_text, key=lambda line: line.alert.text, width=34, width_max=200
        ),
    ),
)


class AlertsView(View):
    """`a` acknowledges one, `A` all of them."""

    NAME: ClassVar[str] = "alerts"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "acknowledge", "Acknowledge"),
        Binding("A", "acknowledge_all", "Acknowledge all"),
    ]
    DEFAULT_CSS = """
    AlertsView > #rule {
        height: auto; min-height: 6; max-height: 10; padding: 0 1; border-top: solid $panel;
        color: $foreground 70%;
    }
    """

    def __init__(self, alerts: Alerts) -> None:
        super().__init__()
        self.alerts = alerts

    @property
    def interest(self) -> Interest:
        return Interest(topics=True)

    def compose(self) -> ComposeResult:
        yield Grid(SHAPE, empty="No active alerts.")
        yield Static(id="rule", markup=False)

    def show(self, frame: Frame) -> None:
        self.grid.show_rows([AlertLine(alert, frame.wall_ms) for alert in self.alerts.active])
        self._explain(self.grid.row)

    def on_grid_moved(self, event: Grid.Moved) -> None:
        event.stop()
        self._explain(event.row)

    def _explain(self, line: AlertLine | None) -> None:
        rule = None if line is None else self.alerts.rules.get(line.alert.rule)
        words = "Thresholds are in the file that `trioha context` shows."
        if line is not None and rule is not None:
            words = f"{line.alert.text}\n{rule.name}: {rule.doc}\n{_thresholds(line.alert, rule)}"
        self.query_one("#rule", Static).update(lines_of(words))

    def action_acknowledge(self) -> None:
        line = self.grid.row
        if line is not None:
            self.alerts.acknowledge(line.alert.key)
            self._redraw()

    def action_acknowledge_all(self) -> None:
        self.alerts.acknowledge_all()
        self._redraw()

    def _redraw(self) -> None:
        """The count beside the screen's name changes as well."""
        self.app.call_later(self.app.run_action, "redraw")


def _thresholds(alert: Alert, rule: Rule) -> str:
    """Return the value, its thresholds, and how long it must exceed them."""
    told = [
        f"{word} from {threshold:g}"
        for word, threshold in (("warning", rule.warn), ("critical", rule.crit))
        if threshold is not None
    ]
    value = "-" if alert.value is None else f"{alert.value:.3g}"
    held = f" for {rule.for_s:g} s" if rule.for_s else ""
    return f"its value is {value}: {', '.join(told)}{held}"
