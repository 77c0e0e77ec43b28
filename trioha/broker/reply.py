"""Replies to requests between clients: 324 and 325 (ReplyMessageProcessor.java).

The consumer of a request sends its reply to the broker that the requester is connected to; the
broker passes it on at once (326) and answers when the requester has taken it. The reply is also
stored, in the cluster's reply topic, for operators to look at later; the requester never
reads it there, so its push does not wait for disk or slave.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from trioha.broker.clients import ClientInfo
from trioha.broker.put_message import PutOutcome, PutPipeline
from trioha.broker.send import SendProcessor
from trioha.broker.send_header import SendHeader, field, read_send_header
from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import PutMessage
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.message_id import unpack_host
from trioha.wire.properties import Property, decode_properties, encode_properties
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

PUSH_TIMEOUT_MS = 10_000  # as long as RocketMQ waits for the requester
_CHANNELS_KNOWN_MAX = 4_096


class Producers(Protocol):
    """The part of `ProducerManager` that tells which producers are connected."""

    @property
    def groups(self) -> list[str]: ...

    def members(self, group: str) -> list[tuple[Channel, ClientInfo]]: ...


class ReplyProcessor:
    """Passes replies on and stores them."""

    def __init__(
        self,
        sender: SendProcessor,
        pipeline: PutPipeline,
        producers: Producers,
        store_host: bytes,
    ) -> None:
        self._sender = sender
        self._pipeline = pipeline
        self._producers = producers
        self._store_host = "{}:{}".format(*unpack_host(store_host))
        self._channels: dict[str, Channel] = {}

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Store the reply and push it to the requester; the answer, or None when it comes later."""
        sender = self._sender
        try:
            header = read_send_header(request)
            message, queue_id = sender.receive(channel, request, header, instant)
            client_id, requester = self._requester(header)
        except CommandError as error:
            return sender.refuse(request, error.code, error.remark)
        except RemoteProtocolError as error:
            return sender.refuse(request, ResponseCode.SYSTEM_ERROR, str(error))
        # Stored as it came: RocketMQ adds no CLUSTER to a reply.
        message.properties = encode_properties(decode_properties(header.properties))
        push = self._push_of(channel, request, header, message, instant)
        outcome = self._pipeline.put(message, wait=False, instant=instant)
        answer = self._answer(request, outcome, queue_id)
        requester.request_nowait(
            push,
            instant.now_ms + PUSH_TIMEOUT_MS,
            partial(self._finish, channel, request, answer, client_id, outcome, instant),
        )
        return None

    def _requester(self, header: SendHeader) -> tuple[str, Channel]:
        client_id = decode_properties(header.properties).get(Property.REPLY_TO_CLIENT)
        if client_id is None:
            raise system_error("REPLY_TO_CLIENT is null, can not reply message")
        channel = self._channels.get(client_id)
        if channel is None or channel.closed:
            channel = self._look_for(client_id)
        return client_id, channel

    def _look_for(self, client_id: str) -> Channel:
        # Once per requester: a producer may be registered under any group.
        for group in self._producers.groups:
            for channel, client in self._producers.members(group):
                if client.client_id == client_id and not channel.closed:
                    if len(self._channels) >= _CHANNELS_KNOWN_MAX:
                        self._channels.clear()
                    self._channels[client_id] = channel
                    return channel
        self._channels.pop(client_id, None)
        raise system_error(f"push reply message fail, channel of {client_id} not found.")

    def _push_of(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: SendHeader,
        message: PutMessage,
        instant: Instant,
    ) -> RemotingCommand:
        queue_nums = request.ext_int(field(request, "defaultTopicQueueNums"), 0)
        properties = decode_properties(message.properties)
        properties[Property.PUSH_REPLY_TIME] = str(instant.wall_ms)
        return RemotingCommand(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            {
                "producerGroup": request.ext_str(field(request, "producerGroup"), ""),
                "topic": header.topic,
                "defaultTopic": request.ext_str(field(request, "defaultTopic"), ""),
                "defaultTopicQueueNums": queue_nums,
                "queueId": header.queue_id,
                "sysFlag": message.sys_flag,
                "bornTimestamp": header.born_timestamp,
                "flag": header.flag,
                "properties": encode_properties(properties).decode(),
                "reconsumeTimes": header.reconsume_times,
                "unitMode": request.ext_bool(field(request, "unitMode")),
                "bornHost": channel.peer,
                "storeHost": self._store_host,
                "storeTimestamp": instant.wall_ms,
            },
            message.body,
        )

    def _answer(
        self, request: RemotingCommand, outcome: PutOutcome, queue_id: int
    ) -> RemotingCommand:
        if outcome.result is not None:
            return self._sender.answer(request, outcome.code, outcome.result, queue_id)
        # The requester needs the reply, not the numbers; RocketMQ answers these zeros, too.
        answer = self._sender.refuse(request, ResponseCode.SUCCESS, None)
        answer.ext_fields.update({"msgId": "0", "queueId": "0", "queueOffset": "0"})
        return answer

    def _finish(
        self,
        channel: Channel,
        request: RemotingCommand,
        answer: RemotingCommand,
        client_id: str,
        outcome: PutOutcome,
        instant: Instant,
        response: RemotingCommand | None,
    ) -> None:
        if request.is_oneway:
            return
        if response is None or response.code != ResponseCode.SUCCESS:
            answer.code = ResponseCode.SYSTEM_ERROR
            answer.remark = f"push reply message to {client_id} fail."
        elif outcome.must_wait:
            self._pipeline.when_safe(outcome, instant, channel, answer)
            return
        channel.send_nowait(answer)
