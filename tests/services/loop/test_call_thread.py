from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

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


class Wait:
    """Stands in for the loop's wait: the test says when what is ready is read."""

    def __init__(self) -> None:
        self.fd = -1
        self._on_readable: Callable[[], None] = lambda: None

    def add(self, fd: int, on_readable: Callable[[], None]) -> None:
        # A copy: it can be asked after the thread has closed its own.
        self.fd, self._on_readable = os.dup(fd), on_readable

    def remove(self, fd: int) -> None:
        pass

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def is_woken(self, patience_s: float = 0) -> bool:
        # Not select(): the suite's process may have more than 1,024 files open.
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(patience_s * 1000))

    def read(self) -> None:
        """Wait for a wake-up, and read it."""
        assert self.is_woken(PATIENCE_S)
        self._on_readable()


class Held:
    """A call that ends when it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> int:
        self.begun.set()
        assert self.go.wait(PATIENCE_S)
        return 7


@pytest.fixture
def quiet() -> tuple[CallThread, Wait, Held, list[outcome.Outcome[int]]]:
    """A thread that makes a quiet call, and what has been delivered."""
    wait, held = Wait(), Held()
    delivered: list[outcome.Outcome[int]] = []
    thread = CallThread(wait, "calls of a test")  # type: ignore[arg-type]
    thread.start(held, delivered.append, quiet=True)
    assert held.begun.wait(PATIENCE_S)
    return thread, wait, held, delivered


Quiet = tuple[CallThread, Wait, Held, list[outcome.Outcome[int]]]


def test_a_quiet_call_wakes_nobody_and_is_collected(quiet: Quiet) -> None:
    thread, wait, held, delivered = quiet
    thread.collect()
    assert delivered == [], "it has not ended"
    held.go.set()
    thread.close()  # waits for the thread
    assert not wait.is_woken()
    assert delivered == []
    thread.collect()
    thread.collect()
    assert delivered == [outcome.Value(7)]


def test_a_quiet_call_that_is_wanted_before_its_end_wakes_the_loop(quiet: Quiet) -> None:
    thread, wait, held, delivered = quiet
    thread.collect_soon()
    assert delivered == []
    held.go.set()
    wait.read()
    assert delivered == [outcome.Value(7)]
    thread.close()


def test_a_quiet_call_that_is_wanted_after_its_end_is_there_at_once(quiet: Quiet) -> None:
    thread, wait, held, delivered = quiet
    held.go.set()
    thread.close()
    thread.collect_soon()
    assert delivered == [outcome.Value(7)]
    assert not wait.is_woken()


def test_what_a_quiet_call_raises_wakes_the_loop_and_is_not_collected() -> None:
    """A collected error would end the node in the middle of something else."""
    wait = Wait()
    delivered: list[outcome.Outcome[int]] = []
    thread = CallThread(wait, "calls of a test")  # type: ignore[arg-type]

    def fails() -> int:
        raise ValueError("no")

    thread.start(fails, delivered.append, quiet=True)
    assert wait.is_woken(PATIENCE_S)
    thread.collect()
    assert delivered == []
    wait.read()
    assert [type(one) for one in delivered] == [outcome.Error]
    thread.close()


def test_a_wake_up_for_a_call_that_was_collected_is_for_nothing(quiet: Quiet) -> None:
    thread, wait, held, delivered = quiet
    thread.collect_soon()
    held.go.set()
    assert wait.is_woken(PATIENCE_S)
    thread.collect()
    wait.read()
    assert delivered == [outcome.Value(7)]
    thread.close()
