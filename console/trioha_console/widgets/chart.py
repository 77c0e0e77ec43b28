"""A line of braille dots over time, with its scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.content import Content
from textual.widget import Widget

from trioha_console.marks import line_chart
from trioha_console.roles import content_of

_SCALE_WIDTH = 10


class TrendChart(Widget):
    """Values of equal steps, the newest at the right; what is not known leaves a hole."""

    DEFAULT_CSS = """
    TrendChart { width: 1fr; height: 100%; padding: 0 1; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._title = ""
        self._values: Sequence[float | None] = ()
        self._words: Callable[[float | None], str] = str
        self._least_top = 0.0

    @property
    def points(self) -> int:
        """Count of values that fit side by side."""
        return max(2, 2 * (self.content_size.width - _SCALE_WIDTH - 1))

    def show(
        self,
        title: str,
        values: Sequence[float | None],
        words: Callable[[float | None], str],
        *,
        least_top: float = 1.0,
    ) -> None:
        """Draw these; the scale reaches from zero to the largest, or to `least_top`."""
        if (title, values) != (self._title, self._values):
            self._title, self._values, self._words = title, list(values), words
            self._least_top = least_top
            self.refresh()

    def render(self) -> Content:
        width, height = self.content_size
        rows, columns = max(1, height - 1), max(1, width - _SCALE_WIDTH - 1)
        known = [value for value in self._values if value is not None]
        title = content_of(((self._title, "title"),))
        if not known:
            return Content("\n").join([title, Content.styled("no data yet", "$foreground 55%")])
        top = max(self._least_top, *known)
        lines = [title]
        for index, line in enumerate(line_chart(self._values, columns, rows, top)):
            scale = self._words(top) if index == 0 else self._words(0) if index == rows - 1 else ""
            edge = "┤" if scale else "│"
            lines.append(
                Content.assemble(
                    (f"{scale:>{_SCALE_WIDTH}}{edge}", "$foreground 55%"), (line, "$accent")
                )
            )
        return Content("\n").join(lines)
