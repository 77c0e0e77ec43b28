"""Brokers: what every node does, and how the name servers are."""

from __future__ import annotations

from typing import ClassVar

import attrs
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from trioha.watch.condition import Condition, condition_of
from trioha.watch.history import ReplicaHistory, TimeSeries
from trioha.watch.replica import Replica
from trioha.watch.snapshot import Namesrv
from trioha.words import count_in_words
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import NOTHING, Cell, GridColumn, cell
from trioha_console.frame import Frame
from trioha_console.marks import sparkline
from trioha_console.roles import condition_cell, content_of
from trioha_console.views.replication_table import why_empty
from trioha_console.views.view import View
from trioha_console.widgets.grid import Grid

_STEP_MS = 1000


@attrs.frozen
class BrokerLine:
    replica: Replica
    condition: Condition
    history: ReplicaHistory
    wall_ms: int

    @property
    def log_bytes(self) -> int | None:
        least, most = self.replica.min_phy_offset, self.replica.max_phy_offset
        return None if least is None or most is None else most - least

    @property
    def behind_bytes(self) -> int | None:
        """Stored, and not yet in consume queues."""
        end, dispatched = self.replica.max_phy_offset, self.replica.dispatched_offset
        return None if end is None or dispatched is None else max(0, end - dispatched)


def lines_of(frame: Frame) -> list[BrokerLine]:
    return [
        BrokerLine(one, condition_of(one), frame.history.of(one.address), frame.wall_ms)
        for one in frame.snapshot.replicas
    ]


def _rate_of(series: TimeSeries, line: BrokerLine) -> float | None:
    """The newest rate, unless the node has gone silent since."""
    if line.replica.answer.error or not series.points:
        return None
    return series.points[-1][1]


def _trend(line: BrokerLine, width: int) -> Cell:
    return cell(sparkline(line.history.put_rate.last(width, _STEP_MS, line.wall_ms)), "accent")


def _role(line: BrokerLine, _: int) -> Cell:
    replica = line.replica
    if replica.standing is None and replica.answer.error:
        return NOTHING  # another may have its role by now
    role = replica.role or replica.standing
    return cell(role, "accent" if replica.is_master else "") if role else NOTHING


def _told(line: BrokerLine, _: int) -> Cell:
    answer = line.replica.answer
    if answer.age_s is None:
        return NOTHING
    return cell(f"{answer.age_s:.0f} s", "warn" if answer.is_stale else "dim")


SHAPE: Shape[BrokerLine] = Shape(
    name="brokers",
    identity=lambda line: line.replica.address,
    search=lambda line: (
        f"{line.replica.name} {line.replica.address} {line.condition.word}"
        f" {line.replica.role or ''} {line.replica.version or ''}"
    ),
    columns=(
        columns.text("BROKER", lambda line: line.replica.name, 12, width_max=24, role="strong"),
        columns.count("ID", lambda line: line.replica.own_id, 2),
        GridColumn(
            title="STATE",
            cell=lambda line, _: condition_cell(line.condition),
            key=lambda line: (int(line.condition.level), line.condition.word),
            width=12,
        ),
        GridColumn(title="ROLE", cell=_role, width=12, importance=3),
        columns.text("ADDRESS", lambda line: line.replica.address, 21, importance=4),
        columns.text("VERSION", lambda line: line.replica.version, 7, width_max=16, importance=7),
        columns.age("UP", lambda line: line.replica.uptime_s, 7, importance=5),
        GridColumn(
            title="ANSWER",
            cell=_told,
            key=lambda line: line.replica.answer.age_s,
            width=6,
            right=True,
            importance=6,
        ),
        columns.rate("PUT/S", lambda line: _rate_of(line.history.put_rate, line), 8),
        columns.rate("GET/S", lambda line: _rate_of(line.history.get_rate, line), 8),
        GridColumn(title="PUT TREND", cell=_trend, width=10, width_max=30, importance=2),
        columns.count("WAITING", lambda line: line.replica.puts_waiting, 7, importance=5),
        columns.count("CLIENTS", lambda line: line.replica.client_connections, 7, importance=2),
        columns.size("LOG", lambda line: line.log_bytes, 9, importance=3),
        columns.size("DISPATCH", lambda line: line.behind_bytes, 9, importance=6),
        columns.share("DISK", lambda line: line.replica.disk_ratio, warn=0.75, bad=0.85, width=12),
    ),
)


class BrokersView(View):
    """A line of name servers, a table of brokers."""

    NAME: ClassVar[str] = "brokers"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("C", "begin('set')", "Set"),
        Binding("D", "change('drain')", "Drain"),
        Binding("U", "change('undrain')", "Undrain", show=False),
    ]
    DEFAULT_CSS = """
    BrokersView > #namesrvs { height: auto; max-height: 4; padding: 0 1; background: $surface; }
    """

    def compose(self) -> ComposeResult:
        yield Static(id="namesrvs")
        yield Grid(SHAPE, empty="Asking the name servers…")

    async def on_grid_chosen(self, event: Grid.Chosen) -> None:
        event.stop()
        await self.app.run_action(f"node({event.row.replica.address!r})")

    @property
    def subject(self) -> str:
        return "" if self.grid.row is None else self.grid.row.replica.name

    def action_change(self, command: str) -> None:
        """Drain the node under the cursor, not the master of its set."""
        replica = None if self.grid.row is None else self.grid.row.replica
        if replica is None or command != "drain":
            super().action_change(command)
        else:
            self.console.action_operate(command, f"{replica.name} {replica.number}")

    def show(self, frame: Frame) -> None:
        self.grid.empty = why_empty(frame)
        above = self.query_one("#namesrvs", Static)
        namesrvs = _namesrvs(frame.snapshot.namesrvs)
        # Its figures change each second, and a layout costs as much as all the rest.
        width, height = above.content_size
        fits = width and namesrvs.get_height(above.styles.get_rules(), width) == height
        above.update(namesrvs, layout=not fits)
        self.grid.show_rows(lines_of(frame))


def _namesrvs(namesrvs: tuple[Namesrv, ...]) -> Content:
    parts = [Content.styled("name servers  ", "$foreground 55%")]
    for one in namesrvs:
        if one.answer.error:
            words: Cell = ((f"✖ {one.address}: {one.answer.error}   ", "bad"),)
        elif one.answer.wall_ms is None:
            words = ((f"○ {one.address}   ", "unknown"),)
        else:
            took = f"{count_in_words(len(one.brokers), 'set')}, {one.answer.took_ms} ms"
            words = (("● ", "good"), (one.address, "strong"), (f" {took}   ", "dim"))
        parts.append(content_of(words))
    return Content("").join(parts)
