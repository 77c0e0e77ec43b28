"""A topic's route as producers and consumers read it (MQClientInstance.java).

Theory of operation. The name server lists brokers (name → id → address) and, per broker, how many
queues may be written and read. Writing needs id 0: a broker of which only slaves are left is
skipped by producers, read on by consumers. The queue lists are in Java's order, since ordered
sends pick by index and must pick the same queue from every language.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

import attrs

from trioha.client.allocation import sort_queues
from trioha.client.message import MessageQueue
from trioha.wire.codes import Perm
from trioha.wire.java_hash import string_hash
from trioha.wire.route import TopicRouteData

MASTER_ID = 0


@attrs.frozen
class TopicRoute:
    """Brokers and queues of a topic."""

    topic: str
    brokers: Mapping[str, Mapping[int, str]]
    """Broker name → broker id → address."""
    write_queues: Sequence[MessageQueue]
    """Queues that take messages: writable and with a master."""
    read_queues: Sequence[MessageQueue]

    @classmethod
    def of(
        cls, topic: str, data: TopicRouteData, *, queue_nums_max: int | None = None
    ) -> TopicRoute:
        """The route in `data`, read as `topic`'s.

        `queue_nums_max` cuts the queues, for a topic that does not exist yet and borrows the
        route of the default topic.
        """
        brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas}
        write: list[MessageQueue] = []
        read: list[MessageQueue] = []
        for queues in data.queue_datas:
            name = queues.broker_name
            if name not in brokers:
                continue
            if queues.perm & Perm.WRITE and MASTER_ID in brokers[name]:
                count = queues.write_queue_nums
                if queue_nums_max is not None:
                    count = min(count, queue_nums_max)
                write += [MessageQueue(topic, name, index) for index in range(count)]
            if queues.perm & Perm.READ:
                read += [
                    MessageQueue(topic, name, index) for index in range(queues.read_queue_nums)
                ]
        return cls(topic, brokers, sort_queues(write), sort_queues(read))

    def master(self, broker_name: str) -> str | None:
        """The address that takes writes."""
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    def reader(self, broker_name: str, broker_id: int = MASTER_ID) -> tuple[int, str] | None:
        """The node to read from: the one asked for, else the next id, else any.

        The id comes with the address: only the master may be handed an offset to commit.
        """
        addresses = self.brokers.get(broker_name)
        if not addresses:
            return None
        for candidate in (broker_id, broker_id + 1):
            if candidate in addresses:
                return candidate, addresses[candidate]
        first = min(addresses)
        return first, addresses[first]

    def addresses(self) -> set[str]:
        """Return the address of every node of the route, slaves too."""
        return {address for nodes in self.brokers.values() for address in nodes.values()}

    def masters(self) -> set[str]:
        return {nodes[MASTER_ID] for nodes in self.brokers.values() if MASTER_ID in nodes}


class QueueSelector:
    """Round robin over a route's queues, per topic, from a random start."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next: dict[str, int] = {}

    def select(self, route: TopicRoute, avoid: Collection[str] = ()) -> MessageQueue | None:
        """The next queue, on a broker not in `avoid` if there is another; None without queues."""
        queues = route.write_queues
        if not queues:
            return None
        start = self._next.get(route.topic)
        if start is None:
            start = self._rng.randrange(len(queues))
        for step in range(len(queues)):
            queue = queues[(start + step) % len(queues)]
            if queue.broker_name not in avoid:
                break
        else:
            step, queue = 0, queues[start % len(queues)]
        self._next[route.topic] = start + step + 1
        return queue


def queue_for_key(route: TopicRoute, key: str) -> MessageQueue | None:
    """The queue of a sharding key: the same one Java's SelectMessageQueueByHash picks."""
    queues = route.write_queues
    return queues[abs(string_hash(key)) % len(queues)] if queues else None
