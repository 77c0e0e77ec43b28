"""Replication: every set, every replica, both ends of every link. The screen that opens first."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from trioha.words import size_in_words
from trioha_console.cells import fit
from trioha_console.frame import Frame
from trioha_console.views.link_facts import master_facts, set_facts, slave_facts
from trioha_console.views.replication_table import (
    SHAPE,
    STEP_MS,
    ReplicationLine,
    lines_of,
    why_empty,
)
from trioha_console.views.view import View
from trioha_console.widgets.chart import TrendChart
from trioha_console.widgets.facts import FactList
from trioha_console.widgets.grid import Grid


class ReplicationView(View):
    """Sets and replicas above, the selected link from both ends below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("F", "failover", "Fail over"),
    ]
    NAME: ClassVar[str] = "replication"
    SCOPED_CSS = False
    """Textual reads it of each class that has rules."""
    DEFAULT_CSS = """
    ReplicationView {
        & #below { height: 8; min-height: 8; border-top: solid $panel; background: $surface; }
        & #why { height: auto; max-height: 3; padding: 0 1; display: none; }
        & #link { height: 1fr; }
        & #link > TrendChart { display: none; }
    }
    .-tall ReplicationView #below { min-height: 11; }
    .-wide ReplicationView { & #link > TrendChart { display: block; width: 2fr; } }
    .-wide.-tall ReplicationView #below { min-height: 14; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._frame: Frame | None = None

    def compose(self) -> ComposeResult:
        yield Grid(SHAPE, empty="Asking the name servers…")
        with Vertical(id="below"):
            yield Static(id="why", markup=False)
            with Horizontal(id="link"):
                yield FactList(id="upper-end")
                yield FactList(id="lower-end")
                yield TrendChart()

    def show(self, frame: Frame) -> None:
        self._frame = frame
        self.grid.empty = why_empty(frame)
        self.grid.show_rows(lines_of(frame))
        self._show_link(self.grid.row)

    def on_resize(self) -> None:
        """The panel's height, and whether a reason fits its row, follow the terminal's size."""
        self._show_link(self.grid.row)

    @on(Grid.Moved)
    def _moved(self, event: Grid.Moved) -> None:
        event.stop()
        self._show_link(event.row)

    async def on_grid_chosen(self, event: Grid.Chosen) -> None:
        event.stop()
        replica = event.row.replica or event.row.set.master
        if replica is not None:
            await self.app.run_action(f"node({replica.address!r})")

    async def action_failover(self) -> None:
        """The wizard for the set under the cursor."""
        line = self.grid.row
        if line is not None:
            await self.app.run_action(f"failover({line.set.name!r})")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A recording cannot be changed."""
        if action == "failover":
            return self.console.source.live
        return super().check_action(action, parameters)

    def _show_link(self, line: ReplicationLine | None) -> None:
        frame = self._frame
        upper, lower = (
            self.query_one("#upper-end", FactList),
            self.query_one("#lower-end", FactList),
        )
        chart = self.query_one(TrendChart)
        if line is None or frame is None:
            upper.show((), ())
            lower.show((), ())
            return
        replica = line.replica
        self._explain("" if replica is not None else line.condition.why)
        if replica is None or replica.is_master:
            left, right = set_facts(line.set, frame.snapshot.namesrvs, replica)
        else:
            left, right = master_facts(replica), slave_facts(replica)
        upper.show(*left)
        lower.show(*right)
        self._fit_panel(1 + max(len(left[1]), len(right[1])))
        shown = replica or line.set.master
        if shown is None:
            chart.show("", (), str)
            return
        history = frame.history.of(shown.address)
        if shown.is_master:
            values = history.put_rate.last(chart.points, STEP_MS, frame.wall_ms)
            chart.show(f"puts a second to {shown.address}", values, _per_second)
        else:
            values = history.gap.last(chart.points, STEP_MS, frame.wall_ms)
            chart.show(f"gap of {shown.address}", values, size_in_words, least_top=1024)

    def _fit_panel(self, lines: int) -> None:
        """Give the panel the lines that it needs and the rows of the table leave."""
        why = self.query_one("#why", Static)
        wanted = 1 + lines + (1 if why.display else 0)
        room = self.size.height - len(self.grid.rows) - 1
        self.query_one("#below").styles.height = max(0, min(wanted, room))

    def _explain(self, reason: str) -> None:
        """Say the whole reason of a set for which its row has no room."""
        why = self.query_one("#why", Static)
        why.display = cell_len(reason) > self._room_of_reason()
        if why.display:
            why.update(reason)

    def _room_of_reason(self) -> int:
        """Cells that a set's row has for the reason."""
        widths = {column.title: width for column, width in fit(SHAPE.columns, self.size.width)}
        return self.size.width - widths["REPLICA"] - widths["STATE"] - 5


def _per_second(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}/s"
