"""One node: its tasks as Trio has them, its journal as it is written, its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs
from textual import on, work
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from trioha.errors import CommandError, TriohaError
from trioha.journal_file import Event
from trioha.times import moment_in_words
from trioha.watch.condition import condition_of
from trioha.watch.node_answers import journal_request, read_journal, read_map
from trioha.watch.replica import NOT_TRIOHA_CODE, Replica
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.words import age_in_words, size_in_words
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import Cell, Column, cell
from trioha_console.frame import Frame
from trioha_console.roles import condition_cell, content_of
from trioha_console.screens.detail import DetailScreen
from trioha_console.source import Source
from trioha_console.widgets.chart import Chart
from trioha_console.widgets.facts import FactList
from trioha_console.widgets.grid import Grid

EVENTS_MAX = 2_000
"""Of the journal, the newest."""
_LAST = 200
_WAIT_S = 10.0
_PATIENCE_S = _WAIT_S + 3.0
_PAUSE_S = 2.0
_BAD_WORDS = ("lost", "refused", "fenced", "failed", "disconnected", "expired", "error", "full")


@attrs.frozen
class TaskLine:
    """A task at its depth in the tree."""

    number: int
    branches: str
    name: str
    waits_in: str
    note: str = ""


def task_lines(tree: Mapping[str, Any]) -> list[TaskLine]:
    """The tree from the root down; oddities of a newer node are left out."""
    lines: list[TaskLine] = []

    def walk(task: Mapping[str, Any], lead: str, branch: str) -> None:
        lines.append(
            TaskLine(len(lines), branch, str(task.get("name")), str(task.get("waits_in") or ""))
        )
        children = [
            (child, nursery)
            for nursery in task.get("nurseries") or ()
            for child in nursery.get("tasks") or ()
        ]
        for index, (child, _) in enumerate(children):
            last = index == len(children) - 1
            walk(child, lead + ("   " if last else "│  "), lead + ("└─ " if last else "├─ "))
        left_out = sum(nursery.get("left_out") or 0 for nursery in task.get("nurseries") or ())
        if left_out:
            lines.append(TaskLine(len(lines), f"{lead}└─ ", f"… and {left_out} more", ""))

    root = tree.get("root")
    if isinstance(root, dict):
        walk(root, "", "")
    return lines


def _task(line: TaskLine, _: int) -> Cell:
    return ((line.branches, "dim"), (line.name, ""))


TASKS: Shape[TaskLine] = Shape(
    identity=lambda line: (line.branches, line.name, line.number),
    search=lambda line: f"{line.name} {line.waits_in}",
    columns=(
        Column(title="TASK", cell=_task, key=lambda line: line.number, width=40, width_max=70),
        columns.text("WAITS IN", lambda line: line.waits_in, 30, width_max=80, role="dim"),
    ),
)


def event_words(event: Event) -> str:
    return " ".join(f"{key}={value}" for key, value in event.fields.items())


def _event_role(event: Event) -> str:
    return "warn" if any(word in event.name for word in _BAD_WORDS) else "accent"


JOURNAL: Shape[Event] = Shape(
    identity=lambda event: event.sequence,
    search=lambda event: f"{event.name} {event_words(event)}",
    columns=(
        columns.text("AT (UTC)", lambda event: moment_in_words(event.wall_ms)[11:], 12),
        Column(
            title="EVENT",
            cell=lambda event, _: cell(event.name, _event_role(event)),
            key=lambda event: event.name,
            width=22,
            width_max=30,
        ),
        columns.text("FIELDS", event_words, 40, width_max=400),
        columns.count("NO", lambda event: event.sequence, 8, importance=1),
    ),
)


@attrs.frozen
class Setting:
    key: str
    value: str
    origin: str
    doc: str


def settings_of(told: Mapping[str, Any]) -> list[Setting]:
    """Every setting; those that somebody set come first."""
    found = []
    settings = told.get("settings")
    for row in settings if isinstance(settings, list) else ():
        if isinstance(row, dict):
            found.append(
                Setting(
                    str(row.get("key")),
                    str(row.get("value")),
                    str(row.get("origin") or "default"),
                    str(row.get("doc") or ""),
                )
            )
    found.sort(key=lambda one: (one.origin == "default", one.key))
    return found


SETTINGS: Shape[Setting] = Shape(
    identity=lambda one: one.key,
    search=lambda one: f"{one.key} {one.value} {one.origin}",
    columns=(
        columns.text("KEY", lambda one: one.key, 28, width_max=44, role="strong"),
        columns.text("VALUE", lambda one: one.value, 20, width_max=60),
        Column(
            title="FROM",
            cell=lambda one, _: cell(one.origin, "dim" if one.origin == "default" else "accent"),
            key=lambda one: one.origin,
            width=16,
            width_max=50,
        ),
    ),
)


class NodeScreen(DetailScreen):
    """A broker, or any node of ours."""

    TABS: ClassVar[Sequence[tuple[str, str]]] = (
        ("overview", "Overview"),
        ("journal", "Journal"),
        ("tasks", "Tasks"),
        ("settings", "Configuration"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "again", "Ask again"),
    ]
    DEFAULT_CSS = """
    NodeScreen {
        & #overview { height: 1fr; }
        & #overview > Chart { width: 2fr; }
    }
    NodeScreen.-narrow #overview > Chart { display: none; }
    """

    class Told(Message):
        """What a tab asked for has come, or why not."""

        def __init__(self, tab: str, rows: list[Any] | None, error: str = "") -> None:
            super().__init__()
            self.tab_name = tab
            self.rows = rows
            self.error = error

    def __init__(self, source: Source, address: str) -> None:
        super().__init__()
        self._source = source
        self.address = address
        self._events: list[Event] = []

    def panes(self) -> Sequence[Widget]:
        return (
            Horizontal(
                FactList(id="node-facts"), FactList(id="node-terms"), Chart(), id="overview"
            ),
            Grid(JOURNAL, empty="No events yet.", id="journal"),
            Grid(TASKS, empty="Asking for the tasks…", id="tasks"),
            Grid(SETTINGS, empty="Asking for the settings…", id="settings"),
        )

    def show(self, frame: Frame) -> None:
        replica = frame.snapshot.replica(self.address)
        if replica is None:
            self.set_title(Content(f"{self.address}: not among the nodes any more"))
            return
        condition = condition_of(replica)
        title: Cell = ((f"{replica.name} {replica.registered_id}  ", "title"),)
        title += ((f"{replica.address}  ", "strong"), *condition_cell(condition))
        if condition.why:
            title += ((f"  {condition.why}", "dim"),)
        self.set_title(content_of(title))
        self.query_one("#node-facts", FactList).show((("the node", "title"),), _facts(replica))
        terms = _terms(frame, replica)
        self.query_one("#node-terms", FactList).show((("terms of mastership", "title"),), terms)
        chart = self.query_one(Chart)
        history = frame.history.of(self.address)
        series = history.put_rate if replica.is_master else history.gap
        chart.show(
            "puts a second" if replica.is_master else "gap to its master",
            series.last(chart.points, 1000, frame.wall_ms),
            (lambda value: f"{value or 0:.0f}/s") if replica.is_master else size_in_words,
        )

    def tab_opened(self, name: str) -> None:
        if name == "journal":
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
            told = read_map(self.address, response)
        except TriohaError as error:
            self.post_message(self.Told(tab, None, _in_words(error)))
            return
        rows = task_lines(told) if tab == "tasks" else settings_of(told)
        self.post_message(self.Told(tab, list(rows)))

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
        if event.rows is None:
            self.say(event.error)
            return
        self.say("")
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


def _facts(replica: Replica) -> list[tuple[str, Cell]]:
    log = None
    if replica.max_phy_offset is not None and replica.min_phy_offset is not None:
        log = size_in_words(replica.max_phy_offset - replica.min_phy_offset)
    told = replica.answer
    age = "never" if told.age_s is None else f"{age_in_words(told.age_s)} ago"
    facts: list[tuple[str, Cell]] = [
        ("told", cell(age, "warn" if told.is_stale else "")),
        *([("error", cell(told.error, "bad"))] if told.error else []),
        ("version", cell(replica.version)),
        ("up for", cell(age_in_words(replica.uptime_s))),
        ("role", cell(replica.role)),
        ("standing", cell(replica.standing)),
        ("home id", cell(replica.home_id)),
        ("epoch", cell(replica.epoch)),
        ("log begins", cell(replica.min_phy_offset)),
        ("log ends", cell(replica.max_phy_offset)),
        ("flushed", cell(replica.flushed_offset)),
        ("dispatched", cell(replica.dispatched_offset)),
        ("log holds", cell(log)),
        ("disk", cell(None if replica.disk_ratio is None else f"{replica.disk_ratio:.0%} full")),
        ("stored", cell(replica.put_total)),
        ("read", cell(replica.get_total)),
        ("clients", cell(replica.client_connections)),
        ("puts waiting", cell(replica.puts_waiting)),
    ]
    return facts


def _terms(frame: Frame, replica: Replica) -> list[tuple[str, Cell]]:
    """The role history as the node keeps it, newest first."""
    value = replica.answer.value
    epochs = value.get("epochs") if isinstance(value, dict) else None
    if not isinstance(epochs, list) or not epochs:
        return [("", cell("It tells of none.", "dim"))]
    lines: list[tuple[str, Cell]] = []
    for row in reversed(epochs):
        if isinstance(row, dict):
            began_ms = row.get("began_wall_ms")
            when = f", {moment_in_words(began_ms)[:19]} UTC" if began_ms else ""
            where = f"id {row.get('home_id')} from offset {row.get('start_offset')}{when}"
            lines.append((f"epoch {row.get('epoch')}", cell(where)))
    return lines
