"""One node: its tasks as Trio has them, its journal as it is written, its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget

from trioha.errors import CommandError, TriohaError
from trioha.journal.file import Event
from trioha.watch.condition import condition_of
from trioha.watch.node_answers import journal_request, read_journal
from trioha.watch.node_inside import read_settings, read_tasks
from trioha.watch.replica import NOT_TRIOHA_CODE
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.words import size_in_words
from trioha_console.cells import Cell, cell
from trioha_console.frame import Frame
from trioha_console.roles import condition_cell
from trioha_console.screens.detail import DetailScreen
from trioha_console.screens.node_tables import (
    JOURNAL,
    SETTINGS,
    TASKS,
    node_facts,
    settings_of,
    task_lines,
    terms_of,
    waits_facts,
)
from trioha_console.source import Source
from trioha_console.views.raft_facts import members_of
from trioha_console.widgets.chart import TrendChart
from trioha_console.widgets.facts import FactList
from trioha_console.widgets.grid import Grid

EVENTS_MAX = 2_000
"""Limit of journal events shown; the newest ones are kept."""
_LAST = 200
_WAIT_S = 10.0
_PATIENCE_S = _WAIT_S + 3.0
_PAUSE_S = 2.0
_SAMPLE_S = 10.0


class NodeScreen(DetailScreen):
    """A broker, or any node of ours."""

    TABS: ClassVar[Sequence[tuple[str, str]]] = (
        ("overview", "Overview"),
        ("journal", "Journal"),
    )
    INTERNALS: ClassVar[Sequence[tuple[str, str]]] = (
        ("tasks", "Tasks"),
        ("settings", "Configuration"),
    )
    """Tabs that `I` shows: they tell how a node works, not how it is."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("I", "internals", "Internals"),
        Binding("r", "again", "Refresh"),
    ]
    DEFAULT_CSS = """
    NodeScreen {
        & #overview { height: 1fr; }
        & #overview > TrendChart { width: 1fr; }
    }
    NodeScreen.-narrow #overview > TrendChart { display: none; }
    """

    @dataclass(eq=False)
    class Told(Message):
        """Answer to the question of a tab, or the error."""

        tab_name: str
        rows: list[Any] | None
        error: str = ""

    def __init__(self, source: Source, address: str) -> None:
        super().__init__()
        self._source = source
        self.address = address
        self._events: list[Event] = []
        self._has_internals = False
        self._waits: Event | None = None
        """The newest sample of how long puts waited for a slave."""

    @property
    def tabs(self) -> Sequence[tuple[str, str]]:
        """A recording has no journal, tasks and settings: there is no node to ask."""
        if not self._source.live:
            return self.TABS[:1]
        return (*self.TABS, *self.INTERNALS) if self._has_internals else self.TABS

    def action_internals(self) -> None:
        """Show the tabs of the node's inside, or hide them."""
        self._has_internals = not self._has_internals
        self.go_to_tab(self.INTERNALS[0][0] if self._has_internals else self.TABS[0][0])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("again", "internals") and not self._source.live:
            return False
        return super().check_action(action, parameters)

    def panes(self) -> Sequence[Widget]:
        overview = Horizontal(
            FactList(id="node-facts"), FactList(id="node-terms"), TrendChart(), id="overview"
        )
        if not self._source.live:
            return (overview,)
        return (
            overview,
            Grid(JOURNAL, empty="No events yet.", id="journal"),
            Grid(TASKS, empty="Asking for the tasks…", id="tasks"),
            Grid(SETTINGS, empty="Asking for the settings…", id="settings"),
        )

    def show(self, frame: Frame) -> None:
        replica = frame.snapshot.replica(self.address)
        if replica is None:
            self.set_title(cell(f"{self.address}: not among the nodes any more", "warn"))
            return
        condition = condition_of(replica)
        title: Cell = ((f"{replica.name} {replica.own_id}  ", "title"),)
        title += ((f"{replica.address}  ", "strong"), *condition_cell(condition))
        if condition.why:
            title += ((f"  {condition.why}", "dim"),)
        self.set_title(title)
        self.query_one("#node-facts", FactList).show(
            (("the node", "title"),),
            [*node_facts(replica), *waits_facts(self._waits, frame.wall_ms)],
        )
        said, lines = "terms of mastership", terms_of(replica)
        if replica.raft is not None:
            said, lines = "members of the group", members_of(replica.raft)
        self.query_one("#node-terms", FactList).show(((said, "title"),), lines)
        chart = self.query_one(TrendChart)
        history = frame.history.of(self.address)
        series = history.put_rate if replica.is_master else history.gap
        chart.show(
            "puts a second" if replica.is_master else "gap to its master",
            series.last(chart.points, 1000, frame.wall_ms),
            (lambda value: f"{value or 0:.0f}/s") if replica.is_master else size_in_words,
        )

    def tab_opened(self, name: str) -> None:
        self.say("")
        if name == "overview" and self._source.live:
            self._ask_for_waits()
        elif name == "journal":
            self._follow_journal()
        elif name == "tasks":
            self._ask(name, RequestCode.TRIOHA_NODE_TASKS)
        elif name == "settings":
            self._ask(name, RequestCode.TRIOHA_NODE_CONFIG)

    def action_again(self) -> None:
        self.tab_opened(self.tab)

    @work(exclusive=True, group="node", description="asks the node")
    async def _ask(self, tab: str, code: RequestCode) -> None:
        try:
            response = await self._source.ask(self.address, RemotingCommand(code))
            rows: list[Any]
            if tab == "tasks":
                rows = task_lines(read_tasks(self.address, response))
            else:
                rows = settings_of(read_settings(self.address, response))
        except TriohaError as error:
            self.post_message(self.Told(tab, None, _in_words(error)))
            return
        self.post_message(self.Told(tab, rows))

    @work(exclusive=True, group="node", description="asks for the newest sample of waits")
    async def _ask_for_waits(self) -> None:
        """A broker samples each ten seconds; one that is not SYNC_MASTER has no sample."""
        command = journal_request(last=1, names=("sync_waits",))
        while True:
            try:
                response = await self._source.ask(self.address, command)
                piece = read_journal(self.address, response)
            except TriohaError:
                return  # the facts tell that it does not answer
            if piece.events:
                self._waits = piece.events[-1]
            await asyncio.sleep(_SAMPLE_S)

    @work(exclusive=True, group="journal", description="follows the node's journal")
    async def _follow_journal(self) -> None:
        """Long polls from where the last one stopped, for as long as the screen is open.

        A node that has gone may come back: it is asked on.
        """
        next_sequence: int | None = None
        while True:
            command = journal_request(
                from_sequence=next_sequence,
                last=_LAST,
                wait_s=0 if next_sequence is None else _WAIT_S,
            )
            try:
                response = await self._source.ask(self.address, command, _PATIENCE_S)
                piece = read_journal(self.address, response)
            except TriohaError as error:
                self.post_message(self.Told("journal", None, _in_words(error)))
                if isinstance(error, CommandError):
                    return
                await asyncio.sleep(_PAUSE_S)
                continue
            next_sequence = piece.next_sequence
            if piece.events:
                self.post_message(self.Told("journal", list(piece.events)))

    @on(Told)
    def _told(self, event: Told) -> None:
        event.stop()
        grid = self.query_one(f"#{event.tab_name}", Grid)
        if event.tab_name == self.tab:
            # Another tab's trouble is told when that one is looked at.
            self.say("" if event.rows is not None else event.error)
        if event.rows is None:
            return
        if event.tab_name != "journal":
            grid.show_rows(event.rows)
            return
        # The newest at the top: there the eye is, and the cursor stays with its event.
        known = {one.sequence for one in self._events[:_LAST]}
        fresh = [one for one in event.rows if one.sequence not in known]
        at_top = grid.cursor == 0
        self._events = [*reversed(fresh), *self._events][:EVENTS_MAX]
        grid.show_rows(self._events)
        if at_top:
            grid.cursor = 0


def _in_words(error: TriohaError) -> str:
    if isinstance(error, CommandError) and error.code == NOT_TRIOHA_CODE:
        return "This node is not trioha, or an older one: it does not tell that."
    return str(error)
