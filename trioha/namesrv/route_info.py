"""Routing tables of a name server: live brokers and their topics (RouteInfoManager.java).

Theory of operation. Brokers register every 30 s. Nothing is stored: a restarted name server learns
everything within that time. A registration is an upsert: it adds and changes topics and never
removes any, since a broker that has just created a topic sends only that one. It changes the topics
that are known only if its data version differs, and always adds those that are not. Only a master's
registration counts for topics. A broker is alive while its connection is open and it has registered
within 120 s. When either ends, its address is removed at once, and its name and queues with its
last address. So a slave without its master stays in the routes: consumers go on reading, producers
find no id 0.

RocketMQ can go wrong in two cases, and we differ. An address belongs to one broker: registering it
under a new name or id takes it from the old one. And a broker whose id another broker has taken
does not remove that id when it unregisters or expires: a deposed master does not remove its
successor's route.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import attrs

from trioha.errors import CommandError
from trioha.remoting.channel import Channel
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.codes import Perm, ResponseCode
from trioha.wire.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

MASTER_ID = 0

ADDRESSES_MAX = 10_000
"""Limit of broker addresses."""
TOPICS_PER_BROKER_MAX = 65_536
"""Limit of topics of one broker name; trioha's brokers keep at most 50,000."""
QUEUE_ENTRIES_MAX = 524_288
"""Limit of topics of all broker names together, each of some 500 bytes."""
NAME_LENGTH_MAX = 255
"""Limit of the name of a broker, cluster, address or topic, in characters."""

# TopicSysFlag.java
_UNIT = 0x1
_UNIT_SUB = 0x2


@attrs.frozen
class BrokerAddress:
    """Identity of one broker process, as requests 103, 104 and 322 carry it."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


@attrs.frozen
class MasterAddresses:
    """Addresses of a slave's master."""

    master_addr: str
    ha_server_addr: str


@attrs.frozen
class Registered:
    """The result of a registration."""

    is_new: bool
    """The address was unknown before, or was another broker's."""
    master: MasterAddresses | None
    """The live master; None for a master's own registration, or if none is alive."""


@attrs.define(eq=False)
class _Live:
    """One address: alive until `last_seen_ms` is too long ago or `channel` closes."""

    broker: BrokerAddress
    channel: Channel
    ha_server_addr: str
    data_version: DataVersion
    last_seen_ms: int


@attrs.define(eq=False)
class _Broker:
    """One broker name: a master and its slaves. Never without an address."""

    cluster: str
    name: str
    addresses: dict[int, str] = attrs.Factory(dict)
    topics: set[str] = attrs.Factory(set)
    """Topics that have an entry of this broker in the topic table."""

    def data(self) -> BrokerData:
        return BrokerData(self.cluster, self.name, dict(self.addresses))


class RouteInfoManager:
    """The routing tables of one name server."""

    def __init__(
        self,
        expired_time_ms: int = 120_000,
        *,
        addresses_max: int = ADDRESSES_MAX,
        topics_per_broker_max: int = TOPICS_PER_BROKER_MAX,
        queue_entries_max: int = QUEUE_ENTRIES_MAX,
    ) -> None:
        self._expired_time_ms = expired_time_ms
        self._addresses_max = addresses_max
        self._topics_per_broker_max = topics_per_broker_max
        self._queue_entries_max = queue_entries_max
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, _Broker] = {}
        # Sorted by `last_seen_ms`: renewing moves an entry to the end.
        self._live: dict[str, _Live] = {}
        self._by_channel: dict[Channel, set[str]] = {}

    def register(
        self,
        broker: BrokerAddress,
        ha_server_addr: str,
        data_version: DataVersion,
        queues: Mapping[str, QueueData],
        channel: Channel,
        now_ms: int,
    ) -> Registered:
        """Add or renew a broker, with its queues by topic (`queues_of`).

        Errors: CommandError if a name is empty or too long, or a limit is reached; nothing changes.
        """
        previous = self._live.get(broker.address)
        self._check(broker, ha_server_addr, queues, is_known=previous is not None)
        if previous is not None and previous.broker.broker_name != broker.broker_name:
            self._remove(previous)
            previous = None
        is_new = previous is None or previous.broker != broker
        entry = self._broker_of(broker)
        if previous is not None and previous.broker.broker_id != broker.broker_id:
            # A role switch: the queues stay, otherwise readers would lose their route.
            self._release_id(entry, previous.broker)
        takes_id = entry.addresses.get(broker.broker_id) != broker.address
        entry.addresses[broker.broker_id] = broker.address
        version_changed = previous is None or previous.data_version != data_version
        if broker.broker_id == MASTER_ID:
            everything = takes_id or version_changed
            name = entry.name
            for topic in queues if everything else queues.keys() - entry.topics:
                self._topics.setdefault(topic, {})[name] = queues[topic]
            entry.topics.update(queues)
        if previous is not None:
            self._unlink(previous)
        self._live[broker.address] = _Live(broker, channel, ha_server_addr, data_version, now_ms)
        self._by_channel.setdefault(channel, set()).add(broker.address)
        return Registered(is_new, self._master_for(entry, broker))

    def unregister(self, broker: BrokerAddress) -> bool:
        """Remove a broker; return False if it was not registered under this name and id."""
        live = self._live.get(broker.address)
        if live is None or live.broker != broker:
            return False
        self._remove(live)
        return True

    def query_data_version(
        self, broker: BrokerAddress, data_version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Return whether the broker's topics changed since it registered, and our version of them.

        A request with an unchanged version renews the broker.
        """
        live = self._live.get(broker.address)
        if live is None:
            return True, None
        changed = live.data_version != data_version
        if not changed:
            del self._live[broker.address]
            live.last_seen_ms = now_ms
            self._live[broker.address] = live
        return changed, live.data_version

    def channel_closed(self, channel: Channel) -> list[BrokerAddress]:
        """Remove the brokers that last registered through this connection, and return them."""
        gone = [self._live[address] for address in self._by_channel.get(channel, ())]
        for live in gone:
            self._remove(live)
        return [live.broker for live in gone]

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which the next broker expires; None without brokers."""
        for live in self._live.values():
            return live.last_seen_ms + self._expired_time_ms + 1
        return None

    def expire(self, now_ms: int) -> list[tuple[BrokerAddress, Channel]]:
        """Remove the expired brokers, and return them; the caller closes their connections."""
        gone = []
        for live in self._live.values():
            if live.last_seen_ms + self._expired_time_ms >= now_ms:
                break
            gone.append(live)
        for live in gone:
            self._remove(live)
        return [(live.broker, live.channel) for live in gone]

    def pick_route(self, topic: str) -> TopicRouteData | None:
        """Return the route of a topic, or None if no broker has it."""
        queues = self._topics.get(topic)
        if queues is None:
            return None
        brokers = tuple(self._brokers[name].data() for name in queues)
        return TopicRouteData(brokers, tuple(queues.values()))

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            {name: broker.data() for name, broker in self._brokers.items()},
            {cluster: tuple(names) for cluster, names in self._clusters().items()},
        )

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self._clusters().get(cluster, ())
        return list(dict.fromkeys(topic for name in names for topic in self._brokers[name].topics))

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the topics named like each cluster and broker, and any live address."""
        clusters = self._clusters()
        names = [name for cluster, members in clusters.items() for name in (cluster, *members)]
        return names, next(iter(self._live), None)

    def unit_topics(self) -> list[str]:
        return list(self._topics_with(_UNIT, _UNIT))

    def unit_sub_topics(self) -> list[str]:
        return list(self._topics_with(_UNIT_SUB, _UNIT_SUB))

    def unit_sub_ununit_topics(self) -> list[str]:
        return list(self._topics_with(_UNIT | _UNIT_SUB, _UNIT_SUB))

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take write permission from a broker's topics until their next version; count them."""
        return self._change_perms(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Undo `wipe_write_perm`; count the topics."""
        return self._change_perms(broker_name, lambda _: Perm.READ | Perm.WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic from one cluster or all. A master that still has it registers it again."""
        names = self._clusters().get(cluster, ()) if cluster else tuple(self._topics.get(topic, ()))
        for name in names:
            self._delete_queues(topic, self._brokers[name])

    def _check(
        self,
        broker: BrokerAddress,
        ha_server_addr: str,
        topics: Collection[str],
        *,
        is_known: bool,
    ) -> None:
        if not is_known and len(self._live) >= self._addresses_max:
            raise _refusal(f"this name server holds {self._addresses_max} broker addresses")
        if broker.broker_id < 0:
            raise _refusal(f"brokerId {broker.broker_id} is negative")
        if len(ha_server_addr) > NAME_LENGTH_MAX:
            raise _refusal("haServerAddr is too long")
        names = (broker.cluster, broker.broker_name, broker.address)
        for name in (*names, *topics):
            if not 0 < len(name) <= NAME_LENGTH_MAX:
                raise _refusal(f"a name is empty or longer than {NAME_LENGTH_MAX}: {name!r:.80}")
        entry = self._brokers.get(broker.broker_name)
        count = len(topics)
        if entry is not None and count + len(entry.topics) > self._topics_per_broker_max:
            count = len(entry.topics.union(topics))
        if count > self._topics_per_broker_max:
            raise _refusal(f"a broker has more than {self._topics_per_broker_max} topics")
        if broker.broker_id != MASTER_ID:
            return
        known = entry.topics if entry is not None else ()
        others = sum(len(one.topics) for one in self._brokers.values())
        count = others + sum(topic not in known for topic in topics)
        if count > self._queue_entries_max:
            raise _refusal(f"all brokers together have more than {self._queue_entries_max} topics")

    def _broker_of(self, broker: BrokerAddress) -> _Broker:
        entry = self._brokers.get(broker.broker_name)
        if entry is None:
            entry = self._brokers[broker.broker_name] = _Broker(broker.cluster, broker.broker_name)
        # The last registration decides the cluster; RocketMQ lists the name in both.
        entry.cluster = broker.cluster
        return entry

    def _master_for(self, entry: _Broker, broker: BrokerAddress) -> MasterAddresses | None:
        if broker.broker_id == MASTER_ID:
            return None
        master = self._live.get(entry.addresses.get(MASTER_ID, ""))
        if master is None:
            return None
        return MasterAddresses(master.broker.address, master.ha_server_addr)

    def _remove(self, live: _Live) -> None:
        self._unlink(live)
        entry = self._brokers.get(live.broker.broker_name)
        if entry is None or not self._release_id(entry, live.broker) or entry.addresses:
            return
        name = entry.name
        del self._brokers[name]
        # In one turn: `_delete_queues` takes 22 ms for 50,000 topics, this 17.
        for topic in entry.topics:
            queues = self._topics[topic]
            del queues[name]
            if not queues:
                del self._topics[topic]

    def _release_id(self, entry: _Broker, broker: BrokerAddress) -> bool:
        """Free the broker's id; return False if another broker has taken it already."""
        if entry.addresses.get(broker.broker_id) != broker.address:
            return False
        del entry.addresses[broker.broker_id]
        return True

    def _unlink(self, live: _Live) -> None:
        """Remove the address from the tables of live brokers."""
        address = live.broker.address
        del self._live[address]
        addresses = self._by_channel[live.channel]
        addresses.discard(address)
        if not addresses:
            del self._by_channel[live.channel]

    def _delete_queues(self, topic: str, broker: _Broker) -> None:
        queues = self._topics.get(topic)
        if queues is None or queues.pop(broker.name, None) is None:
            return
        broker.topics.discard(topic)
        if not queues:
            del self._topics[topic]

    def _change_perms(self, broker_name: str, change: Callable[[int], int]) -> int:
        broker = self._brokers.get(broker_name)
        topics = broker.topics if broker is not None else ()
        for topic in topics:
            queues = self._topics[topic]
            queue = queues[broker_name]
            queues[broker_name] = attrs.evolve(queue, perm=change(queue.perm))
        return len(topics)

    def _clusters(self) -> dict[str, list[str]]:
        clusters: dict[str, list[str]] = {}
        for broker in self._brokers.values():
            clusters.setdefault(broker.cluster, []).append(broker.name)
        return clusters

    def _topics_with(self, mask: int, flags: int) -> Iterator[str]:
        for topic, queues in self._topics.items():
            # One of a topic's brokers decides, as in RocketMQ.
            if next(iter(queues.values())).topic_sys_flag & mask == flags:
                yield topic


def queues_of(broker_name: str, topic: TopicConfig) -> QueueData:
    """Return the queues of a topic that a broker has registered."""
    return QueueData(
        broker_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_sys_flag,
    )


def _refusal(reason: str) -> CommandError:
    return CommandError(ResponseCode.SYSTEM_ERROR, f"registration refused: {reason}")
