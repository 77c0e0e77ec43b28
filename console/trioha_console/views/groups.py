"""Consumer groups: how far behind, whether that grows, and whether messages are lost by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from trioha.watch.alerts import AlertLevel
from trioha.watch.collector import Interest
from trioha.watch.history import History, TimeSeries
from trioha.watch.questions import GROUPS
from trioha.watch.queues import Group
from trioha.watch.retention_rules import retention_in_words
from trioha.watch.rule import Rule
from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire.names import dlq_topic
from trioha.words import age_in_words
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import NOTHING, Cell, GridColumn, cell
from trioha_console.frame import Frame
from trioha_console.marks import sparkline
from trioha_console.retention import kept_cell, retention_level
from trioha_console.roles import ALERT_MARKS, ALERT_ROLES, content_of
from trioha_console.views.view import KeptRows, SharedByRows, SystemNames, SystemView
from trioha_console.widgets.grid import Grid

_STEP_MS = 5_000


class GroupLine(NamedTuple):
    """A row. Of five thousand, those that are seen are worked out."""

    group: Group
    rules: Mapping[str, Rule]
    moment: SharedByRows

    @property
    def wall_ms(self) -> int:
        return self.moment.wall_ms

    @property
    def history(self) -> History:
        return self.moment.history

    @property
    def lags(self) -> TimeSeries:
        return self.history.lag(self.group.name)

    @property
    def growth(self) -> float | None:
        """Messages per second by which the lag grows; it shrinks when negative."""
        return self.history.lag_growth(self.group.name)

    @property
    def eta_s(self) -> float | None:
        """Seconds until it has caught up; None if not known, or if the lag does not shrink."""
        return self.history.group_eta_s(self.group.name)

    @property
    def level(self) -> AlertLevel:
        """Level of the alert that it loses messages."""
        return retention_level(self.group, self.rules)


def _trend(line: GroupLine, width: int) -> Cell:
    return cell(sparkline(line.lags.last(width, _STEP_MS, line.wall_ms)), "accent")


def _growth(line: GroupLine, _: int) -> Cell:
    growth = line.growth
    if growth is None:
        return NOTHING
    if abs(growth) < 0.05:
        return cell("steady", "dim")
    return cell(f"{growth:+,.1f}", "warn" if growth > 0 else "good")


def _eta(line: GroupLine, _: int) -> Cell:
    return eta_cell(line.group, line.growth, line.eta_s)


def eta_cell(group: Group, growth: float | None, eta_s: float | None) -> Cell:
    """Return the time until a group has caught up; "no gain" if its lag does not shrink."""
    if group.lag == 0:
        return cell("caught up", "dim")
    if group.lag is None or growth is None:
        return NOTHING
    return cell("no gain", "warn") if eta_s is None else cell(age_in_words(eta_s))


SHAPE: Shape[GroupLine] = Shape(
    name="groups",
    identity=lambda line: line.group.name,
    search=lambda line: f"{line.group.name} {' '.join(line.group.topics)}",
    columns=(
        columns.text("GROUP", lambda line: line.group.name, 20, width_max=60, role="strong"),
        columns.count("LAG", lambda line: line.group.lag, 9),
        columns.age("BEHIND", lambda line: line.group.lag_s, 7),
        GridColumn(
            title="LAG/S",
            cell=_growth,
            key=lambda line: line.growth,
            width=8,
            right=True,
        ),
        GridColumn(title="ETA", cell=_eta, key=lambda line: line.eta_s, width=9, right=True),
        GridColumn(
            title="KEPT FOR",
            cell=lambda line, _: kept_cell(line.group, line.level),
            # Descending has those first that lose messages first.
            key=lambda line: line.group.retention_used,
            width=10,
            right=True,
        ),
        GridColumn(title="LAG TREND", cell=_trend, width=10, width_max=40, importance=1),
        columns.count("QUEUES", lambda line: len(line.group.queues), 6, importance=2),
        columns.text(
            "TOPICS", lambda line: ", ".join(line.group.topics), 14, width_max=60, importance=1
        ),
    ),
)


class GroupsView(SystemView):
    """Enter opens a group: its queues with their owners, and its members."""

    NAME: ClassVar[str] = "groups"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "dead_letters", "DLQ"),
        Binding("n", "begin_new", "New"),
        Binding("A", "begin('alter-group', 'retry')", "Alter"),
        Binding("R", "begin('reset-offsets')", "Reset"),
        Binding("D", "change('delete-group')", "Delete"),
    ]

    DEFAULT_CSS = """
    GroupsView > #retention {
        height: auto; max-height: 8; padding: 0 1; border-top: solid $panel; display: none;
        &.-told { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._moment = SharedByRows()
        self._rows: KeptRows[GroupLine] = KeptRows()

    @property
    def subject(self) -> str:
        return "" if self.grid.row is None else self.grid.row.group.name

    def action_begin_new(self) -> None:
        self.console.action_type("create-group ")

    async def action_dead_letters(self) -> None:
        if self.subject:
            await self.console.ask_messages(f"{dlq_topic(self.subject)} last 50")

    @property
    def interest(self) -> Interest:
        return Interest(topics=True)

    def compose(self) -> ComposeResult:
        yield Grid(SHAPE)
        yield Static(id="retention", markup=False)

    def show(self, frame: Frame) -> None:
        self.grid.empty = self.why_empty(frame, "groups", GROUPS)
        frame.history.add_groups(frame.snapshot)
        self._moment.frame = frame
        self.grid.show_rows(self._lines(frame.snapshot))
        self._explain(self.grid.row)

    def prepare(self, snapshot: ClusterSnapshot) -> None:
        self._lines(snapshot)

    def _lines(self, snapshot: ClusterSnapshot) -> list[GroupLine]:
        system, rules, groups = self.system, self.console.alerts.rules, snapshot.groups
        names = SystemNames(snapshot)
        return self._rows.of(
            (groups, rules, system),
            lambda: [
                GroupLine(group, rules, self._moment)
                for name, group in groups.items()
                if system or not names.has_group(name)
            ],
        )

    def on_grid_moved(self, event: Grid.Moved) -> None:
        event.stop()
        self._explain(event.row)

    def _explain(self, line: GroupLine | None) -> None:
        """Say below why the row under the cursor is marked, and the cure."""
        is_marked = line is not None and line.level is not AlertLevel.OK
        below = self.query_one("#retention", Static)
        below.set_class(is_marked, "-told")
        if line is not None and is_marked:
            mark = (f"{ALERT_MARKS[line.level]} ", ALERT_ROLES[line.level])
            below.update(content_of((mark, (retention_in_words(line.group), ""))))

    async def on_grid_chosen(self, event: Grid.Chosen) -> None:
        event.stop()
        await self.app.run_action(f"group({event.row.group.name!r})")
