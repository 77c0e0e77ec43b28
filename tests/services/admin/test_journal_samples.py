"""Samples that the journal gets every ten seconds."""

from __future__ import annotations

import itertools
from random import Random

import trio
from support.handlers.sending import BORN_HOST, STORE_HOST, FakeChannel, FakeReplicas, at
from support.memory.store import MemoryStore
from trio.testing import MockClock

from trioha.broker.core import BrokerCore
from trioha.broker.offsets import SET_BACK_MAX
from trioha.config import BrokerConfig, BrokerRole
from trioha.services.admin.journal_samples import (
    LAGS_TOLD_MAX,
    OFFSETS_TOLD_MAX,
    JournalSamples,
)
from trioha.services.loop.clock import Clock
from trioha.store.interface import PutMessage
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import ResponseCode
from trioha.wire.names import REVIVE_GROUP
from trioha.wire.remoting_command import RemotingCommand

SYNC_MASTER = BrokerConfig(
    broker_ip1="127.0.0.1", listen_port=10911, broker_role=BrokerRole.SYNC_MASTER
)


class Bench:
    """A core on memory, its samples, and what they told."""

    def __init__(self, config: BrokerConfig = SYNC_MASTER) -> None:
        self.events = RecordedEvents()
        self.store = MemoryStore()
        self.replicas = FakeReplicas()
        self.clock = Clock.virtual()
        self.core = BrokerCore(
            config, self.store, self.replicas, self.events, Random(1), at(), lambda _: {}
        )
        self.samples = JournalSamples(self.core, self.store, self.clock, self.events)
        self.channel = FakeChannel()

    def put(self, queue_id: int = 0) -> None:
        message = PutMessage("T", queue_id, 0, 0, 1, BORN_HOST, STORE_HOST, b"x", b"")
        instant = self.clock.instant()
        outcome = self.core.pipeline.put(message, wait=True, instant=instant)
        if outcome.must_wait:
            self.core.pipeline.when_safe(
                outcome, instant, self.channel, RemotingCommand(ResponseCode.SUCCESS)
            )

    def ack(self) -> None:
        self.replicas.push2slave_max_offset = self.store.max_phy_offset
        self.core.on_acked(self.clock.now_ms())


async def test_waits_of_puts_add_up(mock_clock: MockClock) -> None:
    bench = Bench()
    for _ in range(3):
        bench.put()
    mock_clock.jump(0.005)
    bench.ack()
    bench.put()
    bench.ack()
    bench.samples.sample()
    (told,) = bench.events.of("sync_waits")
    assert [answer.code for answer in bench.channel.sent] == [ResponseCode.SUCCESS] * 4
    assert (told["puts"], told["waited_ms"], told["longest_ms"]) == (4, 15, 5)
    assert told["bins"] == [1, 0, 0, 3, *[0] * 12]
    assert (told["timeouts"], told["unavailable"]) == (0, 0)
    bench.samples.sample()
    assert len(bench.events.of("sync_waits")) == 1, "nothing more to tell"


async def test_a_sample_releases_nobody_and_an_ack_needs_no_sample(mock_clock: MockClock) -> None:
    bench = Bench()
    bench.put()
    bench.replicas.push2slave_max_offset = bench.store.max_phy_offset
    bench.samples.sample()
    assert bench.channel.sent == []
    bench.core.on_acked(bench.clock.now_ms())
    assert [answer.code for answer in bench.channel.sent] == [ResponseCode.SUCCESS]


async def test_timeouts_and_missing_slaves_are_counted(mock_clock: MockClock) -> None:
    bench = Bench()
    bench.put()
    bench.put()
    mock_clock.jump(3)
    bench.core.expire_waits(bench.clock.instant())
    bench.replicas.available = False
    bench.put()
    bench.samples.sample()
    (told,) = bench.events.of("sync_waits")
    assert (told["puts"], told["timeouts"], told["unavailable"]) == (0, 2, 1)


async def test_an_idle_broker_gives_a_sign_of_life_a_minute(autojump_clock: MockClock) -> None:
    bench = Bench()
    with trio.move_on_after(185):
        await bench.samples.run()
    # After 10, 70 and 130 seconds, and at the end.
    assert bench.events.names() == ["broker_progress"] * 4


async def test_refused_puts_are_counted(mock_clock: MockClock) -> None:
    bench = Bench()
    bench.store.writable = False
    bench.put()
    bench.samples.sample()
    (told,) = bench.events.of("broker_progress")
    assert (told["put_total"], told["refused_total"]) == (0, 1)


async def test_lag_is_told_when_it_changes(mock_clock: MockClock) -> None:
    bench = Bench()
    for queue_id in (0, 0, 0, 1):
        bench.put(queue_id)
    bench.core.offsets.commit("readers", "T", 0, 1)
    bench.core.offsets.commit("readers", "T", 1, 1)
    for _ in range(2):
        bench.samples.sample()
    (told,) = bench.events.of("consumer_lag")
    assert told == {
        "topic": "T",
        "group": "readers",
        "lag": 2,
        "consumer_offset": 2,
        "broker_offset": 4,
        "queues": 2,
        "worst_queue": 0,
        "offsets": [0, 1, 1, 1],
        "offsets_left": 0,
    }
    bench.core.offsets.commit("readers", "T", 0, 3)
    bench.samples.sample()
    assert [row["lag"] for row in bench.events.of("consumer_lag")] == [2, 0]


async def test_samples_in_order_tell_each_offset(mock_clock: MockClock) -> None:
    bench = Bench()
    offsets = bench.core.offsets
    for steps in ({0: 5, 1: 7}, {1: 8}, {0: 4, 1: 9}, {}, {0: 9, 1: 4}):
        for queue_id, offset in steps.items():
            offsets.commit("readers", "T", queue_id, offset)
        bench.samples.sample()
    told = [row["offsets"] for row in bench.events.of("consumer_lag")]
    # The last one has the same sum as the one before it.
    assert told == [[0, 5, 1, 7], [1, 8], [0, 4, 1, 9], [0, 9, 1, 4]]


async def test_a_sample_names_a_bounded_number_of_offsets(mock_clock: MockClock) -> None:
    bench = Bench()
    queues = 2 * OFFSETS_TOLD_MAX + 3
    for queue_id in range(queues):
        bench.core.offsets.commit("readers", "T", queue_id, queue_id + 1)
    told: dict[int, int] = {}
    left = []
    for _ in range(4):
        bench.samples.sample()
    for row in bench.events.of("consumer_lag"):
        offsets = row["offsets"]
        assert isinstance(offsets, list)
        assert len(offsets) <= 2 * OFFSETS_TOLD_MAX
        told |= dict(zip(offsets[::2], offsets[1::2], strict=True))
        left.append(row["offsets_left"])
    assert left == [OFFSETS_TOLD_MAX + 3, 3, 0]
    assert told == {queue_id: queue_id + 1 for queue_id in range(queues)}


async def test_progress_of_a_deleted_topic_is_not_told_again_and_again(
    mock_clock: MockClock,
) -> None:
    bench = Bench()
    for queue_id in (0, 1):
        bench.core.offsets.commit("readers", "T", queue_id, 3)
    bench.samples.sample()
    bench.core.offsets.delete_topic("T")
    bench.core.offsets.commit("readers", "T", 0, 1)
    for _ in range(3):
        bench.samples.sample()
    assert [row["offsets"] for row in bench.events.of("consumer_lag")] == [[0, 3, 1, 3], [0, 1]]


async def test_progress_that_moves_backwards_is_told(mock_clock: MockClock) -> None:
    bench = Bench()
    offsets = bench.core.offsets
    for group in ("readers", "others", REVIVE_GROUP):
        for queue_id, steps in ((0, (9, 4, 6, 2, 8)), (1, (5, 3)), (2, (1, 2))):
            for step in steps:
                offsets.commit(group, "T", queue_id, step)
    bench.samples.sample()
    bench.samples.sample()
    told = bench.events.of("progress_set_back")
    assert [(row["group"], row["queues"], row["others"]) for row in told] == [
        ("readers", [0, 9, 2, 1, 5, 3], 0),
        ("others", [0, 9, 2, 1, 5, 3], 0),
    ]
    for queue_id in range(SET_BACK_MAX + 2):
        offsets.commit("readers", "T", queue_id, 20)
        offsets.commit("readers", "T", queue_id, 10)
    bench.samples.sample()
    last = bench.events.of("progress_set_back")[-1]
    assert isinstance(last["queues"], list)
    assert (len(last["queues"]), last["others"]) == (3 * SET_BACK_MAX, 2)


async def test_many_groups_take_turns(mock_clock: MockClock) -> None:
    bench = Bench()
    groups = [f"group-{number}" for number in range(LAGS_TOLD_MAX * 2 + 5)]
    for group in groups:
        bench.core.offsets.commit(group, "T", 0, 1)
    counts = []
    for _ in range(4):
        bench.samples.sample()
        counts.append(len(bench.events.of("consumer_lag")))
    steps = [b - a for a, b in itertools.pairwise([0, *counts])]
    assert steps == [LAGS_TOLD_MAX, LAGS_TOLD_MAX, 5, 0]
    assert {row["group"] for row in bench.events.of("consumer_lag")} == set(groups)
