"""Requests 200051, 200151 and 200053: acknowledge messages, or change how long one is invisible.

A handle is valid only for the topic and the group of its request. A handle that names no message in
flight (stale, forged, another group's) is answered with NO_MESSAGE, and nothing is
stored. RocketMQ's broker answers SUCCESS to most of them. An acknowledgement that is repeated is a
success.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import attrs

from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.pop.handles import (
    ORDER_REVIVE_QUEUE,
    Handle,
    normal_topic,
    parse_handle,
    topic_of_mark,
)
from trioha.broker.pop.hold import PopHold
from trioha.broker.pop.in_flight import MESSAGES_MAX, CheckpointKey
from trioha.broker.pop.order import OrderBatch, OrderKey
from trioha.broker.pop.resources import check_invisible
from trioha.broker.pop.service import PopService, stale_handle
from trioha.broker.put_message import PutOutcome, PutPipeline, remark_of
from trioha.broker.topics import TopicTable
from trioha.config import BrokerRole
from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.json_fields import Json, integer, integer_of, list_of, object_of, text
from trioha.wire.remoting_command import RemotingCommand

BATCH_MAX: Final = 1_024
"""Checkpoints in one request; stock proxies send some 30."""
_BITS_MAX: Final = 65_536
"""A checkpoint has at most 32 messages; a filter may have left out many between them."""


@attrs.define(eq=False)
class AckProcessor:
    """Answers acknowledgements."""

    _topics: TopicTable
    _offsets: ConsumerOffsetTable
    _pipeline: PutPipeline
    _service: PopService
    _hold: PopHold

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible,
        }

    def ack(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Acknowledge one message; the answer comes when that is safe.

        Errors: CommandError, RemoteProtocolError.
        """
        self._check_master()
        handle, key, offset = self._message_of(request)
        if handle.is_ordered:
            outcome = self._ack_ordered(key, [offset], instant)
        else:
            outcome = self._service.ack(key, [offset], True, instant)
        return self._when_safe(channel, request.response(), outcome, instant)

    def batch_ack(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Acknowledge messages of several checkpoints: a success if any handle is good.

        Errors: CommandError with the reason of the last one if none is, RemoteProtocolError.
        """
        self._check_master()
        outcome: PutOutcome | None = None
        refusal: CommandError | None = None
        done = False
        for key, offsets, is_ordered in read_batch(request.body_bytes()):
            try:
                self._check_queue(key)
                if is_ordered:
                    latest = self._ack_ordered(key, offsets, instant)
                else:
                    latest = self._service.ack(key, offsets, True, instant)
            except CommandError as error:
                refusal = error
                continue
            done = True
            outcome = latest or outcome
        if not done:
            raise refusal or CommandError(
                ResponseCode.NO_MESSAGE, "the body names no message to acknowledge"
            )
        return self._when_safe(channel, request.response(), outcome, instant)

    def change_invisible(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Let one message become visible again at another time, counted from now.

        Errors: CommandError, RemoteProtocolError.
        """
        self._check_master()
        handle, key, offset = self._message_of(request)
        invisible_ms = request.ext_int("invisibleTime")
        check_invisible(invisible_ms)
        if handle.is_ordered:
            batch = self._batch_of(key)
            if batch is None or offset not in batch.offsets:
                raise stale_handle(key)
            until_ms = instant.wall_ms + invisible_ms
            batch = attrs.evolve(batch, visible_ms={**batch.visible_ms, offset: until_ms})
            outcome = self._service.keep_order(batch, True, instant)
            fields = _fields(
                batch.pop_time,
                until_ms - batch.pop_time,
                ORDER_REVIVE_QUEUE,
            )
            self._hold.wake(key.group, normal_topic(key.topic, key.group), key.queue_id)
        else:
            new_key, outcome = self._service.change_invisible(key, offset, invisible_ms, instant)
            fields = _fields(new_key.pop_time, invisible_ms, handle.revive_queue)
        response = request.response(0, None, dict(fields))
        return self._when_safe(channel, response, outcome, instant)

    def _message_of(self, request: RemotingCommand) -> tuple[Handle, CheckpointKey, int]:
        topic = request.ext_str("topic")
        group = request.ext_str("consumerGroup")
        queue_id = request.ext_int("queueId")
        offset = request.ext_int("offset")
        handle = parse_handle(request.ext_str("extraInfo"))
        key = CheckpointKey(topic, group, queue_id, handle.start_offset, handle.pop_time)
        self._check_queue(key)
        return handle, key, offset

    def _check_queue(self, key: CheckpointKey) -> None:
        topic = self._topics.get(key.topic)
        if topic is None:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{key.topic:.127}] not exist, apply first please!",
            )
        if not 0 <= key.queue_id < topic.read_queue_nums:
            raise CommandError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{key.queue_id}] is illegal, topic:[{key.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )

    def _check_master(self) -> None:
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)

    def _batch_of(self, key: CheckpointKey) -> OrderBatch | None:
        batch = self._service.order_of(OrderKey(key.topic, key.group, key.queue_id))
        return batch if batch is not None and batch.pop_time == key.pop_time else None

    def _ack_ordered(
        self, key: CheckpointKey, offsets: list[int], instant: Instant
    ) -> PutOutcome | None:
        if max(offsets) < self._offsets.query(key.group, key.topic, key.queue_id):
            return None  # acknowledged before
        batch = self._batch_of(key)
        if batch is None or not any(offset in batch.offsets for offset in offsets):
            raise stale_handle(key)
        batch = attrs.evolve(batch)
        for offset in offsets:
            batch.ack(offset)
        outcome = self._service.keep_order(batch, True, instant)
        self._offsets.commit(key.group, key.topic, key.queue_id, batch.next_offset)
        if batch.is_done:
            self._service.forget_order(batch)
        if batch.blocked_until_ms(instant.wall_ms, "") is None:
            self._hold.wake(key.group, normal_topic(key.topic, key.group), key.queue_id)
        return outcome

    def _when_safe(
        self,
        channel: Channel,
        response: RemotingCommand,
        outcome: PutOutcome | None,
        instant: Instant,
    ) -> RemotingCommand | None:
        if outcome is None:
            return response
        if outcome.must_wait:
            self._pipeline.when_safe(outcome, instant, channel, response)
            return None
        if outcome.code:
            # The record is stored even so; clients take any other code for a failure.
            response.remark = remark_of(outcome.code)
        return response


def read_batch(body: bytes) -> list[tuple[CheckpointKey, list[int], bool]]:
    """Read a batch (BatchAckMessageRequestBody): checkpoint, offsets, whether it is ordered.

    Errors: RemoteProtocolError when it is none; CommandError for a wrong retry mark.
    """
    fields = object_of(fastjson.loads(body or b"{}", dialect_bytes_max=0), "batch ack")
    acks = list_of(fields.get("acks"), "acks")
    if len(acks) > BATCH_MAX:
        raise RemoteProtocolError(f"{len(acks)} acks in one request, at most {BATCH_MAX} do")
    return [found for ack in acks if (found := _read_ack(object_of(ack, "ack")))[1]]


def _read_ack(ack: Json) -> tuple[CheckpointKey, list[int], bool]:
    group = text(ack, "c") or text(ack, "consumerGroup")
    topic = text(ack, "t") or text(ack, "topic")
    mark = text(ack, "r") or text(ack, "retry") or "0"
    start = _integer(ack, "so", "startOffset")
    key = CheckpointKey(
        topic_of_mark(topic, group, mark),
        group,
        _integer(ack, "q", "queueId"),
        start,
        _integer(ack, "pt", "popTime"),
    )
    bits = _bits(ack.get("b", ack.get("bitSet")))
    if bits.bit_count() > MESSAGES_MAX:
        raise RemoteProtocolError(f"{bits.bit_count()} bits, at most {MESSAGES_MAX} do")
    offsets = []
    while bits:
        lowest = bits & -bits
        offsets.append(start + lowest.bit_length() - 1)
        bits ^= lowest
    return key, offsets, _integer(ack, "rq", "reviveQueueId") == ORDER_REVIVE_QUEUE


def _integer(ack: Json, name: str, long_name: str) -> int:
    return integer(ack, name) if name in ack else integer(ack, long_name)


def _bits(value: object) -> int:
    """Read a BitSet's bytes: Base64 as fastjson writes them, or a list of numbers."""
    try:
        if isinstance(value, str):
            data = base64.b64decode(value, validate=True)
        else:
            data = bytes(integer_of(number, "b") & 0xFF for number in list_of(value, "b"))
    except (binascii.Error, ValueError):
        raise RemoteProtocolError(f"bits {value!r:.40} are neither Base64 nor bytes") from None
    if len(data) * 8 > _BITS_MAX:
        raise RemoteProtocolError(f"{len(data)} bytes of bits, at most {_BITS_MAX // 8} do")
    return int.from_bytes(data, "little")


def _fields(pop_time: int, invisible_ms: int, revive_queue: int) -> dict[str, str]:
    return {
        "popTime": str(pop_time),
        "invisibleTime": str(invisible_ms),
        "reviveQid": str(revive_queue),
    }
