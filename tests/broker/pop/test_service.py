from __future__ import annotations

import json

import pytest
from support.handlers.popping import GROUP, INVISIBLE_MS, RETRY, PopSide, bodies_of
from support.handlers.sending import STORE_HOST, at

from trioha.broker.pop import service
from trioha.broker.pop.live_records import LiveRecords
from trioha.store.interface import PutMessage
from trioha.wire.codes import Perm, ResponseCode
from trioha.wire.names import REVIVE_GROUP
from trioha.wire.properties import encode_properties

LOG = "rmq_sys_REVIVE_LOG_DefaultCluster"


def progress(side: PopSide, queue_id: int = 0) -> int:
    return side.core.offsets.query(REVIVE_GROUP, LOG, queue_id)


def test_the_log_is_read_from_its_progress_on() -> None:
    side = PopSide(queues=1)
    for i in range(20):
        side.put(str(i))
        (message,) = side.pop()
        assert side.ack(message) == 0
    side.put("open")
    side.pop()
    side.wait(30_000)
    assert progress(side) == 39
    side.make_safe()
    side = side.after_power_loss(side.core.offsets.encode())
    assert len(side.core.pops.in_flight) == 1
    side.wait(30_000)
    assert bodies_of(side.pop()) == ["open"]


def test_a_long_log_is_made_short_by_copies_of_what_is_still_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "SPAN_MAX", 20)
    side = PopSide(queues=1)
    side.put("old")
    (old,) = side.pop(invisibleTime=10_000_000)
    for i in range(30):
        side.put(str(i))
        (message,) = side.pop()
        side.ack(message)
    assert side.core.pops.live.span > 20
    side.wait(30_000)
    assert side.core.pops.live.span == 1
    assert progress(side) > 50
    side.make_safe()
    side = side.after_power_loss(side.core.offsets.encode())
    assert side.ack(old) == 0
    assert len(side.core.pops.in_flight) == 0


def test_a_message_in_flight_survives_the_loss_of_its_offset() -> None:
    """The checkpoint was on disk, and the table of offsets was not."""
    side = PopSide(queues=1)
    for body in "abc":
        side.put(body)
    a, b, _ = side.pop()
    offsets = side.core.offsets.encode()
    side.ack(a)
    side.make_safe()
    side = side.after_power_loss(offsets)
    assert side.pop() == []
    assert side.ack(b) == 0
    side.wait(60_000)
    assert bodies_of(side.pop()) == ["c"]


def test_an_operator_who_moves_a_group_back_is_remembered_in_the_log() -> None:
    side = PopSide(queues=1)
    for body in "abc":
        side.put(body)
    for message in side.pop():
        side.ack(message)
    side.make_safe()
    side.core.offsets.commit(GROUP, "T", 0, 0)
    side.core.pops.note_moves(at())
    side.make_safe()
    side = side.after_power_loss(side.core.offsets.encode())
    side.now_ms += 1
    assert bodies_of(side.pop()) == ["a", "b", "c"]


def test_checkpoints_that_a_java_broker_wrote_into_other_queues_are_taken_over() -> None:
    side = PopSide(queues=1)
    for body in "ab":
        side.put(body)
    side.core.topics.create_internal(LOG, 8, Perm.READ | Perm.WRITE, at().wall_ms)
    checkpoint = {"so": 0, "pt": at().wall_ms, "it": 60_000, "bm": 0, "n": 2, "q": 0}
    checkpoint |= {"t": "T", "c": GROUP, "d": [0, 1], "bn": "broker-a", "ro": 0}  # type: ignore[dict-item]
    ack = {"ao": 1, "so": 0, "c": GROUP, "t": "T", "q": 0, "pt": at().wall_ms, "bn": "broker-a"}
    for tag, fields in (("ck", checkpoint), ("ack", ack), ("odd", {}), ("ck", {"d": "x"})):
        side.store.put_message(
            PutMessage(
                LOG,
                5,
                0,
                0,
                0,
                STORE_HOST,
                STORE_HOST,
                json.dumps(fields).encode(),
                encode_properties({"TAGS": tag}),
            ),
            at().wall_ms,
        )
    side.core.offsets.commit(GROUP, "T", 0, 2)
    side.core.deliveries.load()
    side.wait(59_999)
    assert side.pop() == []
    assert progress(side, 5) == 3
    side.wait(1)
    assert bodies_of(side.pop()) == ["a"]


def test_a_deleted_topic_takes_its_messages_in_flight_along() -> None:
    side = PopSide(queues=1)
    side.put("a")
    side.pop()
    side.make_safe()
    side.core.offsets.delete_topic("T")
    side.now_ms += 1
    side.pop()
    assert len(side.core.pops.in_flight) == 1  # what is there is popped from the start
    side.core.topics.delete("T", at().wall_ms)
    side.wait(60_000)
    assert side.bodies(f"%RETRY%{GROUP}_T") == []
    assert len(side.core.pops.in_flight) == 0


def test_progress_is_the_first_record_that_is_needed() -> None:
    live = LiveRecords()
    assert (live.progress, live.first()) == (0, None)
    for offset, key in enumerate("abc"):
        live.put(key, offset)
    live.appended(3)
    assert live.drop("b")
    assert (live.progress, live.span, len(live)) == (0, 4, 2)
    live.put("a", 4)
    assert live.first() == (2, "c")
    assert live.drop("c")
    assert not live.drop("c")
    assert (live.progress, live.drop("a"), live.progress) == (4, True, 5)


def test_a_redelivery_that_was_rejected_halfway_is_not_begun_anew() -> None:
    side = PopSide(queues=1)
    for body in "abc":
        side.put(body)
    a, b, _ = side.pop()
    offsets = side.core.offsets.encode()
    side.ack(b)
    side.store.full_after = 1
    side.wait(INVISIBLE_MS)
    side.store.full_after = None
    # Its copy is in the retry topic: this one is over.
    assert side.ack(a) == ResponseCode.NO_MESSAGE
    assert side.bodies(RETRY) == ["a"]
    side.wait(10_000)
    assert side.bodies(RETRY) == ["a", "c"]
    side.make_safe()
    side = side.after_power_loss(offsets)
    assert len(side.core.pops.in_flight) == 0
    assert bodies_of(side.pop()) == ["a", "c"]


def test_a_redelivery_whose_end_the_store_rejects_is_ended_later() -> None:
    side = PopSide(queues=1)
    side.put("a")
    side.pop()
    offsets = side.core.offsets.encode()
    side.store.full_after = 1
    side.wait(INVISIBLE_MS)
    side.store.full_after = None
    side.wait(10_000)
    side.make_safe()
    side = side.after_power_loss(offsets)
    assert len(side.core.pops.in_flight) == 0
    assert side.bodies(RETRY) == ["a"]
