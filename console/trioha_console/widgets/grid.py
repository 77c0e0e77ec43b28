"""A table that draws what is seen, and of that what has changed.

Textual's DataTable keeps a cell object for everything; ten thousand queues once a second are too
much for that. Here rows are values of any kind: the cells of those on screen are made from them,
compared with what was drawn, and only lines that differ are drawn again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from trioha_console.arrange import Shape, SortOrder, arranged
from trioha_console.cells import Cell, GridColumn, Row, fit, fitted, safe_cell
from trioha_console.roles import theme_styles

GAP = 2


@dataclass(eq=False)
class RowMessage(Message):
    """A message of a grid about one of its rows."""

    grid: Grid[Any]
    row: Any

    @property
    def control(self) -> Grid[Any]:
        return self.grid


class Grid(ScrollView, Generic[Row], can_focus=True):
    """Rows with a cursor, sorted and filtered."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "scroll_left", "Left", show=False),
        Binding("right", "scroll_right", "Right", show=False),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(0)", "First", show=False),
        Binding("end,G", "edge(-1)", "Last", show=False),
        Binding("enter", "choose", "Open"),
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Reverse", show=False),
    ]
    DEFAULT_CSS = """
    Grid {
        background: $background;
        color: $foreground;
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
    }
    """

    cursor: reactive[int] = reactive(0, repaint=False)
    empty: reactive[str] = reactive("")
    """Text shown when there is no row."""

    class Moved(RowMessage):
        """The cursor is on another row, or on none."""

    class Chosen(RowMessage):
        """Enter, or a double click."""

    def __init__(
        self, shape: Shape[Row], *, empty: str = "Nothing here.", id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self.shape = shape
        self.order = SortOrder()
        self.filter_text = ""
        self.rows: list[Row] = []
        """Rows that match the filter, in the order shown."""
        self.set_reactive(Grid.empty, empty)
        self._all: Sequence[Row] = ()
        self._fitted: list[tuple[GridColumn[Row], int]] = []
        self._cells: dict[int, tuple[Cell, ...]] = {}
        self._styles: dict[str, Style] = {}
        self._base: Style | None = None
        self._moved_to: object = None

    # Contents.

    @property
    def row(self) -> Row | None:
        """Row under the cursor; None without rows."""
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    @property
    def titles(self) -> list[tuple[str, bool]]:
        """Title of each column, and whether there is room for it now."""
        # A table that was just opened has no width yet; it will get that of the screen.
        fitted = self._fitted or fit(self.shape.columns, self.app.size.width, GAP)
        shown = {column.title for column, _ in fitted}
        return [(column.title, column.title in shown) for column in self.shape.columns]

    @property
    def total(self) -> int:
        """Rows, those that the filter hides included."""
        return len(self._all)

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show these instead; the cursor stays with its row."""
        if rows is self._all:
            # The same rows at a later time: their order is the same.
            self._redraw_changed(self._cells)
            return
        self._all = rows
        self._arrange()

    def set_filter(self, text: str) -> None:
        self.filter_text = text
        self._arrange()

    def set_order(self, order: SortOrder) -> None:
        self.order = order
        self._arrange()
        self.refresh()

    def go_to(self, identity: object) -> bool:
        """Put the cursor on the row of this identity; False if it is not shown."""
        row = self.row
        if row is not None and self.shape.identity(row) == identity:
            return True
        for index, row in enumerate(self.rows):
            if self.shape.identity(row) == identity:
                self.cursor = index
                return True
        return False

    def _arrange(self) -> None:
        before = self.row
        wanted = None if before is None else self.shape.identity(before)
        old_count, old_cells = len(self.rows), self._cells
        self.rows = arranged(self._all, self.shape, self.order, self.filter_text)
        self._cells = {}
        if len(self.rows) != old_count:
            self.virtual_size = Size(self._width, len(self.rows) + 1)
            self.refresh()
            # The scroll range is known only after the layout.
            self.call_after_refresh(self._keep_in_view)
        else:
            self._redraw_changed(old_cells)
        if wanted is None or not self.go_to(wanted):
            self.cursor = max(0, min(self.cursor, len(self.rows) - 1))
        self._tell_moved()

    def _redraw_changed(self, old_cells: dict[int, tuple[Cell, ...]]) -> None:
        """Draw rows again whose cells are others now: neighbours at once, which is quicker."""
        self._cells = {}
        first: int | None = None
        visible = self._visible()
        for index in visible:
            if self._cells_of(index) == old_cells.get(index):
                if first is not None:
                    self.refresh_lines(first + 1, index - first)
                first = None
            elif first is None:
                first = index
        if first is not None:
            self.refresh_lines(first + 1, visible.stop - first)

    # The cursor.

    def validate_cursor(self, cursor: int) -> int:
        return max(0, min(cursor, len(self.rows) - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        self.refresh_line(old + 1)
        self.refresh_line(new + 1)
        self._keep_in_view()
        self._tell_moved()

    def _keep_in_view(self) -> None:
        index, top, height = self.cursor, self.scroll_offset.y, self.size.height
        if index < top or height < 3:
            self.scroll_to(y=index, animate=False, immediate=True)
        elif index + 2 - height > top:
            self.scroll_to(y=index + 2 - height, animate=False, immediate=True)

    def _tell_moved(self) -> None:
        row = self.row
        identity = None if row is None else self.shape.identity(row)
        if identity != self._moved_to:
            self._moved_to = identity
            self.post_message(self.Moved(self, row))

    def action_move(self, step: int) -> None:
        self.cursor += step

    def action_page(self, step: int) -> None:
        self.cursor += step * max(1, self.size.height - 2)

    def action_edge(self, index: int) -> None:
        self.cursor = index if index >= 0 else len(self.rows) - 1

    def action_choose(self) -> None:
        if self.row is not None:
            self.post_message(self.Chosen(self, self.row))

    def action_sort(self) -> None:
        """Sort by the next column; after the last one, keep the order of the source."""
        titles = ["", *(column.title for column, _ in self._fitted)]
        index = titles.index(self.order.title) if self.order.title in titles else 0
        self.set_order(SortOrder(titles[(index + 1) % len(titles)]))

    def action_reverse(self) -> None:
        self.set_order(SortOrder(self.order.title, not self.order.descending))

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            self._sort_at(event.x + self.scroll_offset.x)
            return
        index = event.y - 1 + self.scroll_offset.y
        if 0 <= index < len(self.rows):
            self.cursor = index
            if event.chain == 2:
                self.action_choose()

    def _sort_at(self, x: int) -> None:
        """A click on a head sorts by it, a second one the other way round."""
        for column, width in self._fitted:
            if x < width + GAP:
                same = column.title == self.order.title
                self.set_order(SortOrder(column.title, same and not self.order.descending))
                return
            x -= width + GAP

    # Drawing.

    def on_resize(self) -> None:
        self._fitted = fit(self.shape.columns, self.size.width, GAP)
        self._cells = {}
        self.virtual_size = Size(self._width, len(self.rows) + 1)
        self.refresh()
        self.call_after_refresh(self._keep_in_view)

    def notify_style_update(self) -> None:
        self._styles = {}
        self._base = None
        super().notify_style_update()

    def on_focus(self) -> None:
        self.refresh_line(self.cursor + 1)

    def on_blur(self) -> None:
        self.refresh_line(self.cursor + 1)

    @property
    def _width(self) -> int:
        return sum(width for _, width in self._fitted) + GAP * max(0, len(self._fitted) - 1)

    def _visible(self) -> range:
        top = self.scroll_offset.y
        return range(top, min(len(self.rows), top + max(0, self.size.height - 1)))

    def _cells_of(self, index: int) -> tuple[Cell, ...]:
        cells = self._cells.get(index)
        if cells is None:
            row = self.rows[index]
            cells = self._made_of(row)
            self._cells[index] = cells
        return cells

    def _made_of(self, row: Row) -> tuple[Cell, ...]:
        """A cell per column; the last one may reach to the end of the line."""
        over = self.shape.over(row)
        if over is None:
            return tuple(safe_cell(column.cell(row, width)) for column, width in self._fitted)
        title, last = over
        cells: list[Cell] = []
        for column, width in self._fitted:
            if column.title == title:
                return (*cells, safe_cell(last))
            cells.append(safe_cell(column.cell(row, width)))
        return tuple(cells)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Leave out the filter for the terminal's colours: lines have only the theme's."""
        return [one for one in super().get_line_filters() if not isinstance(one, ANSIToTruecolor)]

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        width = self.size.width
        if y == 0:
            return self._head().crop_extend(scroll_x, scroll_x + width, self._style("head"))
        index = scroll_y + y - 1
        if self._base is None:
            # Made of the styles of all widgets around this one: too much for every line.
            self._base = self.rich_style
        base = self._base
        if index >= len(self.rows):
            words = f"  {self.empty}" if not self.rows and y == 2 else ""
            return Strip([Segment(words, base + self._style("dim"))]).adjust_cell_length(
                width, base
            )
        if index == self.cursor:
            base += self._style("cursor" if self.has_focus else "blurred-cursor")
        segments: list[Segment] = []
        gap = Segment(" " * GAP, base)
        cells = self._cells_of(index)
        for number, ((column, size), spans) in enumerate(zip(self._fitted, cells, strict=False), 1):
            if segments:
                segments.append(gap)
            if number == len(cells) < len(self._fitted):
                size += sum(GAP + more for _, more in self._fitted[number:])
            segments += [
                Segment(text, base + self._style(role) if role else base)
                for text, role in fitted(spans, size, right=column.right)
            ]
        return Strip(segments).crop_extend(scroll_x, scroll_x + width, base)

    def _head(self) -> Strip:
        style = self._style("head")
        segments: list[Segment] = []
        for column, width in self._fitted:
            title = column.title
            if title == self.order.title:
                title += "▼" if self.order.descending else "▲"
            ((text, _), *rest) = fitted(((title, ""),), width, right=column.right)
            role = style + Style(bold=title != column.title)
            segments += [Segment(text, role), *(Segment(blank, role) for blank, _ in rest)]
            segments.append(Segment(" " * GAP, style))
        return Strip(segments)

    def _style(self, role: str) -> Style:
        if not self._styles:
            self._styles = theme_styles(self.app.theme_variables, ansi=self.app.current_theme.ansi)
        return self._styles[role]

    def region_of(self, index: int) -> Region:
        """Return the region of a row on the screen, for clicks."""
        x, y, _, _ = self.region
        return Region(x, y + 1 + index - self.scroll_offset.y, self.size.width, 1)
