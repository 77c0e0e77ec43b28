"""Connected producers and consumers by group (ConsumerManager, ProducerManager).

Theory of operation. A client uses one connection per broker for all its groups, so a registration
is keyed by (group, connection). It is made and renewed by heartbeats and ends by unregistering, by
the end of the connection, or after `clientChannelExpiredTimeout` without a heartbeat, when the
connection is closed too. Registrations are kept in the order of their last heartbeat, so the next
to expire is always the first: nothing scans.

A consumer group has one set of subscriptions, that of its last heartbeat: RocketMQ demands that all
its members subscribe alike. When a group's members or topics change, every member is told (code 40)
and asks for the member list (code 38) to share the queues out anew. The tables change first and the
notice goes out afterwards, so the list already holds the newcomer when the notice arrives.

Limits: `GROUPS_PER_CHANNEL_MAX` registrations per connection, `REGISTRATIONS_MAX` on all of them,
`SUBSCRIPTIONS_PER_GROUP_MAX` topics per group, and `SUBSCRIPTION_BYTES_MAX` of memory for all
subscriptions. A heartbeat is renewed whatever the others hold: only what it adds can be refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from sys import getsizeof
from typing import ClassVar

import attrs

from trioha.broker.groups import GroupTable
from trioha.config import BrokerConfig
from trioha.errors import CommandError
from trioha.remoting.channel import Channel
from trioha.wire.codes import ONEWAY_FLAG, LanguageCode, RequestCode, ResponseCode
from trioha.wire.heartbeat import (
    GROUPS_MAX,
    SUBSCRIPTIONS_MAX,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

GROUPS_PER_CHANNEL_MAX = GROUPS_MAX
SUBSCRIPTIONS_PER_GROUP_MAX = SUBSCRIPTIONS_MAX
_BYTES_WITHOUT_CONTENT = 300
_BYTES_OF_CODE = 32
REGISTRATIONS_MAX = 131_072
"""Connections times their groups, of producers and consumers each."""
SUBSCRIPTION_BYTES_MAX = 33_554_432
"""Limit of memory for the subscriptions of all groups, about."""


@attrs.frozen
class ClientInfo:
    """A client as its last heartbeat described it."""

    client_id: str
    language: LanguageCode
    version: int


@attrs.define(eq=False, slots=True)
class _Registration:
    client: ClientInfo
    renewed_ms: int


class _Registrations(ABC):
    """Clients by (group, channel), oldest heartbeat first."""

    KIND: ClassVar[str]

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._by_age: dict[tuple[str, Channel], _Registration] = {}
        self._members: dict[str, dict[Channel, _Registration]] = {}
        self._groups_of: dict[Channel, dict[str, None]] = {}

    @property
    def groups(self) -> list[str]:
        return list(self._members)

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which `expire` has something to do, or None."""
        for registration in self._by_age.values():
            return registration.renewed_ms + self.config.client_channel_expired_timeout
        return None

    @abstractmethod
    def unregister(self, group: str, channel: Channel) -> None:
        """Remove a client that unregisters, or has expired."""

    def channel_closed(self, channel: Channel) -> None:
        for group in list(self._groups_of.get(channel, ())):
            self.unregister(group, channel)

    def expire(self, now_ms: int) -> None:
        """Close the connections of clients that have fallen silent."""
        before_ms = now_ms - self.config.client_channel_expired_timeout
        while self._by_age:
            (group, channel), registration = next(iter(self._by_age.items()))
            if registration.renewed_ms > before_ms:
                return
            self.unregister(group, channel)
            channel.close_nowait(f"no heartbeat of {self.KIND} group {group}")

    def members(self, group: str) -> list[tuple[Channel, ClientInfo]]:
        """Return the members in the order of their registration."""
        return [(channel, r.client) for channel, r in self._members.get(group, {}).items()]

    def renewed_ms(self, group: str, channel: Channel) -> int:
        """Return the time of the member's last heartbeat."""
        return self._by_age[group, channel].renewed_ms

    def _check_groups(self, channel: Channel, groups: Iterable[str]) -> None:
        held = self._groups_of.get(channel, {})
        wanted = len({*held, *groups})
        if len(self._by_age) + wanted - len(held) > REGISTRATIONS_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(self._by_age)} {self.KIND} groups are registered on all connections",
            )
        if wanted > GROUPS_PER_CHANNEL_MAX:
            raise system_error(
                f"one connection registers {wanted} groups, at most {GROUPS_PER_CHANNEL_MAX} do"
            )

    def _renew(self, group: str, channel: Channel, client: ClientInfo, now_ms: int) -> bool:
        """Renew a registration, or make it; return whether this is a new member."""
        registration = self._by_age.pop((group, channel), None)
        is_new = registration is None
        if registration is None:
            registration = _Registration(client, now_ms)
            self._members.setdefault(group, {})[channel] = registration
            self._groups_of.setdefault(channel, {})[group] = None
        registration.client = client
        registration.renewed_ms = now_ms
        self._by_age[group, channel] = registration
        return is_new

    def _remove(self, group: str, channel: Channel) -> bool:
        if self._by_age.pop((group, channel), None) is None:
            return False
        members = self._members[group]
        del members[channel]
        if not members:
            del self._members[group]
        groups = self._groups_of[channel]
        del groups[group]
        if not groups:
            del self._groups_of[channel]
        return True


class ProducerManager(_Registrations):
    """Producer groups and their connections."""

    KIND = "producer"

    def check_room(self, channel: Channel, groups: Iterable[str]) -> None:
        """Errors: CommandError(SYSTEM_ERROR) when one connection would hold too many groups."""
        self._check_groups(channel, groups)

    def register(self, group: str, channel: Channel, client: ClientInfo, now_ms: int) -> None:
        self._renew(group, channel, client, now_ms)

    def unregister(self, group: str, channel: Channel) -> None:
        self._remove(group, channel)


class ConsumerGroup:
    """Settings that the members of a consumer group share."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        self.subscriptions: dict[str, SubscriptionData] = {}
        """Topic -> subscription, ``%RETRY%group`` included."""


class ConsumerManager(_Registrations):
    """Consumer groups, their connections and their subscriptions."""

    KIND = "consumer"

    def __init__(self, config: BrokerConfig, group_table: GroupTable) -> None:
        super().__init__(config)
        self._group_table = group_table
        self._groups: dict[str, ConsumerGroup] = {}
        self._subscription_bytes = 0

    def find(self, group: str) -> ConsumerGroup | None:
        """The group, if any of its consumers is connected. HOT: once per pull."""
        return self._groups.get(group)

    def check_room(self, channel: Channel, consumers: Iterable[ConsumerData]) -> None:
        """Errors: CommandError(SYSTEM_ERROR) when a heartbeat asks for more than we keep."""
        groups = []
        added_bytes = 0
        for consumer in consumers:
            groups.append(consumer.group_name)
            known = self._groups.get(consumer.group_name)
            added_bytes += sum(
                _bytes_of(subscription)
                for subscription in consumer.subscriptions
                if known is None or _is_news(known.subscriptions, subscription)
            )
            if len(consumer.subscriptions) > SUBSCRIPTIONS_PER_GROUP_MAX:
                raise system_error(
                    f"group {consumer.group_name} subscribes to {len(consumer.subscriptions)} "
                    f"topics, at most {SUBSCRIPTIONS_PER_GROUP_MAX} are kept"
                )
        if added_bytes and self._subscription_bytes + added_bytes > SUBSCRIPTION_BYTES_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY,
                f"subscriptions of {self._subscription_bytes} bytes are kept, "
                f"{added_bytes} more exceed {SUBSCRIPTION_BYTES_MAX}",
            )
        self._check_groups(channel, groups)

    def register(
        self, consumer: ConsumerData, channel: Channel, client: ClientInfo, now_ms: int
    ) -> None:
        """Apply what a heartbeat says of one group; notify its members if that changed it."""
        group = self._groups.get(consumer.group_name)
        if group is None:
            group = self._groups[consumer.group_name] = ConsumerGroup(consumer.group_name)
        group.consume_type = consumer.consume_type
        group.message_model = consumer.message_model
        group.consume_from_where = consumer.consume_from_where
        is_new = self._renew(group.name, channel, client, now_ms)
        changed, more_bytes = _replace_subscriptions(group.subscriptions, consumer.subscriptions)
        self._subscription_bytes += more_bytes
        if changed or is_new:
            self._notify(group.name)

    def unregister(self, group: str, channel: Channel) -> None:
        """Remove a consumer that unregisters; the others share its queues."""
        if self._remove(group, channel):
            self._member_left(group)

    def client_ids(self, group: str) -> list[str]:
        """Return each client id once: a client that reconnects is there twice until its old
        connection ends, and a duplicate would break the even sharing of queues."""
        return list(dict.fromkeys(client.client_id for _, client in self.members(group)))

    def find_client(self, group: str, client_id: str) -> tuple[Channel, ClientInfo] | None:
        """Return a member by its client id; the newest connection if it has two."""
        for channel, client in reversed(self.members(group)):
            if client.client_id == client_id:
                return channel, client
        return None

    def groups_subscribed_to(self, topic: str) -> list[str]:
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def _member_left(self, group: str) -> None:
        if group in self._members:
            self._notify(group)
        else:
            gone = self._groups.pop(group)
            self._subscription_bytes -= sum(map(_bytes_of, gone.subscriptions.values()))

    def _notify(self, group: str) -> None:
        settings = self._group_table.get(group)
        if not self.config.notify_consumer_ids_changed_enable or (
            settings is not None and not settings.notify_consumer_ids_changed_enable
        ):
            return
        for channel, _ in self.members(group):
            channel.send_nowait(
                RemotingCommand(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                    {"consumerGroup": group},
                    flag=ONEWAY_FLAG,
                )
            )


def _replace_subscriptions(
    ours: dict[str, SubscriptionData], theirs: Iterable[SubscriptionData]
) -> tuple[bool, int]:
    """Make `ours` the topics of `theirs`; return whether the set of topics changed, and the bytes
    that were added.

    A subscription to a topic we know replaces ours only if its version is greater: members that
    restart one after another may still carry older ones.
    """
    listed = {subscription.topic: subscription for subscription in theirs}
    dropped = [topic for topic in ours if topic not in listed]
    added_bytes = 0
    for topic in dropped:
        added_bytes -= _bytes_of(ours.pop(topic))
    changed = bool(dropped)
    for topic, subscription in listed.items():
        if not _is_news(ours, subscription):
            continue
        known = ours.get(topic)
        if known is None:
            changed = True
        else:
            added_bytes -= _bytes_of(known)
        ours[topic] = subscription
        added_bytes += _bytes_of(subscription)
    return changed, added_bytes


def _is_news(ours: dict[str, SubscriptionData], subscription: SubscriptionData) -> bool:
    known = ours.get(subscription.topic)
    return known is None or subscription.sub_version > known.sub_version


def _bytes_of(subscription: SubscriptionData) -> int:
    """Return the memory that a subscription takes, about."""
    size = _BYTES_WITHOUT_CONTENT + getsizeof(subscription.tags_set)
    size += getsizeof(subscription.code_set) + _BYTES_OF_CODE * len(subscription.code_set)
    for text in (subscription.topic, subscription.sub_string, subscription.expression_type):
        size += getsizeof(text)
    return size + sum(map(getsizeof, subscription.tags_set))
