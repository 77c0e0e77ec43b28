from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.handlers.sending import BORN_HOST, STORE_HOST, FakeChannel, FakeReplicas, at
from support.memory.store import MemoryStore
from support.stores.small import batch_of

from trioha.broker.put_message import PutOutcome, PutPipeline, remark_of
from trioha.config import BrokerConfig, BrokerRole, FlushDiskType
from trioha.remoting.channel import Instant
from trioha.store.interface import PutMessage
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

OK = ResponseCode.SUCCESS
FLUSH_DISK = ResponseCode.FLUSH_DISK_TIMEOUT
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
FLUSH_SLAVE = ResponseCode.FLUSH_SLAVE_TIMEOUT

ASYNC = BrokerConfig()
SYNC_FLUSH = attrs.evolve(ASYNC, flush_disk_type=FlushDiskType.SYNC_FLUSH)
SYNC_MASTER = attrs.evolve(ASYNC, broker_role=BrokerRole.SYNC_MASTER)
BOTH = attrs.evolve(SYNC_FLUSH, broker_role=BrokerRole.SYNC_MASTER)


def message(body: bytes = b"hello", queue_id: int = 0) -> PutMessage:
    return PutMessage("T", queue_id, 0, 0, 1, BORN_HOST, STORE_HOST, body, b"")


def end_of(outcome: PutOutcome) -> int:
    assert outcome.result is not None
    return outcome.result.end_offset


class Bench:
    """A pipeline, its store, its slaves, and the codes that were told."""

    def __init__(self, config: BrokerConfig, *, waiters_max: int = 100) -> None:
        self.store = MemoryStore()
        self.replicas = FakeReplicas()
        self.pipeline = PutPipeline(self.store, config, self.replicas, waiters_max=waiters_max)
        self.told: list[ResponseCode] = []

    def put(
        self,
        instant: Instant | None = None,
        *,
        wait: bool = True,
        body: bytes = b"hello",
        on_done: Callable[[ResponseCode], None] | None = None,
    ) -> PutOutcome:
        instant = at() if instant is None else instant
        outcome = self.pipeline.put(message(body), wait=wait, instant=instant)
        if outcome.must_wait:
            self.wait(outcome, instant, on_done or self.told.append)
        elif outcome.is_stored:
            self.told.append(outcome.code)
        return outcome

    def wait(
        self, outcome: PutOutcome, instant: Instant, on_done: Callable[[ResponseCode], None]
    ) -> None:
        channel = FakeChannel(on_send=lambda response: on_done(ResponseCode(response.code)))
        self.pipeline.when_safe(outcome, instant, channel, RemotingCommand(ResponseCode.SUCCESS))

    def flush(self, now_ms: int = 0) -> None:
        self.pipeline.on_flushed(self.store.flush(), now_ms)

    def times(self) -> tuple[list[int], int]:
        """Count of puts in each of RocketMQ's ranges, and the longest time."""
        times = self.pipeline.put_times(self.store.statistics().put_total)
        return times.ranges(), times.longest_ms

    def ack(self, offset: int | None = None, now_ms: int = 0) -> None:
        end = self.store.max_phy_offset if offset is None else offset
        self.replicas.push2slave_max_offset = end
        self.pipeline.release_acknowledged(now_ms)


def test_async_master_answers_at_once() -> None:
    bench = Bench(ASYNC)
    outcome = bench.put()
    assert outcome.code is OK
    assert not outcome.must_wait
    assert bench.replicas.asked == []
    assert bench.pipeline.next_deadline_ms is None


def test_sync_flush_waits_for_the_disk() -> None:
    bench = Bench(SYNC_FLUSH)
    bench.put()
    assert bench.told == []
    assert bench.pipeline.has_flush_waiters
    bench.flush()
    assert bench.told == [OK]
    assert not bench.pipeline.has_flush_waiters


def test_disk_too_slow_is_flush_disk_timeout_at_its_deadline() -> None:
    bench = Bench(SYNC_FLUSH)
    bench.put(at(100))
    assert bench.pipeline.next_deadline_ms == 5100
    bench.pipeline.expire(5099)
    assert bench.told == []
    bench.pipeline.expire(5100)
    assert bench.told == [FLUSH_DISK]
    assert len(bench.store.messages) == 1


def test_sync_master_waits_for_a_slave() -> None:
    bench = Bench(SYNC_MASTER)
    outcome = bench.put()
    assert bench.replicas.asked == [end_of(outcome)]
    assert bench.told == []
    bench.ack()
    assert bench.told == [OK]


def test_slave_too_slow_is_flush_slave_timeout_at_its_deadline() -> None:
    bench = Bench(SYNC_MASTER)
    bench.put(at(100))
    assert bench.pipeline.next_deadline_ms == 3100
    bench.pipeline.expire(3099)
    assert bench.told == []
    bench.pipeline.expire(3100)
    assert bench.told == [FLUSH_SLAVE]
    assert len(bench.store.messages) == 1


def test_no_slave_near_is_slave_not_available_at_once() -> None:
    """Fault D9: a SYNC_MASTER without a slave was silently asynchronous."""
    bench = Bench(SYNC_MASTER)
    bench.replicas.available = False
    outcome = bench.put()
    assert bench.told == [NO_SLAVE]
    assert not outcome.must_wait
    assert len(bench.store.messages) == 1


def test_who_waits_for_a_slave_that_is_lost_is_told_at_once() -> None:
    """RocketMQ lets them wait for slaveTimeout; the stock client has lost patience by then."""
    bench = Bench(SYNC_MASTER)
    bench.put()
    bench.put()
    bench.replicas.available = False
    bench.pipeline.on_slave_lost()
    assert bench.told == [NO_SLAVE, NO_SLAVE]
    assert len(bench.store.messages) == 2
    assert bench.pipeline.slave_unavailable_count == 2
    assert bench.pipeline.next_deadline_ms is None
    bench.ack()
    assert bench.told == [NO_SLAVE, NO_SLAVE]


def test_one_of_two_slaves_lost_leaves_puts_waiting_for_the_other() -> None:
    bench = Bench(SYNC_MASTER)
    bench.put()
    bench.pipeline.on_slave_lost()
    assert bench.told == []
    bench.ack()
    assert bench.told == [OK]


def test_a_lost_slave_does_not_make_an_answer_run_ahead_of_the_disk() -> None:
    bench = Bench(BOTH)
    bench.put()
    bench.replicas.available = False
    bench.pipeline.on_slave_lost()
    assert bench.told == []
    bench.flush()
    assert bench.told == [NO_SLAVE]


def test_only_puts_that_wait_make_the_log_s_growth_urgent() -> None:
    bench = Bench(SYNC_MASTER)
    bench.put(wait=False)
    urgent = [bench.pipeline.has_slave_waiters]
    bench.put()
    urgent.append(bench.pipeline.has_slave_waiters)
    bench.ack()
    urgent.append(bench.pipeline.has_slave_waiters)
    assert urgent == [False, True, False]


def test_wait_false_waits_for_nothing() -> None:
    bench = Bench(BOTH)
    bench.replicas.available = False
    bench.put(wait=False)
    assert bench.told == [OK]


@pytest.mark.parametrize(
    ("disk", "slave", "told"),
    [
        ("in time", "in time", OK),
        ("late", "in time", FLUSH_DISK),
        ("in time", "late", FLUSH_SLAVE),
        ("late", "late", FLUSH_SLAVE),
        ("in time", "absent", NO_SLAVE),
        ("late", "absent", NO_SLAVE),
    ],
)
def test_slave_status_overrides_disk_status(disk: str, slave: str, told: ResponseCode) -> None:
    bench = Bench(BOTH)
    bench.replicas.available = slave != "absent"
    bench.put()
    if disk == "in time":
        bench.flush()
    if slave == "in time":
        bench.ack()
    bench.pipeline.expire(10_000)
    assert bench.told == [told]
    assert len(bench.store.messages) == 1


def test_both_waits_end_in_either_order_and_tell_once() -> None:
    bench = Bench(BOTH)
    bench.put()
    bench.ack()
    assert bench.told == []
    bench.flush()
    bench.put()
    bench.flush()
    assert bench.told == [OK]
    bench.ack()
    assert bench.told == [OK, OK]
    bench.pipeline.expire(1 << 40)
    assert bench.told == [OK, OK]


def test_what_is_safe_already_is_told_at_once() -> None:
    bench = Bench(BOTH)
    outcome = bench.pipeline.put(message(), wait=True, instant=at())
    bench.store.flush()
    bench.replicas.push2slave_max_offset = bench.store.max_phy_offset
    bench.wait(outcome, at(), bench.told.append)
    assert bench.told == [OK]


def test_one_ack_releases_everybody_below_it_in_order() -> None:
    bench = Bench(SYNC_MASTER)
    order: list[int] = []
    outcomes = []

    def tell(number: int, code: ResponseCode) -> None:
        order.append(number)

    for number in range(5):
        outcomes.append(bench.put(on_done=partial(tell, number)))
    bench.ack(end_of(outcomes[2]))
    assert order == [0, 1, 2]
    bench.ack()
    assert order == [0, 1, 2, 3, 4]


def test_a_late_ack_finds_no_waiting_send() -> None:
    bench = Bench(SYNC_MASTER)
    bench.put()
    bench.pipeline.expire(10_000)
    bench.ack(now_ms=10_001)
    assert bench.told == [FLUSH_SLAVE]
    assert bench.pipeline.slave_waits.waited_ms == 0


def test_waits_that_an_ack_ends_are_counted() -> None:
    bench = Bench(SYNC_MASTER)
    bench.put(at(10))
    bench.put(at(12))
    bench.ack(now_ms=15)
    waits = bench.pipeline.slave_waits
    # All puts that one ack releases count with the wait of the oldest.
    assert (waits.waited_ms, waits.bins[3], sum(waits.bins)) == (10, 2, 2)


def test_a_put_without_a_wait_took_no_time() -> None:
    bench = Bench(ASYNC)
    bench.put()
    bench.put()
    assert bench.times() == ([2, *[0] * 12], 0)


def test_a_put_took_as_long_as_the_later_of_disk_and_slave() -> None:
    bench = Bench(BOTH)
    bench.put(at(0))
    bench.flush(now_ms=2)
    assert sum(bench.times()[0]) == 0  # it waits for the slave still
    bench.ack(now_ms=49)
    assert bench.times() == ([0, 0, 1, *[0] * 10], 49)
    bench.put(at(50))
    bench.ack(now_ms=52)
    assert sum(bench.times()[0]) == 1  # it waits for the disk still
    bench.flush(now_ms=150)
    assert bench.times() == ([0, 0, 1, 0, 1, *[0] * 8], 100)


def test_a_put_that_timed_out_took_until_its_deadline() -> None:
    bench = Bench(BOTH)
    bench.put(at(0))
    bench.pipeline.expire(2_999)
    assert sum(bench.times()[0]) == 0
    bench.pipeline.expire(3_000)  # slaveTimeout
    bench.pipeline.expire(5_000)  # syncFlushTimeout
    assert bench.times() == ([*[0] * 11, 1, 0], 5_000)


def test_a_put_that_a_lost_slave_or_the_end_of_a_role_answers_is_not_timed() -> None:
    bench = Bench(SYNC_MASTER)
    bench.put()
    bench.replicas.available = False
    bench.pipeline.on_slave_lost()
    bench.replicas.available = True
    bench.put()
    bench.pipeline.give_up()
    bench.put(wait=False)
    assert bench.times() == ([1, *[0] * 12], 0)


def test_a_batch_is_one_put() -> None:
    bench = Bench(SYNC_MASTER)
    outcome = bench.pipeline.put_batch(batch_of([message()] * 3), wait=True, instant=at(0))
    bench.wait(outcome, at(0), bench.told.append)
    bench.ack(now_ms=1)
    bench.pipeline.put_batch(batch_of([message()] * 3), wait=False, instant=at(1))
    assert bench.times() == ([1, 1, *[0] * 11], 1)


def test_partly_acknowledged_message_is_not_safe() -> None:
    bench = Bench(SYNC_MASTER)
    outcome = bench.put()
    bench.ack(end_of(outcome) - 1)
    assert bench.told == []


def test_small_puts_beside_large_ones_time_out_by_their_deadline_only() -> None:
    """Fault C6: RocketMQ ends a wait after five wake-ups, which busy neighbours use up."""
    bench = Bench(SYNC_MASTER, waiters_max=20_000)
    for turn in range(500):
        instant = at(turn)
        bench.put(instant)
        for _ in range(3):
            bench.pipeline.put(message(b"x" * 10_000), wait=False, instant=instant)
        # A slave that is always a little behind: wake-ups galore, none of them enough.
        bench.ack(bench.store.max_phy_offset - 100_000)
        bench.pipeline.expire(turn)
    assert FLUSH_SLAVE not in bench.told
    bench.ack()
    assert bench.told == [OK] * 500


def test_megabyte_message_times_out_by_its_deadline_only() -> None:
    """Fault C6."""
    bench = Bench(SYNC_MASTER)
    outcome = bench.put(body=b"x" * (1 << 20))
    end = end_of(outcome)
    for turn, offset in enumerate(range(0, end, 32768)):
        bench.ack(offset)
        bench.pipeline.expire(turn)
    assert bench.told == []
    bench.ack(end)
    assert bench.told == [OK]


def test_slave_takes_no_puts() -> None:
    bench = Bench(attrs.evolve(ASYNC, broker_role=BrokerRole.SLAVE))
    outcome = bench.put()
    assert outcome.code is ResponseCode.SERVICE_NOT_AVAILABLE
    assert not outcome.is_stored
    assert bench.store.messages == []
    assert "slave" in (outcome.remark or "")


def test_role_may_change_at_run_time() -> None:
    bench = Bench(ASYNC)
    bench.pipeline.role = BrokerRole.SLAVE
    assert not bench.put().is_stored
    bench.pipeline.role = BrokerRole.SYNC_MASTER
    assert bench.put().wait_slave


def test_full_disk_refuses_with_its_reason_and_recovers() -> None:
    bench = Bench(SYNC_MASTER)
    bench.store.writable = False
    outcome = bench.put()
    assert (outcome.code, outcome.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "disk full")
    assert not outcome.must_wait
    bench.store.writable = True
    assert bench.put().is_stored


def test_message_the_store_finds_illegal_is_message_illegal() -> None:
    bench = Bench(ASYNC)
    illegal = message()
    illegal.properties = b"x" * 32768
    outcome = bench.pipeline.put(illegal, wait=True, instant=at())
    assert outcome.code is ResponseCode.MESSAGE_ILLEGAL
    assert not outcome.is_stored


def test_batch_waits_for_its_last_message() -> None:
    bench = Bench(SYNC_MASTER)
    batch = batch_of([message(), message()])
    outcome = bench.pipeline.put_batch(batch, wait=True, instant=at())
    assert outcome.result is not None
    assert outcome.result.count == 2
    bench.wait(outcome, at(), bench.told.append)
    bench.ack(outcome.result.phy_offsets[1])
    assert bench.told == []
    bench.ack()
    assert bench.told == [OK]


def test_batch_is_refused_as_a_whole() -> None:
    bench = Bench(ASYNC)
    bench.store.writable = False
    batch = batch_of([message(), message()])
    outcome = bench.pipeline.put_batch(batch, wait=True, instant=at())
    assert outcome.code is ResponseCode.SERVICE_NOT_AVAILABLE
    assert outcome.result is None


def test_a_batch_is_refused_by_a_slave_and_by_a_master_with_too_many_waiters() -> None:
    slave = Bench(attrs.evolve(ASYNC, broker_role=BrokerRole.SLAVE))
    outcome = slave.pipeline.put_batch(batch_of([message()]), wait=False, instant=at())
    assert (outcome.code, outcome.result) == (ResponseCode.SERVICE_NOT_AVAILABLE, None)
    master = Bench(SYNC_MASTER, waiters_max=1)
    master.put()
    outcome = master.pipeline.put_batch(batch_of([message()]), wait=True, instant=at())
    assert (outcome.code, outcome.result) == (ResponseCode.SYSTEM_BUSY, None)
    assert slave.store.messages == []
    assert len(master.store.messages) == 1


def test_too_many_waiters_are_refused_before_anything_is_stored() -> None:
    bench = Bench(SYNC_MASTER, waiters_max=2)
    bench.put()
    bench.put()
    outcome = bench.put()
    assert outcome.code is ResponseCode.SYSTEM_BUSY
    assert (outcome.remark or "").startswith("[REJECTREQUEST]")
    assert len(bench.store.messages) == 2
    assert bench.put(wait=False).is_stored
    bench.ack()
    assert bench.put().is_stored


def test_giving_up_tells_everybody_that_the_outcome_is_unknown() -> None:
    """Fault D8: an unknown outcome that looks like a refusal is sent again."""
    bench = Bench(BOTH)
    bench.put()
    bench.flush()
    bench.put()
    bench.pipeline.give_up()
    assert bench.told == [FLUSH_SLAVE, FLUSH_SLAVE]
    assert bench.pipeline.waiter_count == 0


def test_codes_of_stored_messages_are_explained() -> None:
    assert remark_of(OK) is None
    for code in (FLUSH_DISK, NO_SLAVE, FLUSH_SLAVE):
        assert (remark_of(code) or "").startswith("stored, but")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.just("put"),
            st.just("flush"),
            st.just("ack"),
            st.integers(1, 4000),
        ),
        max_size=40,
    )
)
def test_every_put_is_told_once_and_never_after_its_deadline(steps: list[str | int]) -> None:
    bench = Bench(BOTH)
    now_ms = 0
    told: dict[int, tuple[ResponseCode, int]] = {}
    began: list[int] = []

    def tell(number: int, code: ResponseCode) -> None:
        assert number not in told
        told[number] = (code, now_ms)

    for step in steps:
        if step == "put":
            number = len(began)
            began.append(now_ms)

            bench.put(at(now_ms), on_done=partial(tell, number))
        elif step == "flush":
            bench.flush()
        elif step == "ack":
            bench.ack()
        elif isinstance(step, int):
            end_ms = now_ms + step
            while (deadline_ms := bench.pipeline.next_deadline_ms) is not None:
                if deadline_ms > end_ms:
                    break
                now_ms = deadline_ms
                bench.pipeline.expire(now_ms)
            now_ms = end_ms
    for number, began_ms in enumerate(began):
        if number in told:
            code, told_ms = told[number]
            assert told_ms - began_ms <= 5000
            if code is OK:
                assert told_ms - began_ms < 5000
        else:
            assert now_ms - began_ms < 5000
