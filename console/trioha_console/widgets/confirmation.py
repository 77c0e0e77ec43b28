"""Asks for a name to be typed before something is lost. Another name stays, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from trioha_console.roles import lines_of


class TypedConfirmation(Vertical):
    """Hidden until `open`."""

    DEFAULT_CSS = """
    TypedConfirmation {
        height: auto; display: none; margin: 0 1; border: round $warning;
        &.-open { display: block; }
        & > Input { height: 1; border: none; padding: 0 1; }
        & > Static { height: 1; padding: 0 1; color: $error; text-style: bold; display: none; }
    }
    """

    class Confirmed(Message):
        """The name was typed."""

    @dataclass(eq=False)
    class Closed(Message):
        """The prompt was closed without the name."""

    def __init__(self, name: str, id: str | None = None) -> None:
        super().__init__(id=id)
        self._wanted = name

    def compose(self) -> ComposeResult:
        yield Input(placeholder=f"type {self._wanted} and press enter", compact=True)
        yield Static(markup=False)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def open(self) -> None:
        box = self.query_one(Input)
        box.value = ""
        self._say("")
        self.add_class("-open")
        self.screen.set_focus(box)

    def close(self) -> None:
        self.remove_class("-open")

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._say("")

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        typed = event.value.strip()
        if typed == self._wanted:
            self.close()
            self.post_message(self.Confirmed())
        else:
            self._say(f"{typed or 'nothing'} is not {self._wanted}; nothing has been done")

    def _say(self, words: str) -> None:
        said = self.query_one(Static)
        said.update(lines_of(words))
        said.display = bool(words)
