"""The console under test: a source that tells what a test wants, and screens as text.

A snapshot is the text of a screen in a file. `just rewrite` writes them anew; read the diff.
"""

from __future__ import annotations

import asyncio
import os
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.app import App
from textual.events import Key
from textual.keys import REPLACED_KEYS, _character_to_key, _get_unicode_name_from_key
from textual.pilot import Pilot
from trioha_console.app import ConsoleApp
from trioha_console.idle_loop import settled
from trioha_console.source import Source

from support.fakes.raw_answers import NAMESRV, RawCluster
from trioha.errors import Unreachable
from trioha.watch.collector import Interest, Raw
from trioha.wire.remoting_command import RemotingCommand

SNAPSHOTS = Path(__file__).parents[2] / "console" / "snapshots"
SMALL, LARGE = (80, 24), (200, 50)
PATIENCE_S = 60.0
REWRITE = "TRIOHA_REWRITE"
"""Set in the environment: snapshots are written instead of compared."""

Ask = Callable[[str, RemotingCommand], Awaitable[RemotingCommand]]


class FakeSource:
    """Frames that a test hands out."""

    def __init__(self, cluster: RawCluster, *, live: bool = True) -> None:
        self.cluster = cluster
        self.title = "10.0.0.9:9876"
        self.namesrvs: tuple[str, ...] = (NAMESRV,)
        self.live = live
        self.thrifty = False
        self.interest = Interest()
        self.asked: list[tuple[str, RemotingCommand]] = []
        self.answer: Ask | None = None
        self.closed = False
        self._frames: asyncio.Queue[Raw] = asyncio.Queue()

    def push(self) -> None:
        """Queue a frame of the cluster as it is now."""
        self._frames.put_nowait(self.cluster.raw())

    async def snapshots(self) -> AsyncIterator[Raw]:
        while True:
            yield await self._frames.get()

    def want(self, interest: Interest) -> None:
        self.interest = interest

    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        self.asked.append((address, command))
        if self.answer is None:
            raise Unreachable(f"{address}: nobody answers in this test")
        return await self.answer(address, command)

    async def close(self) -> None:
        self.closed = True


class PaintedApp(ConsoleApp):
    """Tells when its screen has been painted."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.painted = asyncio.Event()

    def post_display_hook(self) -> None:
        self.painted.set()


class Keyboard:
    """The program, its keys, and what it shows."""

    def __init__(self, app: PaintedApp, pilot: Pilot[Any]) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        """All of them in one burst, as a script types; then the screen is drawn."""
        for key in keys:
            self.app.post_message(_key_event(key))
        await self.settled()
        # Keys in turn are dealt with one after the other; a pilot would wait 40 ms after each.
        while self.app.is_running and not self.app.is_settled:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await self.settled()

    async def settled(self) -> None:
        """Wait until the program has nothing left to do and its screen is drawn."""
        await settled(self.app)

    async def until(self, what: str, holds: Callable[[], object]) -> None:
        """Look whenever the screen was painted, until this holds."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not holds():
                    self.app.painted.clear()
                    await self.app.painted.wait()
        except TimeoutError:
            raise AssertionError(f"never saw {what}; the screen is\n{self.text}") from None
        await self.settled()

    async def shows(self, words: str) -> None:
        """Wait until the screen shows these words: what was asked is answered when it likes."""
        await self.until(repr(words), lambda: words in self.text)

    @property
    def text(self) -> str:
        return screen_text(self.app)


class Console(Keyboard):
    """The program before a source that a test feeds."""

    def __init__(self, app: PaintedApp, source: FakeSource, pilot: Pilot[Any]) -> None:
        super().__init__(app, pilot)
        self.source = source

    async def tick(self, times: int = 1) -> None:
        """Let time pass, ask every node, draw the screen."""
        for _ in range(times):
            self.source.cluster.tick()
            await self.frame()

    async def frame(self) -> None:
        """Draw the cluster as it is now."""
        self.source.push()
        await self.settled()

    def line(self, words: str) -> str:
        """The one line with these words."""
        found = [line for line in self.text.splitlines() if words in line]
        assert len(found) == 1, f"{len(found)} lines with {words!r} in\n{self.text}"
        return found[0]


@asynccontextmanager
async def open_live_console(
    source: Source, size: tuple[int, int] = LARGE, **options: Any
) -> AsyncIterator[Keyboard]:
    """Open the console before a live cluster."""
    app = PaintedApp(source, **options)
    async with app.run_test(size=size) as pilot:
        yield Keyboard(app, pilot)


@asynccontextmanager
async def open_console(
    cluster: RawCluster, size: tuple[int, int] = SMALL, **options: Any
) -> AsyncIterator[Console]:
    """The console before a fake source, with the first frame drawn."""
    source = FakeSource(cluster)
    app = PaintedApp(source, **options)
    async with app.run_test(size=size) as pilot:
        console = Console(app, source, pilot)
        await console.frame()
        yield console


def _key_event(key: str) -> Key:
    """Return the event of a key, from its name or from the character that it types."""
    name = key if len(key) > 1 or key.isalnum() else _character_to_key(key)
    if len(key) == 1:
        return Key(name, key)
    try:
        return Key(
            name, unicodedata.lookup(_get_unicode_name_from_key(REPLACED_KEYS.get(key, key)))
        )
    except KeyError:
        return Key(name, None)


def screen_text(app: App[Any]) -> str:
    """The characters of the screen, blanks at the right left out."""
    strips = app.screen._compositor.render_strips(app.size)
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


def check_snapshot(name: str, text: str) -> None:
    """Compare with the file of this name, or write it if that was asked for."""
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get(REWRITE):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return
    assert path.exists(), f"{path.name} does not exist: {REWRITE}=1 pytest writes it"
    assert text == path.read_text(), f"the screen is not {path.name}: `just rewrite`, read the diff"
