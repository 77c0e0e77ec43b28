"""Whatever happens, and wherever the log is cut: the table that is read anew is the one of before.

Each step runs on a broker; now and then it is replaced by one that knows the log, or a beginning of
it, and offsets of an earlier time. Then no message is committed twice, and none is lost.
"""

from __future__ import annotations

from collections import Counter

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.handlers.sending import WALL_MS, ProduceSide
from support.handlers.transactions import COMMIT, ROLL_BACK, end, half, prepare, run_checks, stored

from trioha.config import BrokerConfig
from trioha.store.interface import PutResult
from trioha.wire.names import TRANS_GROUP, TRANS_HALF_TOPIC
from trioha.wire.properties import decode_properties

CONFIG = attrs.evolve(
    BrokerConfig(),
    transaction_time_out=1_000,
    transaction_check_interval=2_000,
    transaction_check_max=100,
)


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.side = ProduceSide(CONFIG)
        self.now_ms = 0
        self.places: dict[str, PutResult] = {}
        # Outcomes by key: what was asked of the log that counts.
        self.wanted: dict[str, int] = {}

    @rule(immune=st.booleans())
    def send(self, immune: bool) -> None:
        key = f"K{len(self.places)}"
        more = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"} if immune else {}
        self.places[key] = prepare(self.side, half(key, more=more))

    @precondition(lambda self: self.places)
    @rule(data=st.data(), outcome=st.sampled_from([COMMIT, ROLL_BACK]))
    def end_one(self, data: st.DataObject, outcome: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.places)))
        response = end(self.side, self.places[key], outcome, now_ms=self.now_ms)
        assert (response.code == 0) == (key not in self.wanted), response.remark
        self.wanted.setdefault(key, outcome)

    @rule(later_ms=st.sampled_from([500, 3_000, 6_000]), flush=st.booleans())
    def time_passes(self, later_ms: int, flush: bool) -> None:
        self.now_ms += later_ms
        self.side.checks.next_deadline(WALL_MS + self.now_ms)
        if flush:
            self.side.store.flush()
        run_checks(self.side, self.now_ms)

    @rule(cut=st.integers(0, 3))
    def another_takes_over(self, cut: int) -> None:
        """The new master's log lacks the last `cut` records, though none that was flushed."""
        old = self.side
        messages = old.store.messages
        kept = len(messages)
        while cut and kept and messages[kept - 1][1].phy_offset >= old.store.flushed_offset:
            kept, cut = kept - 1, cut - 1
        new = ProduceSide(CONFIG)
        for message, result in messages[:kept]:
            again = new.store.put_message(message, result.store_timestamp)
            assert again.phy_offset == result.phy_offset
        new.store.flush()
        for topic_and_group, queues in old.offsets.table.items():
            topic, _, group = topic_and_group.partition("@")
            new.offsets.commit(group, topic, 0, queues[0])
        new.transactions.load()
        new.checks.begin()
        self.side = new
        self.forget_what_was_cut()

    def forget_what_was_cut(self) -> None:
        end_offset = self.side.store.max_phy_offset
        self.places = {
            key: place for key, place in self.places.items() if place.end_offset <= end_offset
        }
        origins = {copy.origin for copy in self.side.transactions.pending}
        committed = self.committed()
        for key, place in self.places.items():
            if place.queue_offset in origins:
                assert key not in committed, "it could be committed again"
                self.wanted.pop(key, None)
            else:
                assert key in self.wanted, "it was finished by nobody"
        self.wanted = {key: how for key, how in self.wanted.items() if key in self.places}

    def committed(self) -> Counter[str]:
        return Counter(
            decode_properties(message.properties)["UNIQ_KEY"] for message in stored(self.side, "T")
        )

    @invariant()
    def each_is_committed_once_and_only_if_asked(self) -> None:
        if not hasattr(self, "side"):
            return
        wanted = {key for key, how in self.wanted.items() if how == COMMIT}
        assert self.committed() == Counter(wanted)
        open_ones = {copy.origin for copy in self.side.transactions.pending}
        assert open_ones == {
            place.queue_offset for key, place in self.places.items() if key not in self.wanted
        }
        progress = self.side.offsets.query(TRANS_GROUP, TRANS_HALF_TOPIC, 0)
        assert progress <= self.side.store.max_offset_in_queue(TRANS_HALF_TOPIC, 0)


TestLog = LogMachine.TestCase
