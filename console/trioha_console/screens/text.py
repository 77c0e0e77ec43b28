"""Screen of lines that are asked for once: a consumer's stacks, the trace of a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from trioha.errors import TriohaError
from trioha_console.cells import Cell
from trioha_console.roles import content_of
from trioha_console.widgets.header import TitleLine
from trioha_console.widgets.keys import KeysLine


class TextScreen(Screen[None]):
    """A title and lines; arrows scroll, r asks again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back"),
        Binding("r", "again", "Refresh"),
    ]
    DEFAULT_CSS = """
    TextScreen {
        & > VerticalScroll { height: 1fr; padding: 0 1; }
        & #text-lines { height: auto; }
    }
    """

    @dataclass(eq=False)
    class Told(Message):
        """The lines, or the reason why there are none."""

        lines: Sequence[Cell]

    def __init__(self, title: Cell, ask: Callable[[], Awaitable[Sequence[Cell]]]) -> None:
        super().__init__()
        self._title = title
        self._ask = ask

    def compose(self) -> ComposeResult:
        yield TitleLine(self._title)
        with VerticalScroll():
            yield Static("Asking…", id="text-lines", markup=False)
        yield KeysLine()

    def on_mount(self) -> None:
        self._read()

    def action_again(self) -> None:
        self._read()

    @work(exclusive=True, group="text", description="asks for the lines")
    async def _read(self) -> None:
        try:
            lines = await self._ask()
        except TriohaError as error:
            lines = [((str(error), "warn"),)]
        self.post_message(self.Told(lines))

    @on(Told)
    def _told(self, event: Told) -> None:
        event.stop()
        text = Content("\n").join(content_of(one) for one in event.lines)
        self.query_one("#text-lines", Static).update(text)
