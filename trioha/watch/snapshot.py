"""A cluster at one moment, as the screens, the checks and the recordings mean it.

Made from the raw answers of `watch.collector`, and from nothing else: the same file of raw answers
shows the same screens. What nobody has told is None, never zero. What was told some time ago says
when (`Answer.wall_ms`), and ages that a node told are carried on to the moment of the snapshot.

Tables of topics, queues and groups are understood when somebody asks for them: a screen of
replication does not pay for ten thousand queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import attrs

from trioha.watch.questions import CLIENT, GROUPS, MEMBERS, PROGRESS, TOPIC_STATS
from trioha.watch.queues import Group, Queue, Topic, groups_of, parts_of, queues_of, topics_of
from trioha.watch.raft import RaftState
from trioha.watch.readings import Fields, fields_of, words
from trioha.watch.replica import Answer, MasterEnd, Replica, answer_of, replica_of
from trioha.watch.tables import Tables


@attrs.frozen(kw_only=True)
class Namesrv:
    """One name server, and what it believes."""

    address: str
    answer: Answer
    masters: Mapping[str, str]
    """Broker name -> the address it routes to as id 0."""
    brokers: Mapping[str, Mapping[int, str]]
    """Broker name -> id -> address."""


@attrs.frozen(kw_only=True)
class ReplicaSet:
    """The members of one broker name, those that are gone included."""

    cluster: str
    name: str
    replicas: tuple[Replica, ...]

    @property
    def masters(self) -> tuple[Replica, ...]:
        """Who takes itself for master and answers; more than one is a split."""
        found = tuple(one for one in self.replicas if one.is_master and not one.answer.error)
        if self.is_raft:
            # A leader of an older term commits nothing, and is about to hear of the newer one.
            newest = max((one.epoch or 0 for one in found), default=0)
            found = tuple(one for one in found if (one.epoch or 0) == newest)
        return found

    @property
    def is_raft(self) -> bool:
        """It elects its masters itself."""
        return any(one.raft is not None for one in self.replicas)

    @property
    def raft_states(self) -> tuple[RaftState, ...]:
        """Of the members that answer."""
        return tuple(one.raft for one in self.replicas if one.raft and not one.answer.error)

    @property
    def master(self) -> Replica | None:
        """The one live master; else the one that was it last; None if there is none."""
        living = self.masters
        if living:
            return max(living, key=lambda one: one.epoch or 0)
        return next((one for one in self.replicas if one.is_master), None)


@attrs.frozen(kw_only=True, slots=False)
class ClusterSnapshot:
    """Everything that is known at `at_wall_ms`."""

    at_wall_ms: int
    namesrvs: tuple[Namesrv, ...]
    sets: tuple[ReplicaSet, ...]
    raw: Mapping[str, Any] = attrs.field(repr=False, eq=False)
    tables: Tables = attrs.field(factory=Tables, repr=False, eq=False)

    @classmethod
    def of(cls, raw: Mapping[str, Any], tables: Tables | None = None) -> Self:
        """Never raises for what is missing or odd in the answers.

        Who makes one after the other gives them the same `tables`.
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
        return topics_of(self.sets, fields_of(self.raw.get("answers")))

    @cached_property
    def queues(self) -> tuple[Queue, ...]:
        """Both ends of the queues of those topics whose stats were asked for."""
        answers = fields_of(self.raw.get("answers"))
        parts = parts_of(self.sets, answers, TOPIC_STATS)
        return self.tables.of("queues", parts, lambda: queues_of(self.sets, answers))

    @cached_property
    def groups(self) -> Mapping[str, Group]:
        """Consumer groups with their lag, queue by queue, and their members where asked for."""
        answers = fields_of(self.raw.get("answers"))
        parts = parts_of(self.sets, answers, GROUPS, PROGRESS, MEMBERS, CLIENT)
        return self.tables.of("groups", parts, lambda: groups_of(self.sets, answers))

    @property
    def replicas(self) -> tuple[Replica, ...]:
        return tuple(replica for one in self.sets for replica in one.replicas)

    def replica(self, address: str) -> Replica | None:
        return next((one for one in self.replicas if one.address == address), None)

    def set_of(self, name: str) -> ReplicaSet | None:
        """The set of this broker name; of the first cluster that has one."""
        return next((one for one in self.sets if one.name == name), None)


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
        sets.append(ReplicaSet(cluster=cluster, name=name, replicas=_linked(replicas)))
    return tuple(sets)


def _linked(replicas: list[Replica]) -> tuple[Replica, ...]:
    """Each slave with its master's view of it, masters first, then by id."""
    masters = [one for one in replicas if one.is_master]
    ends = {(master.address, end.peer): end for master in masters for end in master.links}
    slaves = [one for one in replicas if not one.is_master]
    found: dict[str, tuple[str, str]] = {}

    def take(slave: Replica, key: tuple[str, str]) -> None:
        found[slave.address] = key
        free.discard(key)

    free = set(ends)
    # A leader names its followers; of two leaders the newer one's word counts.
    for key, end in sorted(ends.items(), key=lambda pair: -(pair[1].epoch or 0)):
        follower = next((one for one in slaves if _is_follower(one, end)), None)
        if follower is not None and follower.address not in found:
            take(follower, key)
    # A slave is known by the id it was configured with, where the link tells that. A Java slave's
    # does not: then its host has to do, if there is but one slave there whose link is not known.
    free = {key for key in free if ends[key].member_id is None}
    for slave in slaves:
        home_id = slave.registered_id if slave.home_id is None else slave.home_id
        for key in sorted(free):
            if ends[key].home_id == home_id:
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
    """Is this what a leader tells of that member? One that never answered has an address only."""
    if end.member_id is None:
        return False
    return (
        slave.address == end.peer if slave.raft is None else slave.raft.member_id == end.member_id
    )


def _master_of(slave: Replica, masters: list[Replica]) -> Replica | None:
    """Whom a slave without a link should follow: the newest epoch, then whoever answers."""
    return max(
        masters,
        key=lambda one: (one.epoch or 0, not one.answer.error, one.registered),
        default=None,
    )


def _place(replica: Replica) -> tuple[bool, int, str]:
    return not replica.is_master, replica.registered_id, replica.address


def _host(address: str) -> str:
    return address.rpartition(":")[0]
