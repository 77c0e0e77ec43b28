"""The console is read when it has drawn all that it has to draw, however slow the machine is."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from support.fakes.raw_answers import RawCluster
from support.screens.screens import open_console
from textual.app import App, ComposeResult
from textual.widgets import Static
from trioha_console.idle_loop import IdleLoop, settled

STEPS = 50
STOLEN_S = 0.03
"""Time for which the process does not run: longer than Textual's pilot looks at it."""


class StepByStep(App[None]):
    """App that draws its line after many steps; meanwhile the machine runs something else."""

    def compose(self) -> ComposeResult:
        yield Static("waiting")

    def begin(self) -> None:
        self.run_worker(self._work())

    async def _work(self) -> None:
        for step in range(STEPS):
            if step % 10 == 0:
                time.sleep(STOLEN_S)  # noqa: ASYNC251
            await asyncio.sleep(0)
        self.query_one(Static).update("drawn")


def line_of(app: App[None]) -> str:
    return app.screen._compositor.render_strips(app.size)[0].text.rstrip()


async def test_a_process_that_is_not_run_is_not_taken_for_idle() -> None:
    app = StepByStep()
    async with app.run_test():
        app.begin()
        await settled(app)
        assert line_of(app) == "drawn"


async def test_what_a_thread_makes_is_waited_for() -> None:
    may_end = threading.Event()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, IdleLoop)
    call = asyncio.create_task(asyncio.to_thread(may_end.wait))
    idle = asyncio.create_task(loop.idle())
    loop.call_later(0.01, may_end.set)
    await idle
    assert call.done()


async def test_a_timer_is_not_waited_for() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, IdleLoop)
    timer = asyncio.create_task(asyncio.sleep(3600))
    await loop.idle()
    assert not timer.done()
    timer.cancel()


async def test_two_may_wait_and_one_may_give_up() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, IdleLoop)
    gives_up, waits = (asyncio.create_task(loop.idle()) for _ in range(2))
    await asyncio.sleep(0)
    gives_up.cancel()
    await waits
    assert gives_up.cancelled()


async def test_a_program_that_has_ended_is_settled() -> None:
    async with open_console(RawCluster()) as console:
        console.app.exit()
        await console.settled()
        assert not console.app.is_running


def test_another_loop_cannot_tell() -> None:
    with pytest.raises(TypeError, match="IdleLoop"):
        asyncio.run(settled(App()))
