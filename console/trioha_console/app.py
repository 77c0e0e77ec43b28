"""The program: it takes frames from its source and hands them to the screen in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import ContentSwitcher, Footer

from trioha.watch.collector import Raw
from trioha.watch.history import History
from trioha.watch.snapshot import ClusterSnapshot
from trioha_console.frame import Frame
from trioha_console.source import Source
from trioha_console.themes import DEFAULT_THEME, THEMES
from trioha_console.views.replication import ReplicationView
from trioha_console.views.view import View
from trioha_console.widgets.header import HeaderLine, NavLine

VIEWS: Sequence[type[View]] = (ReplicationView,)


class ConsoleApp(App[None]):
    """`trioha console`."""

    TITLE = "trioha console"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (130, "-wide")]  # noqa: RUF012
    CSS = """
    Screen { background: $background; }
    ContentSwitcher { height: 1fr; }
    Footer { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"view('{view.NAME}')", view.TITLE, show=False)
            for number, view in enumerate(VIEWS, 1)
        ),
        Binding("p", "pause", "Pause"),
        Binding("q", "quit", "Quit"),
    ]

    class FrameArrived(Message):
        """The source has told what it knows now."""

        def __init__(self, raw: Raw) -> None:
            super().__init__()
            self.raw = raw

    def __init__(self, source: Source, *, armed: bool = False) -> None:
        super().__init__()
        self.source = source
        self.armed = armed
        self.frame: Frame | None = None
        self.paused = False
        self._history = History()
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = DEFAULT_THEME

    def compose(self) -> ComposeResult:
        yield HeaderLine()
        yield NavLine()
        with ContentSwitcher(initial=VIEWS[0].NAME):
            for view in VIEWS:
                yield view()
        yield Footer()

    def on_mount(self) -> None:
        self._show_frame()
        self.action_view(VIEWS[0].NAME)
        self._follow_source()

    @property
    def view(self) -> View:
        return self.query_one(f"#{self.query_one(ContentSwitcher).current}", View)

    @work(exclusive=True, group="source", description="takes frames from the source")
    async def _follow_source(self) -> None:
        try:
            async for raw in self.source.snapshots():
                self.post_message(self.FrameArrived(raw))
        finally:
            await self.source.close()

    @on(FrameArrived)
    def _take_frame(self, event: FrameArrived) -> None:
        snapshot = ClusterSnapshot.of(event.raw)
        self._history.add(snapshot)
        if not self.paused:
            self.frame = Frame(snapshot, self._history, self.source.live)
            self._show_frame()

    def _show_frame(self) -> None:
        header = self.query_one(HeaderLine)
        header.show(self.source.title, self.frame, paused=self.paused, armed=self.armed)
        if self.frame is not None:
            self.view.show(self.frame)

    def action_view(self, name: str) -> None:
        self.query_one(ContentSwitcher).current = name
        self.query_one(NavLine).show([(view.NAME, view.TITLE) for view in VIEWS], name)
        self.source.want(self.view.interest)
        self.view.grid.focus()
        self._show_frame()

    def action_pause(self) -> None:
        self.paused = not self.paused
        self._show_frame()

    def get_system_commands(self, screen: Any) -> Any:
        yield from super().get_system_commands(screen)
