"""The line at the bottom for `/` and `:`. It goes away once what was typed has been understood.

A line that is not understood stays, with the reason above it: what is typed next goes into it, and
is never taken for a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input, Label, Static

from trioha_console.roles import lines_of

Complete = Callable[[str], Sequence[str]]
"""Returns the whole lines that a line may become."""


class Prompt(Vertical):
    """Either a filter, told of at each key, or a command, told of when it is entered."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", show=False),
        Binding("tab", "complete", "Complete", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    Prompt {
        height: auto; display: none; background: $panel;
        &.-open { display: block; }
        & > #prompt-said { height: auto; max-height: 3; padding: 0 1; color: $foreground 70%; }
        & > #prompt-said.-wrong { color: $error; text-style: bold; }
        & > Horizontal { height: 1; }
        & Label { width: auto; padding: 0 0 0 1; color: $accent; text-style: bold; }
        & Input { height: 1; width: 1fr; border: none; padding: 0 1 0 0; background: $panel; }
    }
    """

    @dataclass(eq=False)
    class Filtered(Message):
        """The filter is this now; `final` when enter was pressed."""

        text: str

    @dataclass(eq=False)
    class Commanded(Message):
        """A command line was entered. The prompt stays until `close` or `refuse` is called."""

        prompt: Prompt
        text: str

    class Closed(Message):
        """The line is gone; the focus should go back to where it was."""

    def __init__(self) -> None:
        super().__init__()
        self._kind = "/"
        self._before = ""
        self._complete: Complete = lambda line: ()

    def compose(self) -> ComposeResult:
        yield Static(id="prompt-said", markup=False)
        with Horizontal():
            yield Label("/")
            yield Input(compact=True, select_on_focus=False)

    def open(self, kind: str, value: str = "", complete: Complete = lambda line: ()) -> None:
        """`kind` is ``/`` or ``:``; `complete` is asked when tab is pressed."""
        self._kind, self._before, self._complete = kind, value, complete
        self.query_one(Label).update(kind)
        self._say("")
        box = self.query_one(Input)
        with self.prevent(Input.Changed):
            box.value = value
        box.cursor_position = len(value)
        self.add_class("-open")
        # At once: `focus()` would come some messages later.
        self.screen.set_focus(box)

    def insert(self, text: str) -> None:
        """Insert text at the cursor, as if it had been typed."""
        self.query_one(Input).insert_text_at_cursor(text)

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def refuse(self, reason: str) -> None:
        """Stay open with what was typed, and say why it cannot be done."""
        self._say(reason, is_wrong=True)

    def close(self) -> None:
        if self.is_open:
            self.remove_class("-open")
            self.post_message(self.Closed())

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self._say("")
        if self._kind == "/" and self.is_open:
            self.post_message(self.Filtered(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._kind == ":":
            self.post_message(self.Commanded(self, event.value))
        else:
            self.close()

    def action_complete(self) -> None:
        """Complete the line as far as it is unambiguous; then show the possible words."""
        box = self.query_one(Input)
        found = sorted(self._complete(box.value))
        if not found:
            self._say("nothing begins with that")
            return
        longest = found[0] if len(found) == 1 else _common(found[0], found[-1])
        if len(longest) > len(box.value):
            with self.prevent(Input.Changed):
                box.value = longest
            box.cursor_position = len(longest)
        self._say("" if len(found) == 1 else "  ".join(_last_word(one) for one in found))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "complete":
            return self.is_open
        return super().check_action(action, parameters)

    def action_cancel(self) -> None:
        if self._kind == "/":
            self.post_message(self.Filtered(self._before))
        self.close()

    def _say(self, words: str, *, is_wrong: bool = False) -> None:
        said = self.query_one("#prompt-said", Static)
        if not (words or said.display):
            return  # an update is a layout of the screen, and each key that is typed comes here
        said.update(lines_of(words))
        said.set_class(is_wrong, "-wrong")
        said.display = bool(words)


def _last_word(line: str) -> str:
    return line.rstrip().rpartition(" ")[2]


def _common(one: str, other: str) -> str:
    """Return the common prefix of two lines."""
    size = next(
        (index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
    return one[:size]
