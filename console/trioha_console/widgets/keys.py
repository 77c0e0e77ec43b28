"""The last line: which keys do what here, from the bindings that are active; a click does it too.

What has just happened is said in the same line for a few seconds. So no notice ever covers a table,
a confirmation or a step.

Textual's Footer makes a widget per key whenever the focus moves, which is most of what moving about
would cost.
"""

from __future__ import annotations

from functools import partial

from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from trioha.shown import shown as safe
from trioha_console.roles import content_of

NOTICE_S = 6.0


class KeysLine(Static):
    """One line; keys that there is no room for are in the help."""

    DEFAULT_CSS = """
    KeysLine {
        height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
        dock: bottom;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: object = None
        self._note = ""
        self._notice: tuple[str, str] | None = None
        self._notices = 0

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        self._draw()

    def show_note(self, note: str) -> None:
        """Words before the keys: which rows the table in front leaves out."""
        if note != self._note:
            self._note = note
            self._draw()

    def show_notice(self, words: str, role: str) -> None:
        """Words instead of the keys, for `NOTICE_S`."""
        self._notice = words, role
        self._notices += 1
        self._draw()
        self.set_timer(NOTICE_S, partial(self._end_notice, self._notices))

    def _end_notice(self, number: int) -> None:
        if number == self._notices:
            self._notice = None
            self._draw()

    def _bindings_changed(self, _: Screen[object]) -> None:
        if self.screen.is_current:
            self._draw()

    def _draw(self) -> None:
        if self._notice is not None:
            if self._shown != self._notice:
                self._shown = self._notice
                self.update(content_of((self._notice,)), layout=False)
            return
        told: dict[str, tuple[str, str, str]] = {}
        for _, binding, enabled, _ in self.screen.active_bindings.values():
            if binding.show and enabled and not binding.system:
                shown = self.app.get_key_display(binding)
                told[binding.action] = (binding.key.partition(",")[0], shown, binding.description)
        keys = tuple(told.values())
        if (keys, self._note) == self._shown:
            return
        self._shown = (keys, self._note)
        parts = [Content.styled(f"{safe(self._note)}  ", "bold $accent")] if self._note else []
        parts += [
            Content.from_markup(
                f"[@click=app.simulate_key('{key}')][bold $primary]$shown[/] $words[/]  ",
                shown=shown,
                words=words,
            )
            for key, shown, words in keys
        ]
        self.update(Content("").join(parts), layout=False)
