from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from support.suite.skips import skip_unless

from trioha.services.loop.ready_reads import ReadyReads, ready_reads, start_ready_reads

PATIENCE_S = 60.0


class Passes(trio.abc.Instrument):
    """Counts Trio's scheduler passes."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


@contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        yield near, far


@pytest.fixture
async def reads() -> ReadyReads:
    skip_unless(start_ready_reads(), "Trio waits by epoll on Linux only")
    found = ready_reads()
    assert found is not None
    return found


async def test_the_trio_that_is_installed_can_be_asked_to_read_inside_its_wait() -> None:
    skip_unless(hasattr(__import__("select"), "epoll"), "epoll is Linux's")
    assert ready_reads() is None
    assert start_ready_reads()
    found = ready_reads()
    assert isinstance(found, ReadyReads)
    assert start_ready_reads()
    assert ready_reads() is found, "one wait inside another"


async def test_a_trio_with_other_insides_reads_by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    from trio._core import _run

    locals_alone = SimpleNamespace(_locals=_run.GLOBAL_RUN_CONTEXT.runner._locals)
    monkeypatch.setattr(_run, "GLOBAL_RUN_CONTEXT", SimpleNamespace(runner=locals_alone))
    assert not start_ready_reads()
    monkeypatch.undo()
    assert ready_reads() is None


async def test_what_arrives_costs_no_scheduler_pass(reads: ReadyReads) -> None:
    passes, taken, done = Passes(), bytearray(), trio.Event()
    with socket_pair() as (near, far):

        def echo_until_full() -> None:
            taken.extend(near.recv(1))
            if len(taken) < 1000:
                far.send(b"x")
            else:
                done.set()

        reads.add(near.fileno(), echo_until_full)
        trio.lowlevel.add_instrument(passes)
        far.send(b"x")
        with trio.fail_after(PATIENCE_S):
            await done.wait()
        trio.lowlevel.remove_instrument(passes)
        reads.remove(near.fileno())
    assert len(taken) == 1000
    assert passes.count < 10


async def test_a_flood_of_reads_holds_up_no_task(reads: ReadyReads) -> None:
    """Tasks run that a thread wakes, whose time has come, or that wait for a socket of Trio's."""
    with socket_pair() as (near, far), socket_pair() as (trios, other):
        # Never read, so always readable.
        reads.add(near.fileno(), lambda: None)
        far.send(b"x")
        with trio.fail_after(PATIENCE_S):
            await trio.sleep(0.01)
            assert await trio.to_thread.run_sync(lambda: 7) == 7
            other.send(b"x")
            await trio.lowlevel.wait_readable(trios)
        reads.remove(near.fileno())


async def test_a_task_that_a_read_wakes_runs(reads: ReadyReads) -> None:
    woken = trio.Event()
    with socket_pair() as (near, far):

        def wake() -> None:
            near.recv(1)
            woken.set()

        reads.add(near.fileno(), wake)
        far.send(b"x")
        with trio.move_on_after(PATIENCE_S) as patience:
            await woken.wait()
        # At its deadline the wait ends in any case, and the task has not been cancelled.
        assert not patience.cancel_called
        reads.remove(near.fileno())


async def test_a_deadline_that_a_read_brings_nearer_is_kept(reads: ReadyReads) -> None:
    began_s = trio.current_time()
    with socket_pair() as (near, far), trio.CancelScope(deadline=began_s + PATIENCE_S) as far_off:

        def hurry() -> None:
            near.recv(1)
            reads.remove(near.fileno())
            far_off.deadline = trio.current_time() + 0.01

        reads.add(near.fileno(), hurry)
        far.send(b"x")
        await trio.sleep_forever()
    assert trio.current_time() < began_s + PATIENCE_S


async def test_a_read_removes_another_that_is_ready_too(reads: ReadyReads) -> None:
    called = []
    with socket_pair() as (one, end_of_one), socket_pair() as (two, end_of_two):

        def call(own: socket.socket, other: socket.socket) -> None:
            called.append(own)
            own.recv(1)
            reads.remove(other.fileno())

        reads.add(one.fileno(), lambda: call(one, two))
        reads.add(two.fileno(), lambda: call(two, one))
        end_of_one.send(b"x")
        end_of_two.send(b"x")
        await trio.testing.wait_all_tasks_blocked()
        assert len(called) == 1
        for sock in (one, two):
            reads.remove(sock.fileno())


async def test_what_is_put_off_runs_behind_all_that_can_be_read(reads: ReadyReads) -> None:
    order: list[str] = []
    done = trio.Event()
    with socket_pair() as (near, far), socket_pair() as (near_2, far_2):

        def last() -> None:
            order.append("put off")
            done.set()

        def read(source: socket.socket, name: str) -> None:
            source.recv(1)
            order.append(name)
            if len(order) == 1:
                reads.before_wait(last)

        reads.add(near.fileno(), lambda: read(near, "one"))
        reads.add(near_2.fileno(), lambda: read(near_2, "two"))
        far.send(b"x")
        far_2.send(b"x")
        with trio.fail_after(PATIENCE_S):
            await done.wait()
        assert sorted(order[:2]) == ["one", "two"]
        assert order[2:] == ["put off"], "once"
        reads.remove(near.fileno())
        reads.remove(near_2.fileno())


async def test_what_a_task_puts_off_runs_before_the_loop_waits(reads: ReadyReads) -> None:
    done = trio.Event()
    reads.before_wait(done.set)
    with trio.fail_after(PATIENCE_S):
        await done.wait()


async def test_what_waits_for_a_quiet_moment_runs_behind_what_has_come_meanwhile(
    reads: ReadyReads,
) -> None:
    order: list[str] = []
    done = trio.Event()
    with socket_pair() as (near, far):

        def idle() -> None:
            order.append("idle")
            done.set()

        def read() -> None:
            near.recv(1)
            order.append("read")
            if len(order) == 1:
                reads.when_idle(idle)
            if len(order) < 10:
                far.send(b"x")

        reads.add(near.fileno(), read)
        far.send(b"x")
        with trio.fail_after(PATIENCE_S):
            await done.wait()
        assert order == ["read"] * 10 + ["idle"]
        reads.remove(near.fileno())


async def test_tasks_that_can_run_go_before_what_waits_for_a_quiet_moment(
    reads: ReadyReads,
) -> None:
    done = trio.Event()
    reads.when_idle(done.set)
    for _ in range(10):
        await trio.lowlevel.checkpoint()
        assert not done.is_set()
    with trio.fail_after(PATIENCE_S):
        await done.wait()


async def test_what_waits_for_a_quiet_moment_costs_no_scheduler_pass_and_runs_once(
    reads: ReadyReads,
) -> None:
    passes, count = Passes(), 0

    def again() -> None:
        nonlocal count
        count += 1
        if count < 1000:
            reads.when_idle(again)
        else:
            done.set()

    done = trio.Event()
    trio.lowlevel.add_instrument(passes)
    reads.when_idle(again)
    with trio.fail_after(PATIENCE_S):
        await done.wait()
    trio.lowlevel.remove_instrument(passes)
    assert count == 1000
    assert passes.count < 10


async def test_a_deadline_is_kept_behind_what_waits_for_a_quiet_moment(reads: ReadyReads) -> None:
    with trio.fail_after(PATIENCE_S):
        reads.when_idle(lambda: None)
        await trio.sleep(0.01)
