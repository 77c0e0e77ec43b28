"""Requests 400 and 401: which queues a client receives from, and how.

As QueryAssignmentProcessor.java.
A client with clientRebalance false asks any broker of a topic, for the queues of all of them. So
the broker asks a name server for the route first; without one it answers for its own queues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from trioha.broker.clients import ConsumerManager
from trioha.broker.groups import GroupTable
from trioha.broker.pop.allocation import STRATEGIES, allocate_for_pop
from trioha.broker.pop.records import RequestMode
from trioha.broker.pop.service import PopService
from trioha.broker.put_message import PutPipeline, remark_of
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import answer_late
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue
from trioha.wire.codes import Perm, RequestCode, ResponseCode
from trioha.wire.heartbeat import MessageModel
from trioha.wire.json_fields import enumerated, integer, object_of, text
from trioha.wire.names import check_group, check_topic, is_retry_topic
from trioha.wire.refusals import no_permission
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import TopicRouteData

AskRoute = Callable[[str, Callable[[TopicRouteData | None], None]], None]
"""Calls back, once, with the route of a topic as a name server knows it; None without an answer."""
SHARE_QUEUE_NUM_MAX: Final = 65_535
_MODES: Final = ("PULL", "POP")


def no_route(topic: str, on_route: Callable[[TopicRouteData | None], None]) -> None:
    """The `AskRoute` of a broker that asks nobody."""
    on_route(None)


@attrs.define(eq=False)
class AssignmentProcessor:
    """Shares queues out, and keeps the request modes."""

    _config: BrokerConfig
    _topics: TopicTable
    _groups: GroupTable
    _consumers: ConsumerManager
    _pipeline: PutPipeline
    _service: PopService
    _ask_route: AskRoute

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.all_modes,
        }

    def query(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Answer with the client's queues once the route is known.

        Errors: RemoteProtocolError for a body that is none.
        """
        fields = object_of(fastjson.loads(request.body_bytes()), "query assignment")
        topic, group = text(fields, "topic"), text(fields, "consumerGroup")
        client_id, strategy = text(fields, "clientId"), text(fields, "strategyName")
        model = enumerated(fields, "messageModel", MessageModel.CLUSTERING)
        request.detach(frozenset())
        answered: list[RemotingCommand] = []
        is_first = True

        def answer(route: TopicRouteData | None) -> None:
            queues = self._queues(topic, route)
            mode = self._service.mode_of(topic, group)
            shared = self._share(queues, model, mode, group, client_id, strategy)
            body: dict[str, object] = {}
            if shared is not None:
                body["messageQueueAssignments"] = [
                    {"messageQueue": queue.to_dict(), "mode": mode.mode} for queue in shared
                ]
            response = request.response(body=fastjson.dumps(body))
            if is_first:
                answered.append(response)
            else:
                answer_late(channel, request, response)

        self._ask_route(topic, answer)
        is_first = False
        return answered[0] if answered else None

    def set_mode(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Keep how a group receives a topic; the answer comes when that is safe.

        Errors: CommandError with RocketMQ's codes, RemoteProtocolError for a body that is none.
        """
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)
        fields = object_of(fastjson.loads(request.body_bytes()), "message request mode")
        topic, group = text(fields, "topic"), text(fields, "consumerGroup")
        if is_retry_topic(topic):
            raise no_permission("retry topic is not allowed to set mode")
        check_topic(topic)
        check_group(group)
        if self._topics.get(topic) is None:
            raise CommandError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if self._groups.get(group) is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group {group} does not exist",
            )
        word = text(fields, "mode", "PULL")
        share = integer(fields, "popShareQueueNum")
        if word not in _MODES or not -1 <= share <= SHARE_QUEUE_NUM_MAX:
            raise CommandError(
                ResponseCode.INVALID_PARAMETER,
                f"mode {word!r:.20} with popShareQueueNum {share}: the mode must be PULL or POP, "
                f"the number from -1 to {SHARE_QUEUE_NUM_MAX}",
            )
        outcome = self._service.set_mode(RequestMode(topic, group, word, share), instant)
        response = request.response(0, remark_of(outcome.code) if outcome.code else None)
        if outcome.must_wait:
            self._pipeline.when_safe(outcome, instant, channel, response)
            return None
        return response

    def all_modes(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer all request modes, by topic and group, for a slave of RocketMQ 5."""
        if self._pipeline.role is BrokerRole.SLAVE:
            raise CommandError(ResponseCode.SERVICE_NOT_AVAILABLE, self._pipeline.slave_remark)
        modes: dict[str, dict[str, object]] = {}
        for one in self._service.modes.values():
            modes.setdefault(one.topic, {})[one.group] = {
                "topic": one.topic,
                "consumerGroup": one.group,
                "mode": one.mode,
                "popShareQueueNum": one.pop_share_queue_num,
            }
        return request.response(body=fastjson.dumps({"messageRequestModeMap": modes}))

    def _queues(self, topic: str, route: TopicRouteData | None) -> list[MessageQueue]:
        if route is None:
            config = self._topics.get(topic)
            if config is None or not config.perm & Perm.READ:
                return []
            name = self._config.broker_name
            return [MessageQueue(topic, name, i) for i in range(config.read_queue_nums)]
        found = [
            MessageQueue(topic, data.broker_name, i)
            for data in route.queue_datas
            if data.perm & Perm.READ
            for i in range(data.read_queue_nums)
        ]
        return sorted(found, key=lambda queue: (queue.broker_name, queue.queue_id))

    def _share(
        self,
        queues: list[MessageQueue],
        model: MessageModel,
        mode: RequestMode,
        group: str,
        client_id: str,
        strategy: str,
    ) -> list[MessageQueue] | None:
        """Return the queues of one client; None where Java's broker makes no assignment."""
        if not queues:
            return None
        if model is MessageModel.BROADCASTING:
            return queues
        allocate = STRATEGIES.get(strategy)
        members = sorted(self._consumers.client_ids(group))
        if allocate is None or not members:
            return None
        index = members.index(client_id) if client_id in members else None
        if mode.mode == "POP":
            share = mode.pop_share_queue_num
            return allocate_for_pop(allocate, queues, len(members), index, share)
        return [] if index is None else allocate(queues, len(members), index)
