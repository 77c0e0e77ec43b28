"""Clients come and go: requests 34, 35, 38 and 46 (ClientManageProcessor, ConsumerManage…).

A consumer's heartbeat brings its group into being together with the topic ``%RETRY%group``, to
which its failed messages go. A heartbeat is checked as a whole before any part of it counts.
Groups that are new cost most of it, so that they come into being some in each turn; the client is
registered for all its groups in the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import attrs

from trioha.broker.clients import ClientInfo, ConsumerManager, ProducerManager
from trioha.broker.filter import check_subscription
from trioha.broker.groups import GroupTable
from trioha.broker.topics import TopicTable
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire import fastjson
from trioha.wire.bodies import encode_consumer_list
from trioha.wire.codes import Perm, RequestCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from trioha.wire.json_fields import object_of
from trioha.wire.names import check_group, check_topic, retry_topic
from trioha.wire.progress import Progress
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

CLIENT_ID_CHARS_MAX = 1_024
"""A client id is made of an address, a process id and sometimes a unit name."""

GROUPS_PER_TURN = 128
"""Consumer groups that one turn looks up or creates: 10 to 20 ms if all are new."""


class _Creating(Progress):
    """A heartbeat that was checked, and its consumer groups that were not looked up yet."""

    def __init__(self, data: HeartbeatData, size_bytes: int) -> None:
        super().__init__(2 * size_bytes)
        self.data = data
        self.consumers: Iterator[ConsumerData] = iter(data.consumers)


@attrs.define(eq=False)
class HeartbeatProcessor:
    """Keeps the tables of connected clients."""

    _consumers: ConsumerManager
    _producers: ProducerManager
    _topics: TopicTable
    _groups: GroupTable

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_consumers,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heartbeat(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Register the client for all its producer groups and consumer groups."""
        creating = request.progress
        if not isinstance(creating, _Creating):
            body = request.body_bytes()
            creating = _Creating(HeartbeatData.decode(body), len(body))
            self._check(creating.data)
        data = creating.data
        # In every turn: other connections registered groups in between.
        self._check_room(channel, data)
        some = list(islice(creating.consumers, GROUPS_PER_TURN))
        for consumer in some:
            self._create(consumer.group_name, instant)
        if len(some) == GROUPS_PER_TURN:
            request.progress = creating
            channel.go_on_nowait(request)
            return None
        client = ClientInfo(data.client_id, request.language, request.version)
        for producer in data.producers:
            self._producers.register(producer.group_name, channel, client, instant.now_ms)
        for consumer in data.consumers:
            # A group that may not be created is registered none the less, as by RocketMQ: its
            # pulls are rejected one by one, and administrators see the connected clients.
            self._consumers.register(consumer, channel, client, instant.now_ms)
        return request.response()

    def unregister(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Remove the client of this connection from a producer group, a consumer group, or both."""
        request.ext_str("clientID")
        if producer_group := request.ext_str("producerGroup", ""):
            self._producers.unregister(producer_group, channel)
        if consumer_group := request.ext_str("consumerGroup", ""):
            self._consumers.unregister(consumer_group, channel)
        return request.response()

    def list_consumers(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """The client ids of a group, from which each member works out its share of the queues."""
        group = request.ext_str("consumerGroup")
        client_ids = self._consumers.client_ids(group)
        if not client_ids:
            raise system_error(f"no consumer for this group, {group}")
        return request.response(body=encode_consumer_list(client_ids))

    def check_client_config(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Tell a consumer, before it starts, whether its expression can work here."""
        fields = object_of(fastjson.loads(request.body_bytes()), "client config")
        if fields.get("subscriptionData") is not None:
            subscription = SubscriptionData.from_dict(fields["subscriptionData"])
            check_subscription(
                subscription.sub_string,
                subscription.expression_type,
                has_sql92=self._consumers.config.enable_property_filter,
            )
        return request.response()

    def _create(self, group: str, instant: Instant) -> None:
        """Bring a group and its retry topic into being, if they may be created."""
        settings = self._groups.find(group, instant.wall_ms)
        if settings is not None:
            queues = settings.retry_queue_nums
            self._topics.create_internal(
                retry_topic(group), queues, Perm.READ | Perm.WRITE, instant.wall_ms
            )

    def _check(self, data: HeartbeatData) -> None:
        if not 0 < len(data.client_id) <= CLIENT_ID_CHARS_MAX:
            raise system_error(
                f"a clientID has 1 to {CLIENT_ID_CHARS_MAX} characters, not {len(data.client_id)}"
            )
        for producer in data.producers:
            check_group(producer.group_name)
        for consumer in data.consumers:
            check_group(consumer.group_name)
            # A group whose retry topic cannot be made could not have its messages redelivered.
            check_topic(retry_topic(consumer.group_name))

    def _check_room(self, channel: Channel, data: HeartbeatData) -> None:
        self._producers.check_room(channel, [p.group_name for p in data.producers])
        self._consumers.check_room(channel, data.consumers)
