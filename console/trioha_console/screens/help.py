"""`?`: every column of the screen in front, every key that works there, and every command.

What a column means stands in docs/glossary.md; keys are told by the bindings themselves.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from trioha.glossary import column_meaning, column_words
from trioha_console.commands import COMMANDS

Tables = Sequence[tuple[str, Sequence[tuple[str, bool]]]]
"""Each table in front: its name, and the title of each column with whether there is room for it."""

_KEY_WIDTH = 26
_COLUMN_WIDTH = 17
_TEXTUALS = ("screen.", "app.focus", "scroll_", "page_")
"""Actions that every widget of Textual has."""
_MARKS = (
    ("●", "$success", "well"),
    ("▲", "$warning", "look at it"),
    ("✖", "bold $error", "wrong"),
    ("○", "$foreground 55%", "not known yet"),
    ("-", "$foreground 55%", "nobody tells; never a zero"),
)


class HelpScreen(ModalScreen[None]):
    """Closes with escape, `?` or `q`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss", "Close"),
    ]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll {
        width: 94%; max-width: 110; height: 90%; padding: 0 1;
        background: $surface; border: round $primary; border-title-color: $primary;
    }
    """

    def __init__(self, bindings: dict[str, ActiveBinding], tables: Tables) -> None:
        super().__init__()
        self._keys = bindings
        self._tables = tables

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "columns, keys and commands"
            yield _Wrapped(self._text)

    def _text(self, width: int) -> Content:
        sections = (
            ("Columns", self._columns(width, shown=True)),
            ("Columns on a wider terminal", self._columns(width, shown=False)),
            ("Marks", _marks()),
            ("Keys", self._keys_told(width)),
            ("Commands", _commands(width)),
        )
        return Content("\n\n").join(
            Content("\n").join([Content.styled(title, "bold $primary"), *lines])
            for title, lines in sections
            if lines
        )

    def _columns(self, width: int, *, shown: bool) -> list[Content]:
        words = column_words()
        return [
            _line(title, column_meaning(words, table, title) or "-", _COLUMN_WIDTH, width)
            for table, titles in self._tables
            for title, is_shown in titles
            if is_shown is shown
        ]

    def _keys_told(self, width: int) -> list[Content]:
        told: dict[str, list[str]] = {}
        for key, active in self._keys.items():
            words = active.binding.description or active.tooltip
            if words and not active.binding.action.startswith(_TEXTUALS):
                told.setdefault(words, []).append(self.app.get_key_display(active.binding) or key)
        return [
            _line(" ".join(dict.fromkeys(keys)), words, _KEY_WIDTH, width)
            for words, keys in told.items()
        ]


class _Wrapped(Static):
    """A text that is made for the width that there is."""

    DEFAULT_CSS = "_Wrapped { width: 1fr; }"

    def __init__(self, text: Callable[[int], Content]) -> None:
        super().__init__(markup=False)
        self._text = text
        self._made_for = 0

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._made_for:
            self._made_for = event.size.width
            self.update(self._text(self._made_for))


def _marks() -> list[Content]:
    return [
        Content.assemble((f"  {mark:<{_COLUMN_WIDTH}} ", style), words)
        for mark, style, words in _MARKS
    ]


def _commands(width: int) -> list[Content]:
    lines = []
    for command in COMMANDS:
        also = f" (:{', :'.join(command.aliases)})" if command.aliases else ""
        lines.append(_line(command.usage, f"{command.help}{also}", _KEY_WIDTH, width))
    return lines


def _line(left: str, right: str, indent: int, width: int) -> Content:
    """Two columns; the right one goes on below itself."""
    lines = textwrap.wrap(right, max(20, width - indent - 3)) or [""]
    rest = "".join(f"\n{' ' * (indent + 3)}{line}" for line in lines[1:])
    return Content.assemble((f"  {left:<{indent}} ", "$accent"), lines[0] + rest)
