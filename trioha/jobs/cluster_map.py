"""Registered brokers: the name servers' table, and choices out of it by name."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from trioha.failover.asking import Answer, Flow, ask_all
from trioha.jobs.telling import JobRefused, JobScope, NotThere, answered, ask_namesrv
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.route import ClusterInfo, TopicRouteData
from trioha.words import what_there_is

MASTER_ID = 0


@attrs.frozen
class ClusterMap:
    """The registered brokers: name, then broker id, then address."""

    brokers: Mapping[str, Mapping[int, str]]
    clusters: Mapping[str, tuple[str, ...]]
    """Broker names of each cluster."""

    def masters(self, cluster: str = "", broker: str = "") -> dict[str, str]:
        """Return the address of each master by broker name; of one cluster or one broker if named.

        Errors: NotThere when there is none.
        """
        names = self.names(cluster, broker)
        found = {
            name: self.brokers[name][MASTER_ID] for name in names if MASTER_ID in self.brokers[name]
        }
        if not found:
            raise NotThere(f"no master of {', '.join(names)} is registered")
        return found

    def names(self, cluster: str = "", broker: str = "") -> list[str]:
        """Return broker names, sorted. Errors: NotThere when there is none."""
        if not self.brokers:
            raise NotThere("no broker is registered with the name server")
        if cluster and cluster not in self.clusters:
            raise NotThere(f"no cluster {cluster}{what_there_is(cluster, self.clusters)}")
        names = set(self.clusters.get(cluster, ()) if cluster else self.brokers)
        if broker:
            if broker not in names:
                where = f" in cluster {cluster}" if cluster else ""
                raise NotThere(f"no broker {broker}{where}{what_there_is(broker, sorted(names))}")
            names = {broker}
        return sorted(names & self.brokers.keys())

    def cluster_of(self, broker: str) -> str:
        return next((name for name, held in self.clusters.items() if broker in held), "")

    def readers(self, cluster: str = "", broker: str = "") -> dict[str, str]:
        """Return of each broker the master's address, or a slave's while there is no master."""
        return {
            name: self.brokers[name][min(self.brokers[name])]
            for name in self.names(cluster, broker)
            if self.brokers[name]
        }


def read_map(scope: JobScope) -> Flow[ClusterMap]:
    """Ask for the registered brokers. Errors: Unreachable, CommandError."""
    answer = yield from ask_namesrv(scope, RequestCode.GET_BROKER_CLUSTER_INFO)
    info = ClusterInfo.decode(answered("the name server", answer).body)
    brokers = {
        name: dict(sorted(data.broker_addrs.items()))
        for name, data in sorted(info.broker_addr_table.items())
    }
    return ClusterMap(brokers, dict(sorted(info.cluster_addr_table.items())))


def silent_in_words(scope: JobScope, known: ClusterMap) -> list[str]:
    """Name the brokers that the job went on without, and why."""
    names = {
        address: f"{name}/{number}"
        for name, nodes in known.brokers.items()
        for number, address in nodes.items()
    }
    silent = scope.silent or {}
    return [f"{names[one]} is left out: {silent[one]}" for one in silent if one in names]


def find_master(known: ClusterMap, broker: str) -> str:
    """Return the address of a broker's master, or of its first slave. Errors: NotThere."""
    known.names(broker=broker)
    addresses = known.brokers[broker]
    if not addresses:
        raise NotThere(f"broker {broker} has no node")
    return addresses[min(addresses)]


def read_route(scope: JobScope, topic: str) -> Flow[TopicRouteData | None]:
    """Ask for the route of a topic; None when there is none. Errors: Unreachable, CommandError."""
    answer = yield from ask_namesrv(scope, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    return TopicRouteData.decode(answered("the name server", answer).body)


def tell_namesrvs(
    scope: JobScope, code: RequestCode, ext_fields: Mapping[str, str]
) -> Flow[list[str]]:
    """Ask every name server for the same change; return what the silent ones are told later.

    Errors: JobRefused when a name server says no.
    """
    notes = []
    replies = yield from ask_all(*[scope.ask(one, code, ext_fields) for one in scope.namesrvs])
    for address, reply in zip(scope.namesrvs, replies, strict=True):
        if not isinstance(reply, Answer):
            notes.append(f"name server {address} does not answer and was not told: {reply.reason}")
        elif not reply.is_success:
            raise JobRefused(f"name server {address}: {reply.remark or reply.code}")
    return notes
