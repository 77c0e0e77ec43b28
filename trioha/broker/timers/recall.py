"""Request 370: a producer takes a timer message back (RecallMessageProcessor.java 5.3).

The broker appends a cancellation to the queue of timer messages. It is answered when that is as
safe as a message would be. A message that was delivered, or is about to be, cannot be recalled: the
time of a handle is a slot's beginning. As in RocketMQ, a second recall of a message succeeds, and
so does the recall of an unknown id.
"""

from __future__ import annotations

import attrs

from trioha.broker.put_message import PutPipeline, remark_of
from trioha.broker.timers.records import divert_timer, recall_message
from trioha.broker.timers.service import Timers
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire.codes import Perm, RequestCode, ResponseCode
from trioha.wire.names import TIMER_TOPIC
from trioha.wire.properties import Property
from trioha.wire.refusals import no_permission
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.timers import RecallHandle


@attrs.define(eq=False)
class RecallProcessor:
    """Takes timer messages back."""

    _config: BrokerConfig
    _topics: TopicTable
    _timers: Timers
    _pipeline: PutPipeline
    _store_host: bytes

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Store a cancellation; the answer, or None when it comes later.

        Errors: CommandError when the handle names no message that could be pending here.
        """
        config = self._config
        if not config.recall_message_enable:
            raise no_permission("recall failed, recallMessageEnable is false")
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)
        handle = self._handle_of(request, instant.wall_ms)
        message, properties = recall_message(
            handle,
            request.ext_str("producerGroup", ""),
            channel.peer_host,
            self._store_host,
            instant.wall_ms,
        )
        divert_timer(message, properties, config, instant.wall_ms)
        self._topics.create_internal(TIMER_TOPIC, 1, Perm.READ | Perm.WRITE, instant.wall_ms)
        outcome = self._pipeline.put(message, wait=not request.is_oneway, instant=instant)
        result = outcome.result
        if result is None:
            return request.response(outcome.code, f"recall failed: {outcome.remark}")
        self._timers.cancel_soon(
            properties[Property.TIMER_DEL_UNIQKEY],
            int(properties[Property.TIMER_OUT_MS]),
            result.queue_offset,
            instant.wall_ms,
        )
        response = request.response(
            outcome.code,
            remark_of(outcome.code) if outcome.code else None,
            {"msgId": handle.message_id, "MSG_REGION": config.region_id},
        )
        if outcome.must_wait and not request.is_oneway:
            self._pipeline.when_safe(outcome, instant, channel, response)
            return None
        return response

    def _handle_of(self, request: RemotingCommand, wall_ms: int) -> RecallHandle:
        """Read and check the handle of a request. Errors: CommandError."""
        topic = request.ext_str("topic")
        if self._topics.get(topic) is None:
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic:.127}] not exist"
            )
        try:
            handle = RecallHandle.decode(request.ext_str("recallHandle"))
        except ValueError as error:
            raise _illegal(f"recall failed, {error}") from None
        if handle.topic != topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker_name != self._config.broker_name:
            raise _illegal(
                f"recall failed, the message is at broker {handle.broker_name!r:.80}, "
                f"this is {self._config.broker_name}"
            )
        left_ms = handle.timestamp_ms - wall_ms
        if left_ms <= 0:
            raise _illegal(
                "recall failed, timestamp invalid: the message is delivered, it was due "
                f"{-left_ms} ms ago or within a second of that"
            )
        if left_ms > self._config.timer_max_delay_sec * 1000:
            raise _illegal("recall failed, timestamp invalid: it is beyond timerMaxDelaySec")
        return handle


def _illegal(remark: str) -> CommandError:
    return CommandError(ResponseCode.ILLEGAL_OPERATION, remark)
