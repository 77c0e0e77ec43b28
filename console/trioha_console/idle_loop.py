"""Waits until the program has nothing left to do and its screen is drawn.

Textual's pilot waits until the process uses little processor time for 20 ms. A process that the
machine does not run uses none either, so on a busy machine the pilot may show a screen half drawn.
Here the event loop itself tells: it is idle when it has nothing to run, none of its threads is at
work, and it would wait for a timer or a file. What other processes still do is not waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from textual.app import App

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Wakes those who wait for an idle loop, when the loop would itself wait for input."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[asyncio.Future[None]] = []
        self.threads = 0
        """Calls that other threads make for the loop now."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.waiting or self.threads or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            waiting, self.waiting = self.waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        return ready


class IdleLoop(asyncio.SelectorEventLoop):
    """Event loop that tells when it is idle: `asyncio.Runner(loop_factory=IdleLoop)`."""

    def __init__(self) -> None:
        self._watched = _Selector()
        super().__init__(self._watched)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._watched.threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, future: asyncio.Future[Any]) -> None:
        self._watched.threads -= 1

    async def idle(self) -> None:
        """Return once every callback and every thread has run, no file is ready, no timer due."""
        future = self.create_future()
        self._watched.waiting.append(future)
        await future


async def settled(app: App[Any]) -> None:
    """Return once the program is idle and what it changed is on its screen, or it has ended.

    It must run in an `IdleLoop`. Errors: TypeError if it does not.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, IdleLoop):
        raise TypeError("settled() needs asyncio.Runner(loop_factory=IdleLoop)")
    await loop.idle()
    while app.is_running and _has_to_draw(app.screen):
        # The screen is drawn at most 60 times a second; nobody needs to wait for that here.
        app.screen._on_timer_update()
        await loop.idle()


def _has_to_draw(screen: Any) -> bool:
    """Tell whether Textual's timer is going to draw the screen (mypy cannot read its `_active`)."""
    return bool(screen._update_timer._active.is_set())
