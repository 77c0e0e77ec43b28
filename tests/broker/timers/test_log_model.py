"""Whatever happens, and wherever the log is cut: none is lost or early, and none comes twice unless
the end of the log was lost."""

from __future__ import annotations

from collections import Counter

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.handlers.sending import ProduceSide
from support.handlers.timers import delivered, handle_in, recall, run_until, timer

from trioha.config import BrokerConfig
from trioha.wire.names import TIMER_TOPIC
from trioha.wire.properties import decode_properties

CONFIG = attrs.evolve(BrokerConfig(), file_reserved_time=1, timer_max_delay_sec=365 * 86_400)


class TimerMachine(RuleBasedStateMachine):
    @initialize(capacity=st.integers(1, 5))
    def begin(self, capacity: int) -> None:
        self.capacity = capacity
        self.side = ProduceSide(CONFIG, timer_capacity=capacity)
        self.now_ms = 0
        self.sent = 0
        self.due: dict[str, int] = {}
        self.handles: dict[str, str] = {}
        self.recalled: Counter[str] = Counter()
        self.was_cut = False
        """Whether delivered messages may come again."""

    @rule(delay_ms=st.sampled_from([1, 900, 1_000, 1_001, 5_000, 3_600_000, 30_000_000]))
    def send(self, delay_ms: int) -> None:
        key = f"K{self.sent}"
        self.sent += 1
        answer = timer(self.side, key, now_ms=self.now_ms, TIMER_DELAY_MS=delay_ms)
        assert answer.code == 0
        self.due[key] = self.now_ms + delay_ms
        self.handles[key] = handle_in(answer)

    @precondition(lambda self: self.due)
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.due)))
        answer = recall(self.side, self.handles[key], now_ms=self.now_ms)
        if answer.code == 0:
            assert self.now_ms <= self.due[key]
            self.recalled[key] += 1

    @rule(later_ms=st.sampled_from([1, 500, 1_000, 10_000, 3_600_000]), is_flushed=st.booleans())
    def time_passes(self, later_ms: int, is_flushed: bool) -> None:
        begin, self.now_ms = self.now_ms, self.now_ms + later_ms
        run_until(self.side, self.now_ms, begin, is_flushed=is_flushed)
        if is_flushed:
            self.side.store.flush()

    @rule(behind_ms=st.sampled_from([1, 2_000]))
    def nobody_delivers_for_a_while(self, behind_ms: int) -> None:
        self.now_ms += behind_ms

    @rule(cut=st.integers(0, 3))
    def another_takes_over(self, cut: int) -> None:
        """The new master's log lacks the last `cut` records, though none that was flushed."""
        old = self.side
        messages = old.store.messages
        kept = len(messages)
        while cut and kept and messages[kept - 1][1].phy_offset >= old.store.flushed_offset:
            kept, cut = kept - 1, cut - 1
        new = ProduceSide(CONFIG, timer_capacity=self.capacity)
        for message, result in messages[:kept]:
            new.store.put_message(message, result.store_timestamp)
        new.store.flush()
        for topic_and_group, queues in old.offsets.table.items():
            topic, _, group = topic_and_group.partition("@")
            for queue_id, offset in queues.items():
                new.offsets.commit(group, topic, queue_id, offset)
        new.timers.load()
        self.side = new
        self.was_cut = self.was_cut or kept < len(messages)
        for message, _ in messages[kept:]:
            properties = decode_properties(message.properties)
            key = properties["UNIQ_KEY"]
            if message.topic != TIMER_TOPIC or "TIMER_ROLL_TIMES" in properties:
                continue
            if "TIMER_DEL_UNIQKEY" in properties:
                self.recalled[key] -= 1
            else:
                del self.due[key]

    @invariant()
    def what_is_due_is_delivered_and_nothing_else(self) -> None:
        if not hasattr(self, "side"):
            return
        seen = delivered(self.side)
        for key, when_ms in seen:
            assert when_ms >= self.due[key]
        assert self.side.timers.pending_count >= 0

    def teardown(self) -> None:
        if not hasattr(self, "side"):
            return
        begin, self.now_ms = self.now_ms, self.now_ms + 40_000_000
        run_until(self.side, self.now_ms, begin)
        counts = Counter(key for key, _ in delivered(self.side))
        for key in self.due:
            if self.recalled[key] > 0:
                assert not counts[key], f"{key} was taken back"
            else:
                assert counts[key] >= 1, f"{key} is lost"
                assert counts[key] == 1 or self.was_cut, f"{key} came {counts[key]} times"
        assert set(counts) <= self.due.keys()
        assert self.side.timers.pending_count == 0
        assert self.side.timers.begin == self.side.timers.end


TestTimers = TimerMachine.TestCase
TestTimers.settings = settings(max_examples=60, stateful_step_count=25)
