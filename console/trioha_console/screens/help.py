"""`?`: every key that works here, from the bindings themselves, and every command."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from trioha_console.commands import COMMANDS

_KEY_WIDTH = 26
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
        width: 80%; max-width: 90; height: 90%; padding: 0 2;
        background: $surface; border: round $primary; border-title-color: $primary;
    }
    HelpScreen Static { width: 1fr; }
    """

    def __init__(self, bindings: dict[str, ActiveBinding]) -> None:
        super().__init__()
        self._keys = bindings

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "keys and commands"
            yield Static(self._text(), markup=False)

    def _text(self) -> Content:
        lines = [Content.styled("Keys", "bold $primary")]
        told: dict[str, list[str]] = {}
        for key, active in self._keys.items():
            words = active.binding.description or active.tooltip
            if words and not active.binding.action.startswith(_TEXTUALS):
                told.setdefault(words, []).append(self.app.get_key_display(active.binding) or key)
        for words, keys in told.items():
            lines.append(_line(" ".join(dict.fromkeys(keys)), words))
        lines += [Content(""), Content.styled("Commands", "bold $primary")]
        for command in COMMANDS:
            also = f" (:{', :'.join(command.aliases)})" if command.aliases else ""
            lines.append(_line(command.usage, f"{command.help}{also}"))
        lines += [Content(""), Content.styled("Marks", "bold $primary")]
        lines += [
            Content.assemble((f"  {mark:<{_KEY_WIDTH}}", style), words)
            for mark, style, words in _MARKS
        ]
        return Content("\n").join(lines)


def _line(left: str, right: str) -> Content:
    return Content.assemble((f"  {left:<{_KEY_WIDTH}} ", "$accent"), right)
