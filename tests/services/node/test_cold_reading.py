from __future__ import annotations

import os
from pathlib import Path
from random import Random

import trio
import trio.testing
from support.handlers.sending import FakeChannel

from trioha.broker.cold_reads import ColdPull, ColdReads
from trioha.config import BrokerConfig
from trioha.remoting.channel import Instant
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import simulate_host
from trioha.services.node.cold_reading import ColdReading
from trioha.store.interface import DiskBlock, GetResult, GetStatus
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

LIMITED = BrokerConfig(cg_cold_read_threshold=100_000)


def no_answer(pull: ColdPull, instant: Instant) -> None:
    """Do nothing: the test takes these pulls by hand."""


class Rig:
    """The task on virtual time, and when each pull was read."""

    def __init__(self) -> None:
        self.reads = ColdReads(LIMITED)
        self.log_end = 0
        self.reading = ColdReading(self.reads, Clock(), lambda: self.log_end, self.on_read)
        self.read_s: list[float] = []
        self.all_read = trio.Event()
        self.wanted = 0

    def ask(self, size: int) -> None:
        found = GetResult(GetStatus.NOT_IN_MEMORY, 0, 0, 9, on_disk=[self.block(size)])
        request = RemotingCommand(RequestCode.PULL_MESSAGE)
        pull = ColdPull(FakeChannel(), request, "g", "T", 0, found, 1 << 40, 0, 1, no_answer)
        assert self.reads.hold(pull)
        self.wanted += 1
        self.reading.has_new()

    def block(self, missing_bytes: int) -> DiskBlock:
        return DiskBlock(Path("/nowhere"), self.wanted, 10, missing_bytes)

    def on_read(self) -> None:
        self.log_end += 1  # producers are at work
        self.read_s += [trio.current_time()] * len(self.reads.take_due())
        if len(self.read_s) == self.wanted:
            self.all_read.set()


async def test_pulls_are_read_when_they_come_and_no_faster_than_the_limit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    simulate_host(Random(1))
    rig = Rig()
    begin_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        rig.reading.begin(nursery)
        await trio.testing.wait_all_tasks_blocked()
        rig.ask(1)
        with trio.fail_after(1):
            await rig.all_read.wait()
        rig.all_read = trio.Event()
        for _ in range(5):
            rig.ask(20_000)
        with trio.fail_after(10):
            await rig.all_read.wait()
        nursery.cancel_scope.cancel()
    times = [round(when - begin_s, 1) for when in rig.read_s]
    assert times == [0.0, 0.0, 0.2, 0.4, 0.6, 0.8]


class Passes(trio.abc.Instrument):
    """Counts the passes of the loop. In each, every task that can run has one turn."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_other_tasks_have_their_turn_between_the_answers_of_one_read() -> None:
    rig, passes = Rig(), Passes()
    answered_in: list[int] = []

    def on_read() -> None:
        answered_in.extend([passes.count] * len(rig.reads.take_due()))
        if len(answered_in) == rig.wanted:
            rig.all_read.set()

    rig.reading = ColdReading(rig.reads, Clock(), lambda: 0, on_read)
    for _ in range(3):
        rig.ask(0)
    trio.lowlevel.add_instrument(passes)
    async with trio.open_nursery() as nursery:
        rig.reading.begin(nursery)
        rig.reading.has_new()
        with trio.fail_after(10):
            await rig.all_read.wait()
        nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(passes)
    first, second, third = answered_in
    assert first < second < third


async def test_what_is_due_soon_is_read_and_answers_nobody(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    rig = Rig()
    async with trio.open_nursery() as nursery:
        rig.reading.begin(nursery)
        rig.reading.read_soon([])
        assert not nursery.child_tasks
        rig.reading.read_soon([DiskBlock(pipe, 0, 1, 1)])
        with trio.fail_after(10):
            os.close(await trio.to_thread.run_sync(os.open, pipe, os.O_WRONLY))
    assert rig.read_s == []


async def test_a_file_is_read_in_a_thread_while_the_loop_goes_on(tmp_path: Path) -> None:
    """A named pipe in place of the file: it is open only once the loop has opened its other end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    rig = Rig()
    async with trio.open_nursery() as nursery:
        rig.reading.begin(nursery)
        rig.ask(1)
        found = GetResult(GetStatus.NOT_IN_MEMORY, 0, 0, 9, on_disk=[DiskBlock(pipe, 0, 1, 1)])
        request = RemotingCommand(RequestCode.PULL_MESSAGE)
        assert rig.reads.hold(
            ColdPull(FakeChannel(), request, "h", "T", 0, found, 1 << 40, 0, 1, no_answer)
        )
        rig.wanted += 1
        rig.reading.has_new()
        with trio.fail_after(10):
            fd = await trio.to_thread.run_sync(os.open, pipe, os.O_WRONLY)
            os.close(fd)
            await rig.all_read.wait()
        nursery.cancel_scope.cancel()
    assert len(rig.read_s) == 2
