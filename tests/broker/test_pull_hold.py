from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.handlers.sending import FakeChannel

from trioha.broker.filter import tag_filter
from trioha.broker.parking import Limits
from trioha.broker.pull_hold import ParkedPull, PullHold
from trioha.wire.codes import RequestCode
from trioha.wire.java_hash import string_hash
from trioha.wire.remoting_command import RemotingCommand

TAG_A, TAG_B = string_hash("TagA"), string_hash("TagB")


def parked(
    channel: FakeChannel | None = None,
    *,
    offset: int = 10,
    queue_id: int = 0,
    tags: str = "*",
    deadline_ms: int = 15_000,
) -> ParkedPull:
    return ParkedPull(
        channel or FakeChannel(),
        RemotingCommand(RequestCode.PULL_MESSAGE),
        "T",
        queue_id,
        offset,
        tag_filter(tags),
        deadline_ms,
    )


def test_message_behind_the_offset_makes_the_pull_due() -> None:
    hold = PullHold()
    pull = parked()
    assert hold.hold(pull)
    hold.on_dispatch("T", 0, 10, [0])  # the offset the client has already
    assert not hold.has_due
    hold.on_dispatch("T", 0, 11, [0])
    assert hold.take_due() == [pull]
    assert len(hold) == 0


def test_other_queues_and_topics_do_not_wake() -> None:
    hold = PullHold()
    hold.hold(parked())
    hold.on_dispatch("T", 1, 11, [0])
    hold.on_dispatch("U", 0, 11, [0])
    assert not hold.has_due


def test_message_the_filter_refuses_does_not_wake() -> None:
    hold = PullHold()
    pull = parked(tags="TagA")
    hold.hold(pull)
    hold.on_dispatch("T", 0, 11, [TAG_B])
    assert not hold.has_due
    hold.on_dispatch("T", 0, 12, [TAG_A])
    assert hold.take_due() == [pull]


def test_deadline_is_exact() -> None:
    hold = PullHold()
    late, early = parked(deadline_ms=2_000), parked(deadline_ms=1_000)
    hold.hold(late)
    hold.hold(early)
    assert hold.next_deadline_ms == 1_000
    hold.expire(999)
    assert not hold.has_due
    hold.expire(1_000)
    assert hold.take_due() == [early]
    assert hold.next_deadline_ms == 2_000


def test_nothing_parked_has_no_deadline() -> None:
    hold = PullHold()
    assert hold.next_deadline_ms is None
    hold.hold(parked(deadline_ms=5))
    hold.expire(5)
    hold.take_due()
    assert hold.next_deadline_ms is None


def test_pull_is_answered_once_by_message_and_deadline_together() -> None:
    hold = PullHold()
    pull = parked(deadline_ms=1_000)
    hold.hold(pull)
    hold.on_dispatch("T", 0, 11, [0])
    hold.on_dispatch("T", 0, 12, [0])
    hold.expire(1_000)
    assert hold.take_due() == [pull]
    hold.expire(9_000)
    hold.on_dispatch("T", 0, 13, [0])
    assert hold.take_due() == []


def test_all_pulls_of_a_queue_wake_in_the_order_they_came() -> None:
    hold = PullHold()
    pulls = [parked() for _ in range(5)]
    for pull in pulls:
        hold.hold(pull)
    hold.on_dispatch("T", 0, 11, [0])
    assert hold.take_due() == pulls


def test_closed_channel_takes_its_pulls_along() -> None:
    hold = PullHold()
    gone, stays = FakeChannel(), FakeChannel()
    due, waiting, other = parked(gone), parked(gone, queue_id=1), parked(stays)
    for pull in (due, waiting, other):
        hold.hold(pull)
    hold.on_dispatch("T", 0, 11, [0])
    hold.channel_closed(gone)
    assert hold.take_due() == [other]
    hold.on_dispatch("T", 1, 11, [0])
    assert hold.take_due() == []
    assert len(hold) == 0
    hold.channel_closed(gone)  # again does no harm


def test_count_is_bounded_in_all() -> None:
    hold = PullHold(limits=Limits(parked_max=2))
    assert hold.hold(parked())
    assert hold.hold(parked())
    assert not hold.hold(parked())
    hold.on_dispatch("T", 0, 11, [0])
    hold.take_due()
    assert hold.hold(parked())


def test_count_is_bounded_per_channel() -> None:
    hold = PullHold(limits=Limits(parked_per_channel_max=1))
    channel = FakeChannel()
    assert hold.hold(parked(channel))
    assert not hold.hold(parked(channel))
    assert hold.hold(parked())


def test_refused_pull_leaves_no_trace() -> None:
    hold = PullHold(limits=Limits(parked_max=0))
    channel = FakeChannel()
    assert not hold.hold(parked(channel))
    hold.channel_closed(channel)
    assert hold.next_deadline_ms is None


def test_places_of_answered_pulls_do_not_pile_up() -> None:
    hold = PullHold()
    for _ in range(1_000):
        hold.hold(parked())
        hold.on_dispatch("T", 0, 11, [0])
        hold.take_due()
    assert len(hold._heap) < 100


class HoldMachine(RuleBasedStateMachine):
    """Whatever happens, each pull is handed over once or dropped with its channel."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = PullHold()
        self.channels = [FakeChannel() for _ in range(3)]
        self.now_ms = 0
        self.waiting: set[ParkedPull] = set()
        self.taken: set[ParkedPull] = set()

    @rule(
        channel=st.integers(0, 2),
        queue_id=st.integers(0, 1),
        offset=st.integers(0, 3),
        patience_ms=st.integers(0, 20),
        tags=st.sampled_from(["*", "TagA"]),
    )
    def park(self, channel: int, queue_id: int, offset: int, patience_ms: int, tags: str) -> None:
        pull = parked(
            self.channels[channel],
            offset=offset,
            queue_id=queue_id,
            tags=tags,
            deadline_ms=self.now_ms + patience_ms,
        )
        assert self.hold.hold(pull)
        self.waiting.add(pull)

    @rule(
        queue_id=st.integers(0, 1),
        max_offset=st.integers(0, 5),
        tags_code=st.sampled_from([TAG_A, TAG_B]),
    )
    def dispatch(self, queue_id: int, max_offset: int, tags_code: int) -> None:
        self.hold.on_dispatch("T", queue_id, max_offset, [tags_code])
        for pull in self.hold.take_due():
            assert pull.queue_id == queue_id
            assert pull.offset < max_offset
            self.take(pull)

    @rule(step_ms=st.integers(0, 10))
    def wait(self, step_ms: int) -> None:
        self.now_ms += step_ms
        self.hold.expire(self.now_ms)
        for pull in self.hold.take_due():
            assert pull.deadline_ms <= self.now_ms
            self.take(pull)
        assert all(pull.deadline_ms > self.now_ms for pull in self.waiting)

    @rule(channel=st.integers(0, 2))
    def close(self, channel: int) -> None:
        self.hold.channel_closed(self.channels[channel])
        self.waiting = {p for p in self.waiting if p.channel is not self.channels[channel]}

    def take(self, pull: ParkedPull) -> None:
        assert pull not in self.taken
        self.taken.add(pull)
        self.waiting.remove(pull)

    @invariant()
    def tables_agree(self) -> None:
        assert len(self.hold) == len(self.waiting)
        expected = min((pull.deadline_ms for pull in self.waiting), default=None)
        assert self.hold.next_deadline_ms == expected


TestHoldMachine = HoldMachine.TestCase
TestHoldMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
