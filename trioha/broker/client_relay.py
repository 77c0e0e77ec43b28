"""Relays administrators' questions to clients: 222, 223, 307, 309 (Broker2Client.java).

Only the broker has a connection to a client, so it forwards such requests to the client and the
answers back. At the deadline the broker answers with code 207. No task waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from trioha.broker.admin_topics import SLAVE_REMARK
from trioha.broker.clients import ClientInfo, ConsumerManager
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig
from trioha.errors import CommandError, RemoteProtocolError
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.connection import OnResponse
from trioha.remoting.requests import answer_late
from trioha.security.signing_key import ACCESS_KEY, SIGNATURE
from trioha.store.interface import MessageStore
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue
from trioha.wire.codes import ONEWAY_FLAG, LanguageCode, RequestCode, ResponseCode
from trioha.wire.json_fields import integer_of, object_of
from trioha.wire.message_id import decode_message_id
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import ExtValue, RemotingCommand

CALL_MS = 10_000
STATUS_MS = 5_000
CALLS_MAX = 4_096
"""Limit of questions in flight: each costs a timer, which a silent client keeps for 10 s."""
QUEUES_TOLD_MAX = 64
"""Queues that the journal's event of a reset names."""
VERSION_V3_0_7 = 28  # the first client that understands 220 and 221
VERSION_V3_1_8 = 62  # the first that understands 307 and 309


@attrs.define(eq=False)
class ClientRelay:
    """Passes administrators' requests on to consumers."""

    _config: BrokerConfig
    _store: MessageStore
    _topics: TopicTable
    _consumers: ConsumerManager
    _offsets: ConsumerOffsetTable
    _events: EventSink
    _is_popping: Callable[[str, str], bool]
    """Tells whether the members of a group, given after the topic, pop: they keep no offsets."""
    _calls_in_flight: int = attrs.field(default=0, init=False)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def reset_offset(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Tell every consumer of a group to go on from a point in time (-1: from the end).

        The consumers then commit the new offsets themselves, or the broker for those that pop.
        Without `isForce` no queue moves forwards. A body names the queues and their offsets
        instead; RocketMQ's broker has no such thing. From 5.x on `queueId` and `offset` name one.
        """
        topic, group = request.ext_str("topic"), request.ext_str("group")
        timestamp_ms = request.ext_int("timestamp")
        queue_id, offset = request.ext_int("queueId", -1), request.ext_int("offset", -1)
        if body := request.body_bytes():
            targets = self._checked(topic, _named_targets(body))
        elif queue_id >= 0 and offset >= 0:
            queue = MessageQueue(topic, self._config.broker_name, queue_id)
            targets = self._checked(topic, {queue: offset})
        else:
            targets = self._targets(topic, group, timestamp_ms, request.ext_bool("isForce"))
        members = self._consumers.members(group)
        is_popping = self._is_popping(topic, group)
        if not members and not is_popping:
            raise CommandError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group:.255} "
                f"Topic: {topic} Timestamp: {timestamp_ms}",
            )
        for _, client in members:
            _check_version(client, VERSION_V3_0_7)
        if is_popping:
            if self._offsets.is_slave:
                raise system_error(SLAVE_REMARK)
            for queue, offset in targets.items():
                self._offsets.commit(group, topic, queue.queue_id, offset)
        fields: dict[str, ExtValue] = {
            "topic": topic,
            "group": group,
            "timestamp": str(timestamp_ms),
            "isForce": request.ext_bool("isForce"),
        }
        body = _reset_body(targets)
        body_cpp = _reset_body_cpp(targets)
        for member, client in members:
            member.send_nowait(
                RemotingCommand(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    dict(fields),
                    body_cpp if client.language is LanguageCode.CPP else body,
                    flag=ONEWAY_FLAG,
                )
            )
        self._events.event(
            "progress_reset",
            topic=topic,
            group=group,
            queues=[
                number
                for queue, offset in list(targets.items())[:QUEUES_TOLD_MAX]
                for number in (queue.queue_id, offset)
            ],
            members=len(members),
            peer=channel.peer,
        )
        return request.response(body=body)

    def consumer_status(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Ask a group's consumers, or one of them, for their own offsets."""
        topic, group = request.ext_str("topic"), request.ext_str("group")
        wanted = request.ext_str("clientAddr", "")
        members = [
            (member, client)
            for member, client in self._consumers.members(group)
            if wanted in ("", client.client_id)
        ]
        if not members:
            raise system_error(f"No Any Consumer online in the consumer group: [{group:.255}]")
        for _, client in members:
            _check_version(client, VERSION_V3_0_7)
        self._check_room(len(members))
        answers = _StatusAnswers(channel, request, len(members))
        for member, client in members:
            self._ask(
                member,
                RemotingCommand(
                    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group}
                ),
                instant.now_ms + STATUS_MS,
                answers.taker(client.client_id),
            )
        return None

    def running_info(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Ask a consumer for a description of itself."""
        self._call(channel, request, instant, request.body_bytes(), _unsigned(request))
        return None

    def consume_directly(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Have a consumer consume the message of a message id here and now."""
        message_id = request.ext_str("msgId", "")
        view = self._store.look_message(decode_message_id(message_id)[2])
        if view is None:
            raise system_error(f"can not find message by the id, {message_id}")
        fields = {**_unsigned(request), "brokerName": self._config.broker_name}
        self._call(channel, request, instant, bytes(view), fields)
        return None

    def _call(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        body: bytes,
        fields: Mapping[str, ExtValue],
    ) -> None:
        group, client_id = request.ext_str("consumerGroup"), request.ext_str("clientId", "")
        found = self._consumers.find_client(group, client_id)
        if found is None:
            raise system_error(f"The Consumer <{group:.255}> <{client_id:.255}> not online")
        member, client = found
        _check_version(client, VERSION_V3_1_8)
        self._check_room(1)

        def answer(response: RemotingCommand | None) -> None:
            if response is None:
                relayed = request.response(
                    ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout"
                )
            else:
                relayed = request.response(
                    response.code,
                    response.remark,
                    dict(response.ext_fields),
                    response.body_bytes(),
                )
            answer_late(channel, request, relayed)

        self._ask(
            member,
            RemotingCommand(request.code, dict(fields), body),
            instant.now_ms + CALL_MS,
            answer,
        )

    def _check_room(self, count: int) -> None:
        if self._calls_in_flight + count > CALLS_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST] {self._calls_in_flight} questions to clients are in flight",
            )

    def _ask(
        self, member: Channel, command: RemotingCommand, deadline_ms: int, on_response: OnResponse
    ) -> None:
        def done(response: RemotingCommand | None) -> None:
            self._calls_in_flight -= 1
            on_response(response)

        self._calls_in_flight += 1
        member.request_nowait(command, deadline_ms, done)

    def _checked(self, topic: str, targets: dict[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return what an operator names. Errors: CommandError for a queue not here."""
        config = self._topics.get(topic)
        for queue in targets:
            here = (queue.topic, queue.broker_name) == (topic, self._config.broker_name)
            if config is None or not here or not 0 <= queue.queue_id < config.read_queue_nums:
                raise system_error(
                    f"[reset-offset] {queue.topic:.127} queue {queue.queue_id} of"
                    f" {queue.broker_name:.255} is not a queue of {topic:.127} here"
                )
        return targets

    def _targets(
        self, topic: str, group: str, timestamp_ms: int, is_force: bool
    ) -> dict[MessageQueue, int]:
        config = self._topics.get(topic)
        if config is None:
            raise system_error(f"[reset-offset] reset offset failed, no topic {topic}")
        targets = {}
        for queue_id in range(config.write_queue_nums):
            committed = self._offsets.query(group, topic, queue_id)
            if committed < 0:
                raise system_error(
                    f"the consumer group <{group:.255}> has no offset of queue {queue_id} yet"
                )
            if timestamp_ms == -1:
                offset = self._store.max_offset_in_queue(topic, queue_id)
            else:
                offset = self._store.offset_by_time(topic, queue_id, timestamp_ms)
            offset = max(0, offset)
            queue = MessageQueue(topic, self._config.broker_name, queue_id)
            targets[queue] = offset if is_force else min(offset, committed)
        return targets


def _named_targets(body: bytes) -> dict[MessageQueue, int]:
    table = object_of(fastjson.loads(body), "reset offsets").get("offsetTable")
    pairs = table.items() if isinstance(table, fastjson.ObjectKeyMap) else []
    return {MessageQueue.from_dict(key): integer_of(at, "offset") for key, at in pairs}


class _StatusAnswers:
    """Collects the answers of consumers, and sends them when the last one is there."""

    def __init__(self, channel: Channel, request: RemotingCommand, count: int) -> None:
        self._channel = channel
        self._request = request
        self._missing = count
        self._table: dict[str, object] = {}

    def taker(self, client_id: str) -> OnResponse:
        def take(response: RemotingCommand | None) -> None:
            if response is not None and response.code == ResponseCode.SUCCESS:
                try:
                    body = fastjson.loads(response.body_bytes())
                except RemoteProtocolError:
                    body = None  # one broken answer does not spoil the others
                if isinstance(body, dict):
                    self._table[client_id] = body.get("messageQueueTable") or {}
            self._missing -= 1
            if not self._missing:
                self._finish()

        return take

    def _finish(self) -> None:
        body = fastjson.dumps({"consumerTable": self._table, "messageQueueTable": {}})
        answer_late(self._channel, self._request, self._request.response(body=body))


def _unsigned(request: RemotingCommand) -> dict[str, ExtValue]:
    """Return the fields without the operator's signature: a consumer could send it again."""
    signed = (ACCESS_KEY, SIGNATURE)
    return {name: value for name, value in request.ext_fields.items() if name not in signed}


def _check_version(client: ClientInfo, least: int) -> None:
    if client.version < least:
        raise system_error(
            f"the client {client.client_id} does not support this feature. version={client.version}"
        )


def _reset_body(targets: Mapping[MessageQueue, int]) -> bytes:
    pairs = [(queue.to_dict(), offset) for queue, offset in targets.items()]
    return fastjson.dumps({"offsetTable": fastjson.ObjectKeyMap(pairs)})


def _reset_body_cpp(targets: Mapping[MessageQueue, int]) -> bytes:
    """The C++ client's JSON reader knows no objects as keys."""
    rows = [{**queue.to_dict(), "offset": offset} for queue, offset in targets.items()]
    return fastjson.dumps({"offsetTable": rows})
