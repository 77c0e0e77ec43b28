"""The line at the bottom that appears for `/` and `:` and goes away by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Input, Label


class Prompt(Horizontal):
    """Either a filter, told of at each key, or a command, told of when it is entered."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", show=False),
    ]
    DEFAULT_CSS = """
    Prompt {
        height: 1; display: none; background: $panel;
        &.-open { display: block; }
        & > Label { width: auto; padding: 0 0 0 1; color: $accent; text-style: bold; }
        & > Input { height: 1; width: 1fr; border: none; padding: 0 1 0 0; background: $panel; }
    }
    """

    @dataclass(eq=False)
    class Filtered(Message):
        """The filter is this now; `final` when enter was pressed."""

        text: str

    @dataclass(eq=False)
    class Commanded(Message):
        """A command line was entered."""

        text: str

    class Closed(Message):
        """The line is gone; the focus should go back to where it was."""

    def __init__(self) -> None:
        super().__init__()
        self._kind = "/"
        self._before = ""

    def compose(self) -> ComposeResult:
        yield Label("/")
        yield Input(compact=True)

    def open(self, kind: str, value: str = "", words: tuple[str, ...] = ()) -> None:
        """`kind` is ``/`` or ``:``; `words` are offered while typing."""
        self._kind, self._before = kind, value
        self.query_one(Label).update(kind)
        box = self.query_one(Input)
        box.suggester = SuggestFromList(words, case_sensitive=False) if words else None
        with self.prevent(Input.Changed):
            box.value = value
        box.cursor_position = len(value)
        self.add_class("-open")
        # At once: `focus()` would come some messages later.
        self.screen.set_focus(box)

    def insert(self, text: str) -> None:
        """As if it had been typed."""
        self.query_one(Input).insert_text_at_cursor(text)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._kind == "/" and self.is_open:
            self.post_message(self.Filtered(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._close()
        if self._kind == ":":
            self.post_message(self.Commanded(event.value))

    def action_cancel(self) -> None:
        if self._kind == "/":
            self.post_message(self.Filtered(self._before))
        self._close()

    def _close(self) -> None:
        self.remove_class("-open")
        self.post_message(self.Closed())
