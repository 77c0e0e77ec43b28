"""Topics, queues and consumer groups, put together from the answers of every master."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from trioha.watch.readings import Fields, fields_of, rows_of, truth, whole, words
from trioha.wire.names import RETRY_PREFIX

if TYPE_CHECKING:
    from trioha.watch.snapshot import ReplicaSet


@attrs.frozen(kw_only=True)
class Topic:
    """A topic over all brokers that have it."""

    name: str
    read_queue_nums: int
    """Of all brokers together."""
    write_queue_nums: int
    perm: int | None
    """None when brokers differ."""
    order: bool | None
    brokers: tuple[str, ...]

    @property
    def is_retry(self) -> bool:
        return self.name.startswith(RETRY_PREFIX)


@attrs.frozen
class Queue:
    """Both ends of one queue."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    updated_ms: int | None
    """When its newest message was stored; None for an empty queue."""
    wall_ms: int | None
    """When the broker said so."""


@attrs.frozen
class QueueLag:
    """How far a group is in one queue."""

    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    consumed_ms: int | None
    """When the newest message that is consumed was stored."""
    wall_ms: int | None
    """When the broker said so."""
    owner: str | None
    """The client that has the queue, where members were asked for."""

    @property
    def lag(self) -> int:
        return max(0, self.broker_offset - self.consumer_offset)

    @property
    def lag_s(self) -> float | None:
        """Between the newest consumed message and the broker's answer; 0 when level."""
        if self.lag == 0:
            return 0.0
        if self.consumed_ms is None or self.wall_ms is None:
            return None
        return max(0.0, (self.wall_ms - self.consumed_ms) / 1000)


@attrs.frozen(kw_only=True)
class Member:
    """One connected client of a group."""

    client_id: str
    address: str | None
    language: str | None
    version: int | None
    brokers: tuple[str, ...]
    """Where it is connected."""
    queue_count: int | None
    """None when it does not tell."""


@attrs.frozen(kw_only=True)
class Group:
    """A consumer group over all brokers."""

    name: str
    queues: tuple[QueueLag, ...]
    members: tuple[Member, ...] | None
    """None when nobody asked."""
    consume_type: str | None = None
    message_model: str | None = None
    subscriptions: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def lag(self) -> int | None:
        """Messages; None when nobody has told of any queue."""
        return sum(one.lag for one in self.queues) if self.queues else None

    @property
    def lag_s(self) -> float | None:
        """Of the queue that is furthest behind."""
        known = [one.lag_s for one in self.queues if one.lag_s is not None]
        return max(known, default=None)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({one.topic for one in self.queues}))


def topics_of(sets: Iterable[ReplicaSet], answers: Fields) -> Mapping[str, Topic]:
    found: dict[str, list[tuple[str, Fields]]] = {}
    for name, told in _masters(sets, answers):
        for topic, config in fields_of(_value(told, "topics")).items():
            found.setdefault(topic, []).append((name, fields_of(config)))
    return {topic: _topic(topic, parts) for topic, parts in sorted(found.items())}


def queues_of(sets: Iterable[ReplicaSet], answers: Fields) -> tuple[Queue, ...]:
    queues = []
    for name, told in _masters(sets, answers):
        for key, entry in told.items():
            kind, _, topic = key.partition("/")
            if kind != "topic_stats":
                continue
            fields = fields_of(entry)
            wall_ms = whole(fields, "wall_ms")
            for row in fields.get("value") or ():
                queue_id, least, most, updated_ms = row
                queues.append(
                    Queue(topic, name, queue_id, least, most, updated_ms or None, wall_ms)
                )
    queues.sort(key=lambda one: (one.topic, one.broker, one.queue_id))
    return tuple(queues)


def groups_of(sets: Iterable[ReplicaSet], answers: Fields) -> Mapping[str, Group]:
    masters = list(_masters(sets, answers))
    names: set[str] = set()
    lags: dict[str, list[QueueLag]] = {}
    connected: dict[str, list[tuple[str, Fields]]] = {}
    owners: dict[str, dict[tuple[str, str, int], str]] = {}
    for broker, told in masters:
        names.update(fields_of(_value(told, "groups")))
        for key, entry in told.items():
            kind, _, rest = key.partition("/")
            if kind == "members" and isinstance(value := fields_of(entry).get("value"), dict):
                connected.setdefault(rest, []).append((broker, value))
            elif kind == "client":
                group, _, client_id = rest.partition("/")
                table = owners.setdefault(group, {})
                for row in fields_of(fields_of(entry).get("value")).get("queues") or ():
                    table[row[0], row[1], row[2]] = client_id
    for broker, told in masters:
        entry = fields_of(told.get("progress"))
        wall_ms = whole(entry, "wall_ms")
        for group, topics in fields_of(entry.get("value")).items():
            table = owners.get(group, {})
            for topic, rows in topics.items():
                lags.setdefault(group, []).extend(
                    QueueLag(
                        *(topic, broker, queue_id, end, consumed, consumed_ms or None, wall_ms),
                        owner=table.get((topic, broker, queue_id)),
                    )
                    for queue_id, end, consumed, consumed_ms in rows
                )
    names.update(lags, connected)
    return {
        name: _group(name, lags.get(name, []), connected.get(name), owners.get(name))
        for name in sorted(names)
    }


def _group(
    name: str,
    lags: list[QueueLag],
    connected: list[tuple[str, Fields]] | None,
    owners: Mapping[tuple[str, str, int], str] | None,
) -> Group:
    lags.sort(key=lambda one: (one.topic, one.broker, one.queue_id))
    if connected is None:
        return Group(name=name, queues=tuple(lags), members=None)
    counts: dict[str, int] = {}
    for client_id in (owners or {}).values():
        counts[client_id] = counts.get(client_id, 0) + 1
    rows: dict[str, tuple[Fields, list[str]]] = {}
    subscriptions: dict[str, str] = {}
    for broker, told in connected:
        subscriptions.update(fields_of(told.get("subscriptions")))
        for row in rows_of(told.get("clients")):
            rows.setdefault(words(row, "client_id") or "?", (row, []))[1].append(broker)
    members = tuple(
        Member(
            client_id=client_id,
            address=words(row, "address"),
            language=words(row, "language"),
            version=whole(row, "version"),
            brokers=tuple(brokers),
            queue_count=counts.get(client_id) if owners else None,
        )
        for client_id, (row, brokers) in sorted(rows.items())
    )
    first = connected[0][1]
    return Group(
        name=name,
        queues=tuple(lags),
        members=members,
        consume_type=words(first, "consume_type"),
        message_model=words(first, "message_model"),
        subscriptions=subscriptions,
    )


def _topic(name: str, parts: list[tuple[str, Fields]]) -> Topic:
    perms = {whole(config, "perm") for _, config in parts}
    return Topic(
        name=name,
        read_queue_nums=sum(whole(config, "readQueueNums") or 0 for _, config in parts),
        write_queue_nums=sum(whole(config, "writeQueueNums") or 0 for _, config in parts),
        perm=perms.pop() if len(perms) == 1 else None,
        order=truth(parts[0][1], "order"),
        brokers=tuple(broker for broker, _ in parts),
    )


def _masters(
    sets: Iterable[ReplicaSet], answers: Fields
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each set's name and the answers of the node that speaks for it."""
    for one in sets:
        if one.master is not None:
            yield one.name, fields_of(answers.get(one.master.address))


def _value(told: Fields, key: str) -> object:
    return fields_of(told.get(key)).get("value")
