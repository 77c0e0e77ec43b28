"""Messages: by topic and time, offset, key or id. Looking at them changes nothing for consumers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from trioha.errors import TriohaError
from trioha.times import moment_in_words
from trioha.wire.names import DLQ_PREFIX, is_dlq_topic
from trioha.wire.properties import Property
from trioha.words import size_in_words
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.bodies import Look, body_text
from trioha_console.browser import Browser, Found
from trioha_console.cells import Cell
from trioha_console.frame import Frame
from trioha_console.query import FORMS, By, Query, parse_query
from trioha_console.roles import content_of, lines_of
from trioha_console.screens.text import TextScreen
from trioha_console.source import Source
from trioha_console.texts import trace_lines
from trioha_console.views.view import View
from trioha_console.widgets.grid import Grid

_PREVIEW = 120


def _keys(found: Found) -> str:
    return " ".join(found.record.keys)


def _preview(found: Found) -> str:
    return body_text(found.body[:_PREVIEW], Look.TEXT).replace("\n", " ").replace("\t", " ")


SHAPE: Shape[Found] = Shape(
    name="messages",
    identity=lambda found: (found.address, found.record.phy_offset),
    search=lambda found: f"{found.record.tags or ''} {_keys(found)} {_preview(found)}",
    columns=(
        columns.text("STORED (UTC)", lambda one: moment_in_words(one.record.store_timestamp), 23),
        columns.text("BROKER", lambda one: one.broker, 10, width_max=20, importance=2),
        columns.count("Q", lambda one: one.record.queue_id, 3),
        columns.count("OFFSET", lambda one: one.record.queue_offset, 9),
        columns.text("TAGS", lambda one: one.record.tags or "", 6, width_max=16, importance=3),
        columns.text("KEYS", _keys, 10, width_max=24, importance=1),
        columns.size("SIZE", lambda one: len(one.body), 9, importance=2),
        columns.text("BODY", _preview, 12, width_max=100, role="dim"),
    ),
)


class MessagesView(View):
    """A question above, what was found in the middle, the message below."""

    NAME: ClassVar[str] = "messages"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i", "ask", "Ask"),
        Binding("v", "look", "Text/JSON/hex"),
        Binding("f", "follow", "Follow"),
        Binding("t", "trace", "Trace"),
        Binding("r", "resend_one", "Resend"),
        Binding("R", "change('resend')", "Resend all"),
        Binding("escape", "leave_question", "Leave the question", show=False),
    ]
    DEFAULT_CSS = """
    MessagesView {
        & > #query { height: 1; border: none; padding: 0 1; background: $panel; }
        & > #said { height: auto; max-height: 3; padding: 0 1; color: $foreground 55%; }
        & > #message { height: 45%; border-top: solid $panel; background: $surface; padding: 0 1; }
        & > #message > Static { width: 1fr; height: auto; }
    }
    """

    @dataclass(eq=False)
    class Answered(Message):
        """Messages found, or the error."""

        query_line: Query
        found: list[Found] | None
        error: str = ""
        follows: bool = False
        """The view asked by itself, since it follows; the operator did not type it again."""

    def __init__(self, source: Callable[[], Source]) -> None:
        super().__init__()
        self._source = source
        """Getter of the source to ask, which changes when another cluster is watched."""
        self._frame: Frame | None = None
        self._query: Query | None = None
        self._follows = False
        self._look = Look.TEXT

    def compose(self) -> ComposeResult:
        yield Input(placeholder="TOPIC [last 50]", id="query", compact=True)
        yield Static(FORMS, id="said", markup=False)
        yield Grid(SHAPE, empty="Press i, name a topic, press enter.")
        with VerticalScroll(id="message", can_focus=False):
            yield Static(id="body", markup=False)

    def show(self, frame: Frame) -> None:
        self._frame = frame
        if self._follows and self._query is not None:
            self._find(self._query, follows=True)

    def ask(self, line: str) -> None:
        """Ask this, as if it had been typed."""
        box = self.query_one("#query", Input)
        box.value = line
        self._submit(line)

    def action_ask(self) -> None:
        self.screen.set_focus(self.query_one("#query", Input))

    @property
    def subject(self) -> str:
        """The group whose dead letters are shown."""
        topic = "" if self._query is None else self._query.topic
        return topic.removeprefix(DLQ_PREFIX) if is_dlq_topic(topic) else ""

    def action_resend_one(self) -> None:
        row = self.grid.row
        if row is not None:
            self.console.action_operate("resend", f"{self.subject} {row.offset_id}")

    def action_trace(self) -> None:
        """Show what became of the message under the cursor."""
        found = self.grid.row
        if found is not None:
            title: Cell = (("trace of  ", "title"), (found.message_id, "strong"))
            ask = partial(trace_lines, self._source(), found)
            self.app.push_screen(TextScreen(title, ask))

    def action_leave_question(self) -> None:
        self.grid.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A recording answers no question; escape leaves the question only while it is typed."""
        if action in ("ask", "follow", "trace"):
            return self._source().live
        if action in ("change", "resend_one"):
            return bool(self.subject) and super().check_action("change", parameters)
        if action == "leave_question":
            return any(box.has_focus for box in self.query(Input))
        return super().check_action(action, parameters)

    def action_look(self) -> None:
        """The same body another way."""
        self._look = self._look.next()
        self._show_message(self.grid.row)

    def action_follow(self) -> None:
        """Ask again with each frame, or stop that."""
        self._follows = not self._follows and self._query is not None
        if self._query is None:
            self._say("Ask for a topic first; then the newest messages can be followed.")
        else:
            self._say("Following; f stops." if self._follows else "No longer following.")

    @on(Input.Submitted, "#query")
    def _asked(self, event: Input.Submitted) -> None:
        event.stop()
        self._submit(event.value)

    def _submit(self, line: str) -> None:
        try:
            self._query = parse_query(line, time.time_ns() // 1_000_000)
        except TriohaError as error:
            self._fail(str(error))
            return
        self._say("Asking…")
        self._find(self._query)

    def _fail(self, reason: str) -> None:
        """Say why; rows of an older question would look like the answer."""
        self._query, self._follows = None, False
        self.grid.empty = ""
        self.grid.show_rows([])
        self._show_message(None)
        self._say(reason)

    @work(exclusive=True, group="messages", description="finds messages")
    async def _find(self, query: Query, *, follows: bool = False) -> None:
        frame = self._frame
        if frame is None:
            self.post_message(self.Answered(query, None, "nothing is known of the cluster yet"))
            return
        try:
            found = await Browser(self._source().ask, frame.snapshot).find(query)
        except TriohaError as error:
            self.post_message(self.Answered(query, None, str(error)))
        else:
            self.post_message(self.Answered(query, found, follows=follows))

    @on(Answered)
    def _answered(self, event: Answered) -> None:
        event.stop()
        if event.query_line is not self._query:
            return  # another question was asked since
        if event.found is None:
            self._fail(event.error)
            return
        grid = self.grid
        if self.query_one("#query", Input).has_focus:
            grid.focus()
        grid.empty = "No message was found."
        at_end = grid.cursor >= len(grid.rows) - 1
        grid.show_rows(event.found)
        if event.query_line.by is By.LAST and at_end:
            grid.cursor = len(grid.rows) - 1
        self._show_message(grid.row)
        if event.follows and not self._follows:
            return  # it was on its way when following ended, which has been said
        is_full = len(event.found) == event.query_line.count
        more = " (there may be more: `count N`)" if is_full else ""
        following = "  ·  following, f stops" if self._follows else ""
        self._say(f"{len(event.found)} messages{more}{following}")

    @on(Grid.Moved)
    def _moved(self, event: Grid.Moved) -> None:
        event.stop()
        self._show_message(event.row)

    def _show_message(self, found: Found | None) -> None:
        body = self.query_one("#body", Static)
        if found is None:
            body.update("")
            return
        record = found.record
        head = [
            ("id", found.message_id),
            ("broker's id", found.offset_id),
            ("lies at", f"{found.address}, log offset {record.phy_offset}"),
            ("born", f"{moment_in_words(record.born_timestamp)} UTC"),
            ("delivered", f"again {record.reconsume_times} times")
            if record.reconsume_times
            else ("", ""),
            ("properties", _properties(found)),
        ]
        parts = [
            content_of(((f"{name:<12} ", "dim"), (value, ""))) for name, value in head if value
        ]
        note = "  still compressed: by a method unknown here" if found.is_compressed else ""
        title = f"body as {self._look.value}, {size_in_words(len(found.body))}{note}"
        parts.append(Content.styled(title, "bold $primary"))
        parts.append(lines_of(body_text(found.body, self._look)))
        body.update(Content("\n").join(parts))

    def _say(self, words: str) -> None:
        self.query_one("#said", Static).update(lines_of(words))


def _properties(found: Found) -> str:
    hidden = {Property.UNIQ_KEY}
    return "  ".join(
        f"{key}={value}" for key, value in found.record.properties.items() if key not in hidden
    )
