"""Administration of groups: requests 200, 201, 203, 204, 207, 328 and 352.

(AdminBrokerProcessor.java.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from trioha.broker.admin_topics import SLAVE_REMARK
from trioha.broker.clients import ClientInfo, ConsumerManager, ProducerManager
from trioha.broker.groups import GroupTable
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire import fastjson
from trioha.wire.bodies import SubscriptionGroupConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.names import check_group
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

RETRY_QUEUE_NUMS_MAX = 1_024


@attrs.define(eq=False)
class GroupAdminProcessor:
    """Creates, changes, describes and deletes groups; tells which clients are connected."""

    _groups: GroupTable
    _consumers: ConsumerManager
    _producers: ProducerManager
    _offsets: ConsumerOffsetTable
    _is_slave: Callable[[], bool]

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.group_config,
        }

    def update_group(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        self._check_master()
        group = SubscriptionGroupConfig.from_dict(fastjson.loads(request.body_bytes()))
        if not 0 <= group.retry_queue_nums <= RETRY_QUEUE_NUMS_MAX:
            raise system_error(f"retryQueueNums must be 0 to {RETRY_QUEUE_NUMS_MAX}")
        self._groups.put(group, instant.wall_ms)
        return request.response()

    def delete_group(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Delete a group, and its progress if asked (4.9 says removeOffset, 5.x cleanOffset)."""
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
        """A group's settings. As RocketMQ 5's broker does, a master creates it where it may.

        (AdminBrokerProcessor.getSubscriptionGroup.) The proxy of RocketMQ 5.5 serves no consumer
        whose group it cannot read, and creates none.
        """
        name = request.ext_str("group")
        if self._is_slave():
            group = self._groups.get(name)
        else:
            group = self._groups.find(name, instant.wall_ms)
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
            raise system_error(f"the producer group[{name:.255}] not exist")
        return request.response(body=fastjson.dumps({"connectionSet": _connections(members)}))

    def all_producers(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer every producer of every group, and the time of its last heartbeat."""
        producers = self._producers
        data = {
            group: [
                {
                    "clientId": client.client_id,
                    "language": client.language.name,
                    "lastUpdateTimestamp": instant.wall_ms
                    - (instant.now_ms - producers.renewed_ms(group, channel)),
                    "remoteIP": channel.peer,
                    "version": client.version,
                }
                for channel, client in producers.members(group)
            ]
            for group in producers.groups
        }
        return request.response(body=fastjson.dumps({"data": data}))

    def _check_master(self) -> None:
        if self._is_slave():
            raise system_error(SLAVE_REMARK)


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
