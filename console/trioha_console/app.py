"""The program: it takes frames from its source and hands them to the screen in front."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
from textual import on, work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Static

from trioha.contexts import Contexts
from trioha.shown import shown, shown_lines
from trioha.watch.alerts import AlertChange, AlertLevel, Alerts
from trioha.watch.collector import Interest, Raw
from trioha.watch.history import History
from trioha.watch.rules import RULES, Reading, Rule
from trioha.watch.snapshot import ClusterSnapshot, Tables
from trioha_console.command_actions import CommandActions
from trioha_console.commands import COMMANDS
from trioha_console.frame import Frame
from trioha_console.garbage import IdleCollector
from trioha_console.hung_up import when_hung_up
from trioha_console.later import CLUSTERS, TITLES, VIEWS, import_later, make_view
from trioha_console.layout import Layout, load_layout, save_layout
from trioha_console.other_clusters import OpenContext
from trioha_console.overall import overall_state
from trioha_console.planned import PlannedOperation
from trioha_console.program import Program
from trioha_console.replay_source import ReplaySource
from trioha_console.roles import ControlFilter
from trioha_console.screens.detail import DetailScreen
from trioha_console.screens.over import OverScreen
from trioha_console.source import Source, context_source, context_source_seldom
from trioha_console.themes import THEMES
from trioha_console.views.view import View
from trioha_console.widgets.grid import Grid
from trioha_console.widgets.header import HeaderLine, NavLine, TitleLine
from trioha_console.widgets.keys import KeysLine
from trioha_console.widgets.prompt import Prompt
from trioha_console.widgets.replay_bar import ReplayBar

_REFILL_FRAMES = 600
"""Ten minutes at one a second, for sparklines and alerts after a jump."""
_NOTICES_KEPT = 50
_SWITCH_S = 0.001
_ROLES: dict[SeverityLevel, str] = {"information": "accent", "warning": "warn", "error": "bad"}


class ConsoleApp(CommandActions, App[None]):
    """`trioha console`."""

    TITLE = "trioha console"
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (130, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (16, "-high"), (32, "-tall")]  # noqa: RUF012
    CSS = """
    Screen { background: $background; }
    ModalScreen { background: $background 60%; }
    ContentSwitcher { height: 1fr; }
    NavLine, KeysLine, #detail-tabs {
        link-style: none; link-color: $foreground; link-background: transparent;
        link-style-hover: bold; link-background-hover: $primary 30%; link-color-hover: $foreground;
    }
    #too-small { display: none; color: $warning; height: 1fr; }
    .-tiny #too-small, .-low #too-small { display: block; }
    .-tiny ContentSwitcher, .-tiny HeaderLine, .-tiny NavLine, .-tiny KeysLine { display: none; }
    .-low ContentSwitcher, .-low HeaderLine, .-low NavLine, .-low KeysLine { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"view('{name}')", title, show=False)
            for number, (name, title) in enumerate(VIEWS.items(), 1)
        ),
        Binding("0", f"view('{CLUSTERS}')", TITLES[CLUSTERS], show=False),
        Binding("slash", "filter", "Filter"),
        Binding("colon", "command", "Command"),
        Binding("e", "export", "Export", show=False),
        Binding("p", "pause", "Pause", show=False),
        Binding("ctrl+s", "save_screen", "Screenshot", show=False),
        Binding("space", "replay('play')", "Play"),
        Binding("comma", "replay('back')", "Step back", show=False),
        Binding("full_stop", "replay('on')", "Step on", show=False),
        Binding("left_square_bracket", "replay('mark_before')", "Mark before"),
        Binding("right_square_bracket", "replay('mark')", "Next mark"),
        Binding("plus", "replay('faster')", "Faster", show=False),
        Binding("minus", "replay('slower')", "Slower", show=False),
        Binding("question_mark", "help", "Help"),
        Binding("escape", "clear_filter", "Back", show=False),
        Binding("q", "quit", "Quit"),
    ]

    @dataclass(eq=False)
    class FrameArrived(Message):
        """A snapshot from the source."""

        snapshot: ClusterSnapshot
        source: Source
        changes: Sequence[AlertChange]

    def __init__(
        self,
        source: Source,
        *,
        armed: bool = False,
        rules: Mapping[str, Rule] = RULES,
        contexts: Contexts | None = None,
        layout_path: Path | None = None,
        open_context: OpenContext = context_source,
        open_other: OpenContext = context_source_seldom,
        collector: IdleCollector | None = None,
    ) -> None:
        super().__init__()
        self._collector = collector
        self._open_context = open_context
        self._open_other = open_other
        self.source = source
        self.armed = armed
        """Commands that change the cluster are allowed."""
        self.contexts = contexts
        self.frame: Frame | None = None
        self.paused = False
        self.alerts = Alerts(rules)
        self.notices: deque[str] = deque(maxlen=_NOTICES_KEPT)
        """Notices shown in the last line, oldest first."""
        self._trail: list[str] = []
        """Screens that the one in front was opened from."""
        self._interest = Interest()
        self._changes = 0
        """Count of changes made here."""
        self._history = History()
        self._tables = Tables()
        self._views: dict[str, View] = {}
        self._imports_later = False
        self._layout_path = layout_path
        self._layout = load_layout(layout_path) if layout_path is not None else Layout()
        for theme in THEMES:
            self.register_theme(theme)
        if self._layout.theme in self.available_themes:
            self.theme = self._layout.theme

    def compose(self) -> ComposeResult:
        yield HeaderLine()
        yield NavLine()
        yield Static("This terminal is too small: 60x16 is the least.", id="too-small")
        yield ContentSwitcher()
        if isinstance(self.source, ReplaySource):
            yield ReplayBar(self.source.replay)
        yield Prompt()
        yield KeysLine()

    async def on_mount(self) -> None:
        # Without this a SIGTERM would leave the terminal as it is in a full-screen program.
        if not self.is_headless:
            for number in (signal.SIGTERM, signal.SIGHUP):
                asyncio.get_running_loop().add_signal_handler(number, self.exit)
            when_hung_up(sys.stdin.fileno(), self._leave_at_once)
        # Tables are made in a thread, and a key waits for its turn once per call.
        sys.setswitchinterval(_SWITCH_S)
        await self.action_view(self._layout.view if self._layout.view in VIEWS else "replication")
        self._follow_source()

    def _console(self) -> Program:
        return self

    @property
    def open_context(self) -> OpenContext:
        """Opens the cluster of a context for all screens."""
        return self._open_context

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), ControlFilter()]

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show this in the last line, where the keys are; no toast ever covers a screen."""
        words = shown_lines(message).replace("\n", " ")
        words = f"{shown(title)}: {words}" if title else words
        self.notices.append(words)
        for screen in reversed(self.screen_stack):
            for line in screen.query(KeysLine):
                line.show_notice(words, _ROLES[severity])
                return

    # The screen in front.

    @property
    def main(self) -> Screen[Any]:
        """The main window, under all screens that are open over it."""
        return self.screen_stack[0]

    @property
    def view(self) -> View:
        """View that the main window shows; a view is made when it is first opened."""
        return self._views[self.main.query_one(ContentSwitcher).current or ""]

    @property
    def front_grid(self) -> Grid[Any] | None:
        """The table that `/`, `:sort` and `:export` mean."""
        if isinstance(self.screen, DetailScreen):
            return self.screen.grid
        return self.view.grid if self.screen is self.main else None

    @property
    def front(self) -> Widget | None:
        """Widget that gets the keys while no prompt is open; None for the screen itself."""
        if isinstance(self.screen, DetailScreen):
            front = self.screen.front
            return front if front.focusable else None
        return self.view.grid if self.screen is self.main else None

    @property
    def front_name(self) -> str:
        """Name of the table in front, for exported files."""
        return self.screen.tab if isinstance(self.screen, DetailScreen) else self.view.NAME

    # Frames.

    @work(exclusive=True, group="source", description="takes frames from the source")
    async def _follow_source(self) -> None:
        source = self.source
        try:
            async for raw in source.snapshots():
                # Fifty thousand rows take half a second, which the keys shall not wait for. Of a
                # recording the tables are also read by jumps, in this thread.
                self._tables.thrifty = source.thrifty
                read = partial(ClusterSnapshot.of, raw, self._tables)
                snapshot = await asyncio.to_thread(read) if source.live else read()
                # A frame may still come while the app takes its widgets down.
                if not self.main.query(ContentSwitcher):
                    break
                readings = await asyncio.to_thread(self._prepare, snapshot, self.view)
                if source is not self.source:
                    break
                # Keys that came meanwhile go between.
                self._history.add(snapshot)
                await asyncio.sleep(0)
                changes = self.alerts.look(snapshot, readings)
                self.post_message(self.FrameArrived(snapshot, source, changes))
        finally:
            await source.close()

    def _prepare(self, snapshot: ClusterSnapshot, view: View) -> Mapping[str, Sequence[Reading]]:
        """Make what is read and drawn of large tables, in another thread."""
        with self._collector.making_tables() if self._collector else contextlib.nullcontext():
            snapshot.prepare(self._interest)
            view.prepare(snapshot)
            return self.alerts.read_groups(snapshot)

    def follow(self, source: Source, rules: Mapping[str, Rule]) -> None:
        """Watch another cluster from now on; nothing of the old one is kept."""
        self.source = source
        self.frame = None
        self._history = History()
        self._tables = Tables()
        self.alerts.clear()
        self.alerts.rules = rules
        self._want()
        self._follow_source()
        self.show_frame()

    @on(FrameArrived)
    def _take_frame(self, event: FrameArrived) -> None:
        # A frame may still come while the app takes its widgets down.
        if event.source is not self.source or not self.main.query(NavLine):
            return
        if self._collector is not None:
            self._collector.look(time.monotonic(), self.last_key_s)
        self._take_snapshot(event.snapshot, event.changes)
        if event.snapshot.replicas and not self._imports_later:
            self._imports_later = True
            self.call_after_refresh(self._import_later)

    @work(group="imports", description="imports what is opened later")
    async def _import_later(self) -> None:
        await asyncio.to_thread(import_later)

    def take_raw(self, raw: Raw) -> None:
        """Something newer is known."""
        snapshot = ClusterSnapshot.of(raw, self._tables)
        self._history.add(snapshot)
        self._take_snapshot(snapshot, self.alerts.look(snapshot))

    def _take_snapshot(self, snapshot: ClusterSnapshot, changes: Sequence[AlertChange]) -> None:
        self._tell(changes)
        if not self.paused or self.frame is None:
            self.frame = Frame(snapshot, self._history, self.source.live)
            self.show_frame()

    def show_frame(self) -> None:
        """Draw what is in front, and nothing else."""
        header = self.main.query_one(HeaderLine)
        header.show(
            self.source.title,
            self.frame,
            self.alerts.active,
            paused=self.paused,
            armed=self.armed,
        )
        for bar in self.main.query(ReplayBar):
            bar.draw()
        if self.frame is None:
            return
        for title in self.screen.query(TitleLine):
            title.show_state(tuple(overall_state(self.frame.snapshot, self.alerts.active)))
        if isinstance(self.screen, OverScreen):
            if self.screen.is_mounted:
                self.screen.show(self.frame)
            else:  # it was just opened; its own messages are dealt with when it is composed
                self.screen.call_later(self.show_frame)
        elif self.screen is self.main:
            self.view.show(self.frame)
            self.show_nav()

    def refill(self) -> None:
        """A recording has jumped: the history and the alerts are those that led there."""
        source = self.source
        if not isinstance(source, ReplaySource):
            return
        self._history.clear()
        self.alerts.clear()
        for raw in source.replay.before(_REFILL_FRAMES):
            snapshot = ClusterSnapshot.of(raw, self._tables)
            self._history.add(snapshot)
            self.alerts.look(snapshot)
            self.frame = Frame(snapshot, self._history, live=False)
        self.show_frame()

    def action_redraw(self) -> None:
        self.show_frame()

    def show_nav(self) -> None:
        names = [(str(number), *view) for number, view in enumerate(VIEWS.items(), 1)]
        if self.source.live and self.contexts is not None and len(self.contexts.contexts) > 1:
            names.append(("0", CLUSTERS, TITLES[CLUSTERS]))
        self.main.query_one(NavLine).show(names, self.view.NAME)
        self.show_filter()

    def show_filter(self) -> None:
        """Rows that are hidden are never hidden silently."""
        grid, note = self.front_grid, ""
        if grid is not None and grid.filter_text:
            note = f"/{grid.filter_text}  {len(grid.rows)} of {grid.total}"
        for line in self.screen.query(KeysLine):
            line.show_note(note)

    def _tell(self, changes: Sequence[AlertChange]) -> None:
        """Say the worst of what has begun; the header counts all of it."""
        worse = [change.alert for change in changes if change.is_worse]
        if not worse:
            return
        worst = max(worse, key=lambda alert: alert.level)
        more = f"  (and {len(worse) - 1} more alerts)" if len(worse) > 1 else ""
        is_critical = worst.level is AlertLevel.CRIT
        severity: SeverityLevel = "error" if is_critical else "warning"
        self.notify(f"{worst.text}{more}", title=worst.rule, severity=severity)
        if is_critical:
            self.bell()

    def _want(self) -> None:
        interest = self.view.interest
        if isinstance(self.screen, DetailScreen):
            interest = self.screen.interest or interest
        # An alert of a group is raised on every screen.
        self._interest = attrs.evolve(interest, alerts=True, changes=self._changes)
        self.source.want(self._interest)

    # Moving about.

    async def action_view(self, name: str) -> None:
        self._trail = []
        await self._show_view(name)

    async def go_back(self) -> None:
        """One level: to the screen that this one was opened from, or out of the filter."""
        self.view.narrow("")
        if self._trail:
            await self._show_view(self._trail.pop())
        self.show_filter()

    async def _open_view(self, name: str) -> None:
        """Show a view from another one, which escape goes back to."""
        if name != self.view.NAME:
            self._trail.append(self.view.NAME)
        await self._show_view(name)

    async def _show_view(self, name: str) -> None:
        while isinstance(self.screen, DetailScreen):
            self.pop_screen()
        switcher = self.main.query_one(ContentSwitcher)
        if name == CLUSTERS and not self.source.live:
            self.notify("This is a recording of one cluster.", severity="warning")
            return
        if switcher.current and switcher.current != name:
            await self.view.left()
        if name not in self._views:
            view = self._views[name] = make_view(
                name, lambda: self.source, self.alerts, self._open_other
            )
            await switcher.add_content(view)
            if order := self._layout.orders.get(name):
                view.grid.set_order(order)
        switcher.current = name
        self.view.entered()
        self._want()
        self.view.grid.focus()
        self.show_nav()
        self.show_frame()

    async def action_queues(self, topic: str) -> None:
        await self._open_view("queues")
        self.view.narrow(topic)
        self._want()
        self.show_frame()

    async def action_browse(self, topic: str, broker: str = "", queue_id: int = -1) -> None:
        line = topic + (f" broker {broker}" if broker else "")
        line += f" queue {queue_id}" if queue_id >= 0 else ""
        await self.ask_messages(line)

    async def ask_messages(self, line: str) -> None:
        """Open the messages with this question."""
        from trioha_console.views.messages import MessagesView

        await self._open_view(MessagesView.NAME)
        if isinstance(self.view, MessagesView):
            self.view.ask(line)

    def action_group(self, name: str) -> None:
        from trioha_console.screens.group import GroupScreen

        self._open(GroupScreen(name, self.alerts.rules, self.source))

    def action_node(self, address: str) -> None:
        from trioha_console.screens.node import NodeScreen

        self._open(NodeScreen(self.source, address))

    def action_failover(self, broker_name: str, to: int | None = None) -> None:
        """Open the wizard; a recording can only be looked at."""
        if not self.source.live:
            self.notify("This is a recording: nothing can be changed.", severity="warning")
            return
        one = self.frame.snapshot.set_of(broker_name) if self.frame is not None else None
        if one is not None and one.is_raft:
            self.action_transfer(broker_name)
            return
        from trioha_console.screens.failover import FailoverScreen

        screen = FailoverScreen(
            self.source, self.source.namesrvs, broker_name, armed=self.armed, to=to
        )
        self._open(screen)

    def action_transfer(self, broker_name: str, member: str = "") -> None:
        """Do the same as `action_failover`, for a group that elects its leader."""
        from trioha_console.screens.transfer import TransferScreen

        self._open(TransferScreen(self.source, broker_name, armed=self.armed, to=member))

    def open_operation(self, operation: PlannedOperation, line: str) -> None:
        """Show the plan; `line` is put back into the prompt if there can be none."""
        from trioha_console.screens.operation import OperationScreen

        def closed(reason: str | None) -> None:
            self._changes += screen.has_ended
            self._screen_closed(None)
            if reason:
                self.refuse_line(line, reason)

        screen = OperationScreen(self.source, operation, armed=self.armed)
        self.push_screen(screen, closed)

    def _screen_closed(self, _: object) -> None:
        self._want()
        if self.screen is self.main:
            # At once: `focus()` would take it some messages later from a prompt that opens now.
            self.main.set_focus(self.view.grid)
        self.show_frame()

    def _open(self, screen: Screen[None]) -> None:
        self.push_screen(screen, self._screen_closed)
        self.call_after_refresh(self._opened)

    def _opened(self) -> None:
        self._want()
        self.show_frame()

    # Leaving.

    async def action_quit(self) -> None:
        if any(isinstance(one, OverScreen) and one.in_progress for one in self.screen_stack):
            self.notify("A change runs; it ends by itself. Leave after it.", severity="warning")
            return
        self._remember()
        self.exit()

    def _leave_at_once(self) -> None:
        """The terminal is gone: nothing can be restored, and no signal may ever come."""
        self._remember()
        os._exit(1)

    def _remember(self) -> None:
        if self._layout_path is None:
            return
        layout = Layout(theme=self.theme, view=self.view.NAME)
        layout.orders = self._layout.orders | {
            view.NAME: view.grid.order for view in self._views.values() if view.grid.order.title
        }
        save_layout(self._layout_path, layout)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Return the entries of the palette: all commands of `:`."""
        for name, title in TITLES.items():
            yield SystemCommand(f"Go to {title}", f":{name}", partial(self.action_view, name))
        for command in COMMANDS:
            if command.action != "view":
                yield SystemCommand(command.usage, command.help, partial(self.run_or_ask, command))
        yield from super().get_system_commands(screen)
