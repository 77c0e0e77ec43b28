"""A screen over the main window: tabs of views onto one thing, escape to go back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Static

from trioha.watch.collector import Interest
from trioha_console.cells import Cell
from trioha_console.roles import lines_of
from trioha_console.screens.over import OverScreen
from trioha_console.widgets.grid import Grid
from trioha_console.widgets.header import TitleLine
from trioha_console.widgets.keys import KeysLine
from trioha_console.widgets.prompt import Prompt


class DetailScreen(OverScreen[None]):
    """Subclasses say what the tabs are and draw the one in front."""

    TABS: ClassVar[Sequence[tuple[str, str]]] = ()
    """(id, title) in order."""

    @property
    def tabs(self) -> Sequence[tuple[str, str]]:
        """Tabs that this screen offers now."""
        return self.TABS

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("tab", "tab(1)", "Next tab", show=False, priority=True),
        Binding("shift+tab", "tab(-1)", "Tab before", show=False, priority=True),
    ]
    SCOPED_CSS = False
    DEFAULT_CSS = """
    DetailScreen {
        & > #detail-tabs { height: 1; padding: 0 1; background: $surface; text-wrap: nowrap; }
        & > #detail-said { height: auto; display: none; padding: 0 1; color: $warning; }
        & > ContentSwitcher { height: 1fr; }
    }
    """

    def compose(self) -> ComposeResult:
        yield TitleLine()
        yield Static(id="detail-tabs")
        yield Static(id="detail-said", markup=False)
        with ContentSwitcher(initial=self.tabs[0][0]):
            yield from self.panes()
        yield Prompt()
        yield KeysLine()

    def panes(self) -> Sequence[Widget]:
        """One widget per tab, with the tab's id."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.go_to_tab(self.tabs[0][0])

    @property
    def tab(self) -> str:
        return self.query_one(ContentSwitcher).current or self.tabs[0][0]

    @property
    def grid(self) -> Grid[Any] | None:
        """The table in front, for `/`, sorting and export."""
        found = self.query_one(f"#{self.tab}")
        return found if isinstance(found, Grid) else next(iter(found.query(Grid)), None)

    @property
    def front(self) -> Widget:
        """Widget that gets the keys: the tab in front, or the first in it that takes any."""
        front = self.query_one(f"#{self.tab}")
        return front if front.can_focus else next(iter(front.query("*:can-focus")), front)

    @property
    def interest(self) -> Interest | None:
        """The tables that the collector asks for; None if those of the view below are enough."""
        return None

    def set_title(self, title: Cell) -> None:
        self.query_one(TitleLine).show_title(title)

    def say(self, words: str) -> None:
        """A line of trouble under the tabs; "" takes it away."""
        said = self.query_one("#detail-said", Static)
        said.update(lines_of(words))
        said.display = bool(words)

    def go_to_tab(self, name: str) -> None:
        self.query_one(ContentSwitcher).current = name
        parts = []
        for tab, title in self.tabs:
            style = "bold $primary reverse" if tab == name else "$foreground 70%"
            parts.append(
                Content.from_markup(f"[@click=screen.go('{tab}')][{style}] {title} [/][/]")
            )
        self.query_one("#detail-tabs", Static).update(Content("").join(parts))
        self.front.focus()
        self.tab_opened(name)

    def tab_opened(self, name: str) -> None:
        """The tab is in front now: ask for what it shows."""

    def action_go(self, name: str) -> None:
        self.go_to_tab(name)

    def action_tab(self, step: int) -> None:
        names = [name for name, _ in self.tabs]
        self.go_to_tab(names[(names.index(self.tab) + step) % len(names)])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While something is typed, tab completes it."""
        if action == "tab":
            return not any(one.is_open for one in self.query(Prompt))
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        """One level: out of the filter, else out of the screen."""
        if self.grid is not None and self.grid.filter_text:
            self.grid.set_filter("")
            for line in self.query(KeysLine):
                line.show_note("")
        else:
            self.dismiss()
