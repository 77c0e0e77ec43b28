"""A signal is neither lost before its task waits nor heard twice."""

from __future__ import annotations

import trio
import trio.testing

from trioha.services.loop.signal import Signal


async def test_a_signal_wakes_its_task_once_for_each_time() -> None:
    signal, woken = Signal(), 0

    async def count() -> None:
        nonlocal woken
        while True:
            await signal.wait()
            woken += 1

    signal.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == 1, "set before the task waited"
        signal.set()
        signal.set()
        await trio.testing.wait_all_tasks_blocked()
        assert woken == 2, "set twice before the task ran"
        nursery.cancel_scope.cancel()
