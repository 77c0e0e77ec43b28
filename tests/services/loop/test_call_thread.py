from __future__ import annotations

import threading

import outcome
import pytest
import trio
from support.suite.skips import skip_unless

from trioha.services.loop.call_thread import CallThread
from trioha.services.loop.ready_reads import ready_reads, start_ready_reads

PATIENCE_S = 60.0


@pytest.fixture
async def thread() -> CallThread:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    reads = ready_reads()
    assert reads is not None
    return CallThread(reads, "calls of a test")


class Calls:
    """Hears of each outcome, on the loop."""

    def __init__(self, thread: CallThread) -> None:
        self._thread = thread
        self._heard = trio.Event()
        self._result: outcome.Outcome[object] | None = None
        self.loop = threading.get_ident()

    def _deliver(self, result: outcome.Outcome[object]) -> None:
        assert threading.get_ident() == self.loop
        self._result = result
        self._heard.set()

    async def result_of(self, call: object) -> object:
        self._heard = trio.Event()
        self._thread.start(call, self._deliver)  # type: ignore[arg-type]
        with trio.fail_after(PATIENCE_S):
            await self._heard.wait()
        assert self._result is not None
        return self._result.unwrap()


async def test_calls_are_made_in_one_thread_that_is_not_the_loops(thread: CallThread) -> None:
    calls = Calls(thread)
    idents = {await calls.result_of(threading.get_ident) for _ in range(3)}
    assert len(idents) == 1
    assert calls.loop not in idents
    thread.close()


async def test_what_a_call_raises_is_its_outcome(thread: CallThread) -> None:
    calls = Calls(thread)

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await calls.result_of(fails)
    assert await calls.result_of(lambda: 3) == 3
    thread.close()


async def test_the_next_call_may_start_where_the_last_one_is_heard_of(thread: CallThread) -> None:
    done = trio.Event()
    results: list[int] = []

    def again(result: outcome.Outcome[int]) -> None:
        results.append(result.unwrap())
        if len(results) < 100:
            thread.start(lambda: len(results), again)
        else:
            done.set()

    thread.start(lambda: 0, again)
    with trio.fail_after(PATIENCE_S):
        await done.wait()
    assert results == list(range(100))
    thread.close()


async def test_a_closed_one_has_no_thread(thread: CallThread) -> None:
    name = "calls of a test"
    assert name in {one.name for one in threading.enumerate()}
    thread.close()
    assert name not in {one.name for one in threading.enumerate()}
