"""A titled list of names and values; drawn again when one of them has changed."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from trioha_console.cells import Cell
from trioha_console.roles import content_of

Facts = Sequence[tuple[str, Cell]]
"""Name and value; a value with an empty name is a line of its own."""
_NAME_WIDTH = 12


class FactList(Static):
    """Names dim at the left, values at the right of them."""

    DEFAULT_CSS = """
    FactList { width: 1fr; height: 100%; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id)
        self._shown: tuple[Cell, tuple[tuple[str, Cell], ...]] | None = None

    def show(self, title: Cell, facts: Facts) -> None:
        shown = (title, tuple(facts))
        if shown == self._shown:
            return
        self._shown = shown
        lines = [content_of(title)]
        for name, value in facts:
            label = content_of(((f"{name:<{_NAME_WIDTH}} ", "dim"),))
            lines.append(label + content_of(value) if name else content_of(value))
        # Its size does not depend on what it shows.
        self.update(Content("\n").join(lines), layout=False)
