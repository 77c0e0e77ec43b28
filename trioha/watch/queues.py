"""Topics, queues and consumer groups, merged from the answers of every master."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import attrs

from trioha.watch.questions import TOPIC_STATS
from trioha.watch.readings import Fields, fields_of, read, rows_of, truth, whole, words
from trioha.watch.replica_set import ReplicaSet
from trioha.wire.names import RETRY_PREFIX

_TABLE = itemgetter(0, 1)
"""Topic and broker."""
_FIRST = itemgetter(0)
"""Queue id of a row."""
_LagTable = tuple[str, str, Sequence[Any], int | None]
"""Topic, broker, rows of queues, time of the answer."""


@attrs.frozen(kw_only=True)
class Topic:
    """A topic over all brokers that have it."""

    name: str
    read_queue_nums: int
    """Sum over all brokers."""
    write_queue_nums: int
    perm: int | None
    """Permission of the topic; None if brokers differ."""
    order: bool | None
    brokers: tuple[str, ...]

    @property
    def is_retry(self) -> bool:
        return self.name.startswith(RETRY_PREFIX)


class Queue(NamedTuple):
    """First and last offset of one queue."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    updated_ms: int | None
    """Store time of its newest message; None for an empty queue."""
    wall_ms: int | None
    """Time of the broker's answer."""


class QueueLag(NamedTuple):
    """A group's offset in one queue, and its lag."""

    topic: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    consumed_ms: int | None
    """Store time of the newest consumed message."""
    wall_ms: int | None
    """Time of the broker's answer."""
    owner: str | None
    """Client that has the queue; None unless members were asked for."""
    min_offset: int | None = None
    """First offset that the broker holds; None where it does not tell."""
    next_ms: int | None = None
    """Store time of the oldest message not consumed; None for none, and where it is not told."""
    reserved_s: int | None = None
    """Seconds for which the broker keeps messages; None where it does not tell."""

    @property
    def lag(self) -> int:
        lag = self.broker_offset - self.consumer_offset
        return lag if lag > 0 else 0

    @property
    def lag_s(self) -> float | None:
        """Age in seconds of the oldest message not consumed; 0 without a lag.

        Where the broker does not tell that message's time: of the newest consumed one.
        """
        if self.broker_offset <= self.consumer_offset:
            return 0.0
        since_ms = self.consumed_ms if self.next_ms is None else self.next_ms
        if since_ms is None or self.wall_ms is None:
            return None
        return max(0.0, (self.wall_ms - since_ms) / 1000)

    @property
    def lost(self) -> int | None:
        """Count of messages that the broker deleted before they were consumed."""
        return None if self.min_offset is None else max(0, self.min_offset - self.consumer_offset)

    @property
    def kept_s(self) -> float | None:
        """Seconds for which the oldest message not consumed is safe; below 0 it is overdue."""
        if self.next_ms is None or self.wall_ms is None or self.reserved_s is None:
            return None
        return self.reserved_s - max(0.0, (self.wall_ms - self.next_ms) / 1000)

    @property
    def retention_used(self) -> float | None:
        """Share of its broker's fileReservedTime that the oldest message not consumed has used.

        1.0 if it is deleted; 0.0 without a lag; None if it is not known.
        """
        if self.min_offset is not None and self.min_offset > self.consumer_offset:
            return 1.0
        if self.broker_offset <= self.consumer_offset:
            return 0.0
        if self.next_ms is None or self.wall_ms is None or not self.reserved_s:
            return None
        return max(0.0, (self.wall_ms - self.next_ms) / 1000) / self.reserved_s


@attrs.frozen(kw_only=True)
class GroupMember:
    """One connected client of a group."""

    client_id: str
    address: str | None
    language: str | None
    version: int | None
    brokers: tuple[str, ...]
    """Brokers that it is connected to."""
    queue_count: int | None
    """Count of its queues; None if unknown."""


@attrs.frozen(kw_only=True, slots=False)
class Group:
    """A consumer group over all brokers."""

    name: str
    queues: tuple[QueueLag, ...]
    members: tuple[GroupMember, ...] | None
    """Connected members; None if they were not asked for."""
    consume_type: str | None = None
    message_model: str | None = None
    subscriptions: Mapping[str, str] = attrs.field(factory=dict)

    @cached_property
    def lag(self) -> int | None:
        """Count of messages not consumed; None if no queue is known."""
        return sum(one.lag for one in self.queues) if self.queues else None

    @cached_property
    def lag_s(self) -> float | None:
        """Lag in seconds of the queue that is furthest behind."""
        return largest_lag_s(self.queues)

    @cached_property
    def places(self) -> tuple[tuple[str, str, int], ...]:
        """Topic, broker and id of each queue."""
        return tuple([one[:3] for one in self.queues])

    @cached_property
    def places_hash(self) -> int:
        """Hash of the places: equal for the same queues, and compared at once."""
        return hash(self.places)

    @cached_property
    def told_ms(self) -> int:
        """Time of the newest answer of a broker; 0 for none."""
        return max((one.wall_ms or 0 for one in self.queues), default=0)

    @cached_property
    def lag_s_without_retries(self) -> float | None:
        """Lag in seconds but for retry queues: messages wait there for their delay."""
        queues = [one for one in self.queues if not one.topic.startswith(RETRY_PREFIX)]
        return self.lag_s if len(queues) == len(self.queues) else largest_lag_s(queues)

    @cached_property
    def next_to_lose(self) -> QueueLag | None:
        """Queue whose unconsumed messages are lost, or will be first; None if none is known."""
        known = [
            (one.lost or 0, used, one)
            for one in self.queues
            if one.broker_offset > one.consumer_offset and (used := one.retention_used) is not None
        ]
        return max(known, key=itemgetter(0, 1))[2] if known else None

    @cached_property
    def retention_used(self) -> float | None:
        """Share of fileReservedTime of the queue that loses messages first; None if unknown."""
        if self.next_to_lose is not None:
            return self.next_to_lose.retention_used
        return 0.0 if self.lag == 0 else None

    @cached_property
    def lost(self) -> int | None:
        """Count of messages that were deleted before it consumed them; None if not told."""
        counts = [lost for one in self.queues if (lost := one.lost) is not None]
        return sum(counts) if counts else None

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({one.topic for one in self.queues}))


class TopicHeld(NamedTuple):
    """Sum over the queues of a topic."""

    messages: int
    """Count of messages."""
    updated_ms: int | None
    """Store time of the newest message; None if all queues are empty."""


def held_of(queues: Iterable[Queue]) -> Mapping[str, TopicHeld]:
    counts: dict[str, int] = {}
    updated: dict[str, int] = {}
    for one in queues:
        counts[one.topic] = counts.get(one.topic, 0) + one.max_offset - one.min_offset
        if one.updated_ms is not None and one.updated_ms > updated.get(one.topic, 0):
            updated[one.topic] = one.updated_ms
    return {topic: TopicHeld(count, updated.get(topic)) for topic, count in counts.items()}


class TopicEnds(NamedTuple):
    """Sum of the ends of a topic's queues, for its rate."""

    total: int
    wall_ms: int
    """Time of the newest answer of a broker."""
    places: int
    """Hash of the queues that are in the sum."""


def ends_of(queues: Iterable[Queue]) -> Mapping[str, TopicEnds]:
    totals: dict[str, int] = {}
    told: dict[str, int] = {}
    places: dict[str, list[tuple[str, str, int]]] = {}
    for one in queues:
        if one.wall_ms is not None:
            totals[one.topic] = totals.get(one.topic, 0) + one.max_offset
            told[one.topic] = max(told.get(one.topic, 0), one.wall_ms)
            places.setdefault(one.topic, []).append(one[:3])
    return {
        name: TopicEnds(total, told[name], hash(tuple(places[name])))
        for name, total in totals.items()
    }


class TopicGroup(NamedTuple):
    """A group that reads a topic, and its lag there."""

    name: str
    lag: int


def groups_by_topic(groups: Mapping[str, Group]) -> Mapping[str, tuple[TopicGroup, ...]]:
    """Return the groups that have an offset in each topic, the one with the largest lag first."""
    lags: dict[str, dict[str, int]] = {}
    for name, group in groups.items():
        for queue in group.queues:
            table = lags.setdefault(queue.topic, {})
            table[name] = table.get(name, 0) + queue.lag
    return {
        topic: tuple(
            TopicGroup(name, lag)
            for name, lag in sorted(table.items(), key=lambda pair: (-pair[1], pair[0]))
        )
        for topic, table in lags.items()
    }


def largest_lag_s(queues: Collection[QueueLag]) -> float | None:
    """Return the largest lag in seconds; None if no queue that lags tells its age."""
    lags = [one.lag_s for one in queues if one.broker_offset > one.consumer_offset]
    if queues and not lags:
        return 0.0
    return max((lag_s for lag_s in lags if lag_s is not None), default=None)


def parts_of(
    sets: Iterable[ReplicaSet], answers: Fields, *keys: str
) -> Iterator[tuple[str, object]]:
    """Yield the answers whose keys begin with one of `keys`, each with the name of its place."""
    for name, told in _masters(sets, answers):
        for key, entry in told.items():
            if key.startswith(keys):
                yield f"{name} {key}", entry


def topics_of(sets: Iterable[ReplicaSet], answers: Fields) -> Mapping[str, Topic]:
    found: dict[str, list[tuple[str, Fields]]] = {}
    for name, told in _masters(sets, answers):
        for topic, config in fields_of(value_of(told, "topics")).items():
            found.setdefault(topic, []).append((name, fields_of(config)))
    return {topic: _topic(topic, parts) for topic, parts in sorted(found.items())}


def queues_of(sets: Iterable[ReplicaSet], answers: Fields) -> tuple[Queue, ...]:
    tables = [
        (key.removeprefix(TOPIC_STATS), name, fields_of(entry))
        for name, told in _masters(sets, answers)
        for key, entry in told.items()
        if key.startswith(TOPIC_STATS)
    ]
    # Sorting a thousand tables is much faster than sorting their ten thousand rows.
    tables.sort(key=_TABLE)
    queues: list[Queue] = []
    for topic, broker, fields in tables:
        wall_ms = whole(fields, "wall_ms")
        queues += [
            Queue(topic, broker, queue_id, least, most, updated_ms or None, wall_ms)
            for queue_id, least, most, updated_ms in sorted(fields.get("value") or (), key=_FIRST)
        ]
    return tuple(queues)


def groups_of(sets: Sequence[ReplicaSet], answers: Fields) -> Mapping[str, Group]:
    masters = list(_masters(sets, answers))
    names: set[str] = set()
    lags: dict[str, list[_LagTable]] = {}
    reserved_s = {one.name: one.master.reserved_s for one in sets if one.master is not None}
    connected: dict[str, list[tuple[str, Fields]]] = {}
    owners: dict[str, dict[tuple[str, str, int], str]] = {}
    for broker, told in masters:
        names.update(fields_of(value_of(told, "groups")))
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
            found = lags.setdefault(group, [])
            found += [(topic, broker, rows, wall_ms) for topic, rows in topics.items()]
    names.update(lags, connected)
    return {
        name: _group(
            name,
            _lags(lags.get(name, []), owners.get(name, {}), reserved_s),
            connected.get(name),
            owners.get(name),
        )
        for name in sorted(names)
    }


def _lags(
    tables: list[_LagTable],
    owners: Mapping[tuple[str, str, int], str],
    reserved_s: Mapping[str, int | None],
) -> tuple[QueueLag, ...]:
    tables.sort(key=_TABLE)
    return tuple(
        QueueLag(
            topic,
            broker,
            queue_id,
            end,
            consumed,
            consumed_ms or None,
            wall_ms,
            owners.get((topic, broker, queue_id)) if owners else None,
            # Recordings of earlier versions have rows of four.
            kept[0] if kept else None,
            kept[1] if kept else None,
            reserved_s.get(broker),
        )
        for topic, broker, rows, wall_ms in tables
        for queue_id, end, consumed, consumed_ms, *kept in sorted(rows, key=_FIRST)
    )


def _group(
    name: str,
    lags: tuple[QueueLag, ...],
    connected: list[tuple[str, Fields]] | None,
    owners: Mapping[tuple[str, str, int], str] | None,
) -> Group:
    if connected is None:
        return Group(name=name, queues=lags, members=None)
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
        read(
            GroupMember,
            row,
            client_id=client_id,
            brokers=tuple(brokers),
            queue_count=counts.get(client_id) if owners else None,
        )
        for client_id, (row, brokers) in sorted(rows.items())
    )
    first = connected[0][1]
    return Group(
        name=name,
        queues=lags,
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
    """Yield each set's name and the answers of its master."""
    for one in sets:
        if one.master is not None:
            yield one.name, fields_of(answers.get(one.master.address))


def value_of(told: Fields, key: str) -> object:
    """Return what a node told last about `key`; None if it told nothing."""
    return fields_of(told.get(key)).get("value")
