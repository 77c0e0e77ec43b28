"""The revive log: records of topic ``rmq_sys_REVIVE_LOG_<cluster>``, as RocketMQ 5 reads them.

======  =============================================================  =======================
tag     tells                                                          in Java's broker
======  =============================================================  =======================
ck      a checkpoint: what one pop took from one queue                 PopCheckPoint
ack     one of its messages is acknowledged                            AckMsg
bAck    several of them are, or were put into the retry topic          BatchAckMsg
order   the batch of an ordered queue                                  consumerOrderInfo.json
mode    the request mode of a group in a topic                         messageRequestMode.json
======  =============================================================  =======================

Bodies are JSON with Java's names. Two fields of a checkpoint are ours and Java ignores them: `from`
and `no`, where the group's next pop would have begun before this one, and where it begins after it.
A checkpoint without messages (`n` 0) says that an operator has moved the group to `no`. Java's
broker passes over the tags ``order`` and ``mode``.

TIMER_DELIVER_MS is the time by which Java's broker decides that it has read far enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from trioha.broker.message_fields import tags_code
from trioha.broker.pop.in_flight import MESSAGES_MAX, CheckpointKey, PopCheckpoint
from trioha.broker.pop.order import OrderBatch, OrderKey
from trioha.errors import RemoteProtocolError
from trioha.store.interface import PutMessage
from trioha.wire import fastjson
from trioha.wire.codes import SysFlag
from trioha.wire.json_fields import Json, integer, integer_of, list_of, object_of, text
from trioha.wire.properties import TAGS, encode_properties
from trioha.wire.record import Record

CK, ACK, BATCH_ACK, ORDER, MODE = "ck", "ack", "bAck", "order", "mode"
REVIVE_QUEUES: Final = 8
"""Queues of the topic in Java's broker. This one writes into the first alone."""
_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
_READ_AHEAD_MS: Final = 1_000


@attrs.frozen
class Acked:
    """Messages of one checkpoint that are acknowledged."""

    key: CheckpointKey
    offsets: tuple[int, ...]


@attrs.frozen
class RequestMode:
    """The way in which the members of a group receive a topic: by pull or by pop."""

    topic: str
    group: str
    mode: str = "PULL"
    """PULL or POP."""
    pop_share_queue_num: int = 0
    """Number of neighbours in the group whose queues a member also pops from; 0: of all."""

    @property
    def key(self) -> tuple[str, str]:
        return self.topic, self.group


@attrs.frozen
class ReviveLogWriter:
    """Makes the records of one broker."""

    topic: str
    broker_name: str
    store_host: bytes

    def checkpoint(self, one: PopCheckpoint, wall_ms: int) -> PutMessage:
        key = one.key
        fields: dict[str, object] = {
            "bm": one.acked,
            "bn": self.broker_name,
            "c": key.group,
            "d": [offset - key.start_offset for offset in one.offsets],
            "it": one.invisible_ms,
            "n": len(one.offsets),
            "pt": key.pop_time,
            "q": key.queue_id,
            "so": key.start_offset,
            "t": key.topic,
        }
        if one.cursor_before >= 0 or not one.offsets:
            fields |= {"from": one.cursor_before, "no": one.next_offset}
        return self._message(CK, fields, one.due_ms, wall_ms)

    def acked(self, acked: Acked, due_ms: int, wall_ms: int) -> PutMessage:
        key = acked.key
        fields: dict[str, object] = {
            "bn": self.broker_name,
            "c": key.group,
            "pt": key.pop_time,
            "q": key.queue_id,
            "so": key.start_offset,
            "t": key.topic,
        }
        if len(acked.offsets) == 1:
            return self._message(ACK, fields | {"ao": acked.offsets[0]}, due_ms, wall_ms)
        return self._message(
            BATCH_ACK, fields | {"ao": -1, "aol": list(acked.offsets)}, due_ms, wall_ms
        )

    def order(self, batch: OrderBatch, wall_ms: int) -> PutMessage:
        fields = {
            "a": batch.attempt_id,
            "c": batch.key.group,
            "cm": batch.acked,
            "i": batch.invisible_ms,
            "o": list(batch.offsets),
            "oc": [list(pair) for pair in batch.times.items()],
            "ot": [list(pair) for pair in batch.visible_ms.items()],
            "popTime": batch.pop_time,
            "q": batch.key.queue_id,
            "t": batch.key.topic,
        }
        return self._message(ORDER, fields, wall_ms, wall_ms)

    def mode(self, mode: RequestMode, wall_ms: int) -> PutMessage:
        fields = {
            "consumerGroup": mode.group,
            "mode": mode.mode,
            "popShareQueueNum": mode.pop_share_queue_num,
            "topic": mode.topic,
        }
        return self._message(MODE, fields, wall_ms, wall_ms)

    def _message(
        self, tag: str, fields: dict[str, object], due_ms: int, wall_ms: int
    ) -> PutMessage:
        properties = {TAGS: tag, _TIMER_DELIVER_MS: str(due_ms - _READ_AHEAD_MS)}
        v6 = SysFlag.STOREHOST_V6 | SysFlag.BORNHOST_V6 if len(self.store_host) == 20 else 0
        return PutMessage(
            topic=self.topic,
            queue_id=0,
            flag=0,
            sys_flag=v6,
            born_timestamp=wall_ms,
            born_host=self.store_host,
            store_host=self.store_host,
            body=fastjson.dumps(fields),
            properties=encode_properties(properties),
            tags_code=tags_code(properties),
        )


Entry = PopCheckpoint | Acked | OrderBatch | RequestMode


def read_entry(record: Record) -> Entry | None:
    """Return what a record of the revive log tells; None if it makes no sense."""
    try:
        fields = object_of(fastjson.loads(record.body), "revive log")
        match record.properties.get(TAGS):
            case "ck":
                return _checkpoint(fields)
            case "ack":
                return Acked(_key(fields), (integer(fields, "ao"),))
            case "bAck":
                return Acked(_key(fields), tuple(_integers(fields, "aol")))
            case "order":
                return _order(fields)
            case "mode":
                return RequestMode(
                    text(fields, "topic"),
                    text(fields, "consumerGroup"),
                    text(fields, "mode"),
                    integer(fields, "popShareQueueNum"),
                )
            case _:
                return None
    except (RemoteProtocolError, ValueError):
        return None


def _key(fields: Json) -> CheckpointKey:
    return CheckpointKey(
        text(fields, "t"),
        text(fields, "c"),
        integer(fields, "q"),
        integer(fields, "so"),
        integer(fields, "pt"),
    )


def _checkpoint(fields: Json) -> PopCheckpoint:
    key = _key(fields)
    differences = _integers(fields, "d")
    if not differences:
        # Clients of the first versions of POP list offsets in a row.
        differences = list(range(integer(fields, "n")))
    offsets = tuple(key.start_offset + difference for difference in differences)
    if len(offsets) > MESSAGES_MAX or any(offset < 0 for offset in offsets):
        raise RemoteProtocolError(f"a checkpoint of {len(offsets)} messages")
    return PopCheckpoint(
        key,
        integer(fields, "it"),
        offsets,
        integer(fields, "bm") & ((1 << len(offsets)) - 1),
        integer(fields, "from", -1),
        integer(fields, "no", -1),
    )


def _order(fields: Json) -> OrderBatch:
    offsets = tuple(_integers(fields, "o"))
    if not offsets:
        raise RemoteProtocolError("an ordered batch without messages")
    return OrderBatch(
        OrderKey(text(fields, "t"), text(fields, "c"), integer(fields, "q")),
        text(fields, "a"),
        integer(fields, "popTime"),
        integer(fields, "i"),
        offsets,
        integer(fields, "cm"),
        _pairs(fields, "ot"),
        _pairs(fields, "oc"),
    )


def _integers(fields: Json, name: str) -> Sequence[int]:
    return [integer_of(value, name) for value in list_of(fields.get(name), name)]


def _pairs(fields: Json, name: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for pair in list_of(fields.get(name), name):
        offset, number = list_of(pair, name)
        found[integer_of(offset, name)] = integer_of(number, name)
    return found
