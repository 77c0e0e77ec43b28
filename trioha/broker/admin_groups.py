"""Administration of groups: requests 200, 201, 203, 204, 207, 208, 300, 303 and 352.

(AdminBrokerProcessor.java.) Progress is the committed offset beside the queue's end; tools compute
lag and delay from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trioha.broker.admin_topics import SLAVE_REMARK, topic_not_exist
from trioha.broker.clients import ClientInfo, ConsumerManager, ProducerManager
from trioha.broker.groups import GroupTable
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.interface import MessageStore
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue, SubscriptionGroupConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.names import check_group
from trioha.wire.remoting_command import RemotingCommand

RETRY_QUEUE_NUMS_MAX = 1_024


class GroupAdminProcessor:
    """Creates, changes, describes and deletes groups; who is connected, and how far they are."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerManager,
        producers: ProducerManager,
        offsets: ConsumerOffsetTable,
        is_slave: Callable[[], bool],
    ) -> None:
        self._broker_name = config.broker_name
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._offsets = offsets
        self._is_slave = is_slave

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.GET_CONSUME_STATS: self.consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.consume_time_span,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.group_config,
        }

    def update_group(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        self._check_master()
        group = SubscriptionGroupConfig.from_dict(fastjson.loads(request.body_bytes()))
        if not 0 <= group.retry_queue_nums <= RETRY_QUEUE_NUMS_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"retryQueueNums must be 0 to {RETRY_QUEUE_NUMS_MAX}"
            )
        self._groups.put(group, instant.wall_ms)
        return request.response()

    def delete_group(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Forget a group, its progress too if asked (4.9 says removeOffset, 5.x cleanOffset)."""
        self._check_master()
        group = request.ext_str("groupName")
        check_group(group)
        self._groups.delete(group, instant.wall_ms)
        if request.ext_bool("removeOffset") or request.ext_bool("cleanOffset"):
            self._offsets.delete_group(group)
        return request.response()

    def all_groups(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        return request.response(body=self._groups.encode())

    def group_config(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        name = request.ext_str("group")
        group = self._groups.get(name)
        if group is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. {name:.255}"
            )
        return request.response(body=fastjson.dumps(group.to_dict()))

    def consumer_connections(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        name = request.ext_str("consumerGroup")
        group = self._consumers.find(name)
        if group is None:
            raise CommandError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name:.255}] not online"
            )
        body = {
            "connectionSet": _connections(self._consumers.members(name)),
            "consumeFromWhere": group.consume_from_where.value,
            "consumeType": group.consume_type.value,
            "messageModel": group.message_model.value,
            "subscriptionTable": {
                topic: subscription.to_dict() for topic, subscription in group.subscriptions.items()
            },
        }
        return request.response(body=fastjson.dumps(body))

    def producer_connections(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        name = request.ext_str("producerGroup")
        members = self._producers.members(name)
        if not members:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{name:.255}] not exist"
            )
        return request.response(body=fastjson.dumps({"connectionSet": _connections(members)}))

    def consume_stats(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """How far a group is in each queue of one topic, or of all it has read."""
        group = request.ext_str("consumerGroup")
        if topic := request.ext_str("topic", ""):
            topics = [topic]
        elif topic_list := request.ext_str("topicList", ""):
            topics = [name for name in topic_list.split(";") if name]
        else:
            topics = self._offsets.topics_of(group)
        members = self._consumers.find(group)
        pairs: list[tuple[object, object]] = []
        for name in topics:
            config = self._topics.get(name)
            if config is None:
                continue
            if members is not None and members.subscriptions and name not in members.subscriptions:
                # Offsets of a topic the group has left are not its lag.
                continue
            for queue_id in range(config.read_queue_nums):
                pairs.append(self._progress(group, name, queue_id))
        body = {"consumeTps": 0.0, "offsetTable": fastjson.ObjectKeyMap(pairs)}
        return request.response(body=fastjson.dumps(body))

    def groups_of_topic(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Groups that are subscribed to a topic now or have read it once."""
        topic = request.ext_str("topic")
        groups = dict.fromkeys(self._consumers.groups_subscribed_to(topic))
        groups.update(dict.fromkeys(self._offsets.groups_of(topic)))
        return request.response(body=fastjson.dumps({"groupList": list(groups)}))

    def consume_time_span(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """From when to when each queue reaches, and how old what the group reads next is."""
        topic = request.ext_str("topic")
        group = request.ext_str("group")
        config = self._topics.get(topic)
        if config is None:
            raise topic_not_exist(topic)
        spans = [
            self._time_span(group, topic, queue_id, instant.wall_ms)
            for queue_id in range(config.write_queue_nums)
        ]
        return request.response(body=fastjson.dumps({"consumeTimeSpanSet": spans}))

    def _progress(self, group: str, topic: str, queue_id: int) -> tuple[object, object]:
        consumed = max(0, self._offsets.query(group, topic, queue_id))
        last_ms = self._store.store_time(topic, queue_id, consumed - 1) if consumed else 0
        return (
            self._queue(topic, queue_id),
            {
                "brokerOffset": max(0, self._store.max_offset_in_queue(topic, queue_id)),
                "consumerOffset": consumed,
                "lastTimestamp": max(0, last_ms),
            },
        )

    def _time_span(self, group: str, topic: str, queue_id: int, wall_ms: int) -> dict[str, object]:
        store_time = self._store.store_time
        maximum = self._store.max_offset_in_queue(topic, queue_id)
        first_ms = store_time(topic, queue_id, self._store.min_offset_in_queue(topic, queue_id))
        consumed = self._offsets.query(group, topic, queue_id)
        next_ms = store_time(topic, queue_id, consumed) if 0 <= consumed < maximum else -1
        return {
            "consumeTimeStamp": store_time(topic, queue_id, consumed - 1)
            if consumed > 0
            else first_ms,
            "delayTime": max(0, wall_ms - next_ms) if next_ms >= 0 else 0,
            "maxTimeStamp": store_time(topic, queue_id, maximum - 1),
            "messageQueue": self._queue(topic, queue_id),
            "minTimeStamp": first_ms,
        }

    def _queue(self, topic: str, queue_id: int) -> dict[str, object]:
        return MessageQueue(topic, self._broker_name, queue_id).to_dict()

    def _check_master(self) -> None:
        if self._is_slave():
            raise CommandError(ResponseCode.SYSTEM_ERROR, SLAVE_REMARK)


def _connections(members: Iterable[tuple[Channel, ClientInfo]]) -> list[dict[str, object]]:
    return [
        {
            "clientAddr": channel.peer,
            "clientId": client.client_id,
            "language": client.language.name,
            "version": client.version,
        }
        for channel, client in members
    ]
