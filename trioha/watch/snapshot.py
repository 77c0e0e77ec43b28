"""A cluster at one time, for screens, checks and replays.

A snapshot is made from the raw answers of `watch.collector` alone, so the same answers always show
the same screens. An unknown value is None, never zero. An old answer has its time
(`LastAnswer.wall_ms`), and the ages in it are increased up to the time of the snapshot.

Tables of topics, queues and groups are made when they are first read: a screen of replication does
not pay for ten thousand queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from operator import is_
from typing import Any, Self, TypeVar

import attrs

from trioha.watch.collector import THRIFT, Interest
from trioha.watch.questions import CLIENT, GROUPS, MEMBERS, PROGRESS, TOPIC_STATS, TOPICS
from trioha.watch.queues import (
    Group,
    Queue,
    Topic,
    TopicEnds,
    TopicGroup,
    TopicHeld,
    ends_of,
    groups_by_topic,
    groups_of,
    held_of,
    parts_of,
    queues_of,
    topics_of,
    value_of,
)
from trioha.watch.readings import Fields, fields_of, words
from trioha.watch.replica import LastAnswer, MasterEnd, Replica, answer_of, replica_of
from trioha.watch.replica_set import ReplicaSet

T = TypeVar("T")

_ROWS_PER_S = 2_500
"""Rows of large tables that are made anew per second in the mean. The brokers of a large cluster
answer one after the other: without a limit, each second of a round would make all 50,000 anew."""


class Tables:
    """Cached tables by kind, with the answers they were made from; one per stream of snapshots.

    Queue tables are asked for every five seconds and read every second. An answer is the same
    object from one snapshot to the next until a newer one replaces it (`Collector.raw`), and the
    value in it until a node tells another one. So comparing identities finds out whether something
    is new, and four reads of five cost nothing.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[list[str], list[object], Any]] = {}
        self._rest: dict[str, tuple[int, int]] = {}
        """Wall ms between which a large table is not made again."""
        self.thrifty = False
        """The viewer has used up its share of a processor: large tables are made less often."""

    def of(
        self,
        kind: str,
        parts: Iterable[tuple[str, object]],
        make: Callable[[], T],
        *,
        at_wall_ms: int = 0,
        rows_of: Callable[[T], int] | None = None,
    ) -> T:
        """Return `make()`, or the cached table if `parts` (place, answer) are still the same.

        With `rows_of`, a large table is kept for a while even if some parts are newer.
        """
        kept = self._kept.get(kind)
        begin_ms, end_ms = self._rest.get(kind, (0, 0))
        found: T
        if kept is not None and begin_ms <= at_wall_ms < end_ms:
            # Collecting the parts of thousands of tables is slow: a rest needs none.
            found = kept[2]
            return found
        places: list[str] = []
        answers: list[object] = []
        for place, answer in parts:
            places.append(place)
            answers.append(answer)
        if kept is not None and kept[0] == places and all(map(is_, kept[1], answers)):
            found = kept[2]
            return found
        made = make()
        self._kept[kind] = places, answers, made
        if rows_of is not None:
            rows_per_s = _ROWS_PER_S // THRIFT if self.thrifty else _ROWS_PER_S
            self._rest[kind] = at_wall_ms, at_wall_ms + rows_of(made) * 1000 // rows_per_s
        return made


@attrs.frozen(kw_only=True)
class Namesrv:
    """One name server and its view of the cluster."""

    address: str
    answer: LastAnswer
    masters: Mapping[str, str]
    """Broker name -> address registered as id 0."""
    brokers: Mapping[str, Mapping[int, str]]
    """Broker name -> id -> address."""


@attrs.frozen(kw_only=True, slots=False)
class ClusterSnapshot:
    """State of the cluster as known at `at_wall_ms`."""

    at_wall_ms: int
    namesrvs: tuple[Namesrv, ...]
    sets: tuple[ReplicaSet, ...]
    raw: Mapping[str, Any] = attrs.field(repr=False, eq=False)
    tables: Tables = attrs.field(factory=Tables, repr=False, eq=False)

    @classmethod
    def of(cls, raw: Mapping[str, Any], tables: Tables | None = None) -> Self:
        """Make a snapshot; never raises for a missing or odd field in the answers.

        A caller that makes several passes the same `tables` to each.
        """
        at_wall_ms = int(raw["at_wall_ms"])
        answers = fields_of(raw.get("answers"))
        return cls(
            at_wall_ms=at_wall_ms,
            namesrvs=tuple(
                _namesrv(address, fields_of(answers.get(address)), at_wall_ms)
                for address in raw.get("namesrvs") or ()
            ),
            sets=_sets(fields_of(raw.get("members")), answers, at_wall_ms),
            raw=raw,
            tables=tables if tables is not None else Tables(),
        )

    @cached_property
    def topics(self) -> Mapping[str, Topic]:
        answers = fields_of(self.raw.get("answers"))
        parts = [
            (one.name, value_of(fields_of(answers.get(one.master.address)), TOPICS))
            for one in self.sets
            if one.master is not None
        ]
        return self.tables.of("topics", parts, lambda: topics_of(self.sets, answers))

    @cached_property
    def queues(self) -> tuple[Queue, ...]:
        """Queues of the topics whose stats were asked for."""
        answers = fields_of(self.raw.get("answers"))
        parts = parts_of(self.sets, answers, TOPIC_STATS)
        return self.tables.of(
            "queues",
            parts,
            lambda: queues_of(self.sets, answers),
            at_wall_ms=self.at_wall_ms,
            rows_of=len,
        )

    @cached_property
    def held(self) -> Mapping[str, TopicHeld]:
        """Sum over the queues of each topic."""
        return self.tables.of("held", [("queues", self.queues)], lambda: held_of(self.queues))

    @cached_property
    def ends(self) -> Mapping[str, TopicEnds]:
        """Sum of the ends of each topic's queues."""
        return self.tables.of("ends", [("queues", self.queues)], lambda: ends_of(self.queues))

    @cached_property
    def groups(self) -> Mapping[str, Group]:
        """Consumer groups with their lag by queue, and with members if those were asked for."""
        answers = fields_of(self.raw.get("answers"))
        parts = parts_of(self.sets, answers, GROUPS, PROGRESS, MEMBERS, CLIENT)
        return self.tables.of(
            "groups",
            parts,
            lambda: groups_of(self.sets, answers),
            at_wall_ms=self.at_wall_ms,
            rows_of=lambda groups: sum(len(one.queues) for one in groups.values()),
        )

    @cached_property
    def groups_by_topic(self) -> Mapping[str, tuple[TopicGroup, ...]]:
        """Groups of each topic, the one with the largest lag first."""
        parts = [("groups", self.groups)]
        return self.tables.of("groups_by_topic", parts, lambda: groups_by_topic(self.groups))

    def prepare(self, interest: Interest) -> None:
        """Make the tables that alerts and the screen of this interest read.

        Thread: any, while no other makes tables of the same stream of snapshots.
        """
        groups = [("groups", self.groups)]
        self.tables.of("read for alerts", groups, lambda: _read_for_alerts(self.groups))
        if interest.topics:
            self.tables.of("read for topics", groups, lambda: _read_for_topics(self.groups))
            _ = self.topics
        if interest.stats_of_all:
            _ = self.held, self.ends, self.groups_by_topic

    @property
    def replicas(self) -> tuple[Replica, ...]:
        return tuple(replica for one in self.sets for replica in one.replicas)

    def replica(self, address: str) -> Replica | None:
        return next((one for one in self.replicas if one.address == address), None)

    def set_of(self, name: str) -> ReplicaSet | None:
        """Return the set of this broker name, in the first cluster that has one."""
        return next((one for one in self.sets if one.name == name), None)


def _read_for_alerts(groups: Mapping[str, Group]) -> None:
    """Compute what each group keeps once it was read."""
    for group in groups.values():
        _ = group.lag, group.lag_s_without_retries, group.retention_used


def _read_for_topics(groups: Mapping[str, Group]) -> None:
    for group in groups.values():
        _ = group.places_hash, group.told_ms, group.lag_s


def _namesrv(address: str, answers: Fields, at_wall_ms: int) -> Namesrv:
    answer = answer_of(answers.get("cluster"), at_wall_ms)
    brokers = {
        name: {broker_id: where for broker_id, where in fields_of(broker).get("addresses") or ()}
        for name, broker in fields_of(answer.value).items()
    }
    masters = {name: table[0] for name, table in brokers.items() if 0 in table}
    return Namesrv(address=address, answer=answer, masters=masters, brokers=brokers)


def _sets(members: Fields, answers: Fields, at_wall_ms: int) -> tuple[ReplicaSet, ...]:
    grouped: dict[tuple[str, str], list[str]] = {}
    for address, member in members.items():
        key = words(fields_of(member), "cluster") or "", words(fields_of(member), "name") or "?"
        grouped.setdefault(key, []).append(address)
    sets = []
    for (cluster, name), addresses in sorted(grouped.items()):
        replicas = [
            replica_of(
                address, fields_of(members[address]), fields_of(answers.get(address)), at_wall_ms
            )
            for address in addresses
        ]
        replicas = _without_superseded(_with_home_ids(replicas))
        sets.append(ReplicaSet(cluster=cluster, name=name, replicas=_linked(replicas)))
    return tuple(sets)


def _with_home_ids(replicas: list[Replica]) -> list[Replica]:
    """Take the id of a member that does not tell it from the other members of its set."""
    told: dict[str, int] = {}
    for one in replicas:
        members = fields_of(one.answer.value).get("members")
        for number, address in fields_of(members).items():
            if str(number).isdecimal():
                told[str(address)] = int(number)
    return [
        attrs.evolve(one, home_id=told.get(one.address)) if one.home_id is None else one
        for one in replicas
    ]


def _without_superseded(replicas: list[Replica]) -> list[Replica]:
    """Take the role from a master that does not answer while another master of its set does.

    Its last answer calls it master, and that answer is older than its successor's.
    """
    if not any(one.is_master and not one.answer.error for one in replicas):
        return replicas
    return [
        attrs.evolve(one, is_master=False, standing=None, links=())
        if one.is_master and one.answer.error
        else one
        for one in replicas
    ]


def _linked(replicas: list[Replica]) -> tuple[Replica, ...]:
    """Join each slave with its master's end of the link; masters come first, then by id."""
    masters = [one for one in replicas if one.is_master]
    ends = {(master.address, end.peer): end for master in masters for end in master.links}
    slaves = [one for one in replicas if not one.is_master]
    found: dict[str, tuple[str, str]] = {}

    def take(slave: Replica, key: tuple[str, str]) -> None:
        found[slave.address] = key
        free.discard(key)

    free = set(ends)
    # A leader names its followers; of two leaders the newer one counts.
    for key, end in sorted(ends.items(), key=lambda pair: -(pair[1].epoch or 0)):
        follower = next((one for one in slaves if _is_follower(one, end)), None)
        if follower is not None and follower.address not in found:
            take(follower, key)
    # A link tells its slave's configured id. A Java slave's link does not: then the host decides,
    # if only one slave on that host has no known link.
    free = {key for key in free if ends[key].member_id is None}
    for slave in slaves:
        for key in sorted(free):
            if ends[key].home_id == slave.number:
                take(slave, key)
                break
    for slave in slaves:
        if slave.address in found:
            continue
        host = _host(slave.address)
        same = [key for key in free if _host(key[1]) == host and ends[key].home_id is None]
        rivals = [one for one in slaves if one.address not in found]
        rivals = [one for one in rivals if _host(one.address) == host]
        if len(same) == 1 and len(rivals) == 1:
            take(slave, same[0])
    by_address = {one.address: one for one in masters}
    linked = [
        attrs.evolve(one, link=ends[found[one.address]], master=by_address[found[one.address][0]])
        if one.address in found
        else attrs.evolve(one, master=_master_of(one, masters))
        for one in slaves
    ]
    return tuple(sorted([*masters, *linked], key=_place))


def _is_follower(slave: Replica, end: MasterEnd) -> bool:
    """Return whether a leader's end is that of `slave`; one that never answered has no id."""
    if end.member_id is None:
        return False
    return (
        slave.address == end.peer if slave.raft is None else slave.raft.member_id == end.member_id
    )


def _master_of(slave: Replica, masters: list[Replica]) -> Replica | None:
    """Return the master for a slave without a link: newest epoch first, then one that answers."""
    return max(
        masters,
        key=lambda one: (one.epoch or 0, not one.answer.error, one.registered),
        default=None,
    )


def _place(replica: Replica) -> tuple[bool, int, str]:
    return not replica.is_master, replica.number, replica.address


def _host(address: str) -> str:
    return address.rpartition(":")[0]
