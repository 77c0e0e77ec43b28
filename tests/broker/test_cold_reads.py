from __future__ import annotations

from itertools import count
from pathlib import Path

from support.handlers.sending import FakeChannel

from trioha.broker.cold_reads import ColdPull, ColdReads
from trioha.broker.parking import Limits
from trioha.config import BrokerConfig
from trioha.remoting.channel import Instant
from trioha.store.interface import DiskBlock, GetResult, GetStatus
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

KB = 1000
PLACES = count()
"""Each pull wants another block unless it names one."""
LIMITED = BrokerConfig(cg_cold_read_threshold=100 * KB, global_cold_read_threshold=150 * KB)


def no_answer(pull: ColdPull, instant: Instant) -> None:
    """Do nothing: the test takes these pulls by hand."""


def cold_pull(
    group: str = "g",
    size: int = 10 * KB,
    channel: FakeChannel | None = None,
    deadline_ms: int = 15_000,
    place: int | None = None,
) -> ColdPull:
    place = next(PLACES) if place is None else place
    block = DiskBlock(Path("log"), place, size, size)
    found = GetResult(GetStatus.NOT_IN_MEMORY, 0, 0, 9, on_disk=[block])
    request = RemotingCommand(RequestCode.PULL_MESSAGE)
    return ColdPull(
        channel or FakeChannel(), request, group, "T", 0, found, deadline_ms, 100, 1, no_answer
    )


class Reader:
    """Reads whatever may be read, in virtual time, while the log grows or does not."""

    def __init__(self, config: BrokerConfig = LIMITED) -> None:
        self.events = RecordedEvents()
        self.reads = ColdReads(config, self.events)
        self.now_ms = 0
        self.log_end = 0
        self.read_bytes: dict[str, int] = {}

    def run(self, until_ms: int, *, grows: bool, wants: tuple[str, ...]) -> None:
        """Keep two pulls of each group waiting; go from one deadline to the next."""
        waiting = dict.fromkeys(wants, 0)
        while self.now_ms < until_ms:
            for group in wants:
                while waiting[group] < 2:
                    assert self.reads.hold(cold_pull(group, deadline_ms=1 << 40))
                    waiting[group] += 1
            self.log_end += grows
            pulls = self.reads.take(self.now_ms, self.log_end)
            for pull in pulls:
                waiting[pull.group] -= 1
                size = sum(block.missing_bytes for block in pull.blocks)
                self.read_bytes[pull.group] = self.read_bytes.get(pull.group, 0) + size
            self.reads.were_read(pulls)
            assert self.reads.take_due() == pulls
            if pulls:
                self.now_ms += 1
            else:
                next_ms = self.reads.next_read_ms(self.now_ms)
                assert next_ms is not None
                assert next_ms > self.now_ms, "it would be asked again at once"
                self.now_ms = next_ms


def test_a_group_reads_as_many_bytes_a_second_as_it_may() -> None:
    reader = Reader()
    reader.run(20_000, grows=True, wants=("g",))
    assert 1_980 * KB <= reader.read_bytes["g"] <= 2_030 * KB


def test_groups_share_the_limit_of_all_of_them() -> None:
    reader = Reader()
    reader.run(20_000, grows=True, wants=("a", "b", "c"))
    assert sum(reader.read_bytes.values()) <= 3_080 * KB
    assert min(reader.read_bytes.values()) >= 950 * KB


def test_a_group_at_its_limit_does_not_hold_up_another() -> None:
    reader = Reader()
    for _ in range(20):
        reader.reads.hold(cold_pull("greedy", 100 * KB))
    reader.reads.take(0, 0)
    reader.reads.take(1, 1)
    assert reader.reads.take(900, 2) == []
    reader.reads.hold(cold_pull("modest", KB))
    taken = reader.reads.take(901, 3)
    assert [pull.group for pull in taken] == ["modest"]


def test_nothing_is_limited_while_nobody_writes() -> None:
    reader = Reader()
    reader.run(2_000, grows=False, wants=("g",))
    assert reader.read_bytes["g"] > 10_000 * KB


def test_zero_is_no_limit() -> None:
    reader = Reader(BrokerConfig(cg_cold_read_threshold=0, global_cold_read_threshold=0))
    reader.run(2_000, grows=True, wants=("g",))
    assert reader.read_bytes["g"] > 10_000 * KB


def test_time_that_nobody_used_is_not_saved() -> None:
    reader = Reader()
    reader.run(1_000, grows=True, wants=("g",))
    before = reader.read_bytes["g"]
    reader.now_ms = 100_000
    reader.reads.take(reader.now_ms, reader.log_end + 1)
    reader.log_end += 1
    reader.run(101_000, grows=True, wants=("g",))
    assert reader.read_bytes["g"] - before <= 130 * KB


def test_limits_count_from_the_first_write_on() -> None:
    """Bytes that were read before the first write do not count."""
    reads = ColdReads(LIMITED)
    reads.take(0, 0)
    for _ in range(3):
        reads.hold(cold_pull(size=1000 * KB))
        assert len(reads.take(5_000, 0)) == 1
    for _ in range(3):
        reads.hold(cold_pull(size=50 * KB))
    assert len(reads.take(5_001, 1)) == 1
    assert reads.next_read_ms(5_001) == 5_491
    assert reads.take(5_490, 2) == []
    assert len(reads.take(5_491, 3)) == 1
    assert reads.next_read_ms(5_491) == 5_991
    assert len(reads.take(6_492, 3)) == 1, "nobody has written for a second"


def test_a_pull_is_due_when_it_was_read_or_at_its_deadline() -> None:
    reads = ColdReads(LIMITED)
    first, second = cold_pull(size=200 * KB), cold_pull(size=200 * KB, deadline_ms=900)
    reads.take(0, 0)
    reads.take(0, 1)
    for pull in (first, second):
        assert reads.hold(pull)
    assert reads.take(1, 2) == [first]
    reads.were_read([first])
    assert reads.take_due() == [first]
    assert first.is_read
    reads.expire(900)
    assert reads.take_due() == [second]
    assert not second.is_read
    assert reads.next_read_ms(900) is None
    assert reads.take(60_000, 1) == []


def test_a_pull_that_came_is_noted_until_the_next_look() -> None:
    reads = ColdReads(LIMITED)
    reads.hold(cold_pull())
    seen = [reads.has_new]
    reads.take(0, 0)
    assert [*seen, reads.has_new] == [True, False]


def test_a_connection_that_ended_is_read_for_no_more() -> None:
    reads = ColdReads(LIMITED)
    gone, there = FakeChannel(), FakeChannel()
    pulls = [cold_pull(channel=gone), cold_pull(channel=gone), cold_pull(channel=there)]
    for pull in pulls[:2]:
        reads.hold(pull)
    reading = reads.take(0, 0)
    assert reading == pulls[:2]
    reads.hold(cold_pull(channel=gone))
    reads.hold(pulls[2])
    reads.channel_closed(gone)
    reads.were_read(reading)
    assert not reads.has_due
    assert reads.take(1, 0) == [pulls[2]]
    assert len(reads) == 1


def test_what_waits_is_bounded() -> None:
    reads = ColdReads(LIMITED, limits=Limits(parked_max=3))
    assert [reads.hold(cold_pull()) for _ in range(5)] == [True] * 3 + [False] * 2


def test_a_block_that_was_just_read_costs_nothing() -> None:
    reads = ColdReads(LIMITED)
    reads.take(0, 0)
    for group in ("g", "g", "h"):
        reads.hold(cold_pull(group, 200 * KB, place=-1))
    reads.hold(cold_pull("g", 200 * KB, place=-2))
    assert [pull.group for pull in reads.take(1, 1)] == ["g", "h", "g"]
    assert reads.read_bytes_total == 200 * KB
    reads.hold(cold_pull("h", 200 * KB, place=-1))
    assert [pull.group for pull in reads.take(100, 2)] == ["h"]
    assert reads.read_bytes_total == 200 * KB
    assert reads.take(1_999, 3) == []
    assert [pull.group for pull in reads.take(2_001, 4)] == ["g"]
    reads.hold(cold_pull("h", 200 * KB, place=-1))
    assert len(reads.take(60_000, 5)) == 1
    assert reads.read_bytes_total == 600 * KB, "it may have left memory in the meantime"


def test_a_batch_ends_at_a_megabyte() -> None:
    reads = ColdReads(BrokerConfig(cg_cold_read_threshold=0, global_cold_read_threshold=0))
    for _ in range(30):
        reads.hold(cold_pull(size=100 * KB))
    assert len(reads.take(0, 0)) == 11
    assert len(reads.take(0, 0)) == 11


def test_what_a_batch_reads_anyway_answers_all_who_wait_for_it() -> None:
    reads = ColdReads(BrokerConfig(cg_cold_read_threshold=0, global_cold_read_threshold=0))
    for place in (-1, -1, -2, -1):
        reads.hold(cold_pull(size=2000 * KB, place=place))
    assert [len(reads.take(0, 0)) for _ in range(2)] == [2, 2]


def test_the_journal_is_told_once_a_minute_at_most() -> None:
    reader = Reader()
    reader.run(50_000, grows=True, wants=("g",))
    assert reader.events.names() == ["cold_reads_began"]
    reader.now_ms = 200_000
    reader.run(201_000, grows=True, wants=("g",))
    assert reader.events.names() == ["cold_reads_began"] * 2


def test_queues_that_were_read_from_disk_are_known_for_ten_seconds_and_no_more_than_some() -> None:
    reads = ColdReads(LIMITED)
    reads.hold(cold_pull("g"))
    assert not reads.has_read("g", "T", 0, 0)
    reads.take(5, 0)
    ages_ms = (0, 9_999, 10_000)
    assert [reads.has_read("g", "T", 0, 5 + age_ms) for age_ms in ages_ms] == [True, True, False]
    assert not reads.has_read("g", "T", 1, 5)
    for number in range(9_000):
        reads.hold(cold_pull(f"g{number}", 0))
        reads.take(6, 0)
    assert not reads.has_read("g", "T", 0, 6)
    assert reads.has_read("g8999", "T", 0, 6)


def test_groups_that_read_no_more_are_forgotten() -> None:
    reads = ColdReads(LIMITED)
    for number in range(10_000):
        reads.hold(cold_pull(f"g{number}", KB))
        reads.take(number * 100, 0)
    assert len(reads._paces) < 1_000
