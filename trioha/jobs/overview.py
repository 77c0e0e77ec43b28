"""A whole cluster: what it is made of, what is wrong with it, what goes through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from trioha.failover.asking import Answer, Ask, Flow, ask_all
from trioha.jobs.brokers import ListedBroker, list_brokers
from trioha.jobs.cluster_map import read_map, silent_in_words
from trioha.jobs.groups import list_groups
from trioha.jobs.namesrvs import ListedNamesrv, list_namesrvs
from trioha.jobs.telling import ASKED_AT_ONCE_MAX, JobScope, NotThere, ask_many, going_on
from trioha.jobs.topics import kind_of, topic_names
from trioha.remoting.channel import Instant
from trioha.watch.alerts import AlertLevel, judge
from trioha.watch.collector import Collector, Interest
from trioha.watch.rule import Area, Rule
from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import integer, object_of
from trioha.wire.remoting_command import RemotingCommand

_ONCE_PERIOD_MS = 86_400_000


@attrs.frozen
class ClusterDetail:
    """Name servers, brokers, topics and groups of a cluster."""

    clusters: dict[str, list[str]]
    """Broker names of each cluster."""
    namesrvs: list[ListedNamesrv]
    brokers: list[ListedBroker]
    topics: int
    groups: int
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


@attrs.frozen
class Problem:
    """One thing that is not well."""

    level: str
    """CRITICAL, WARNING or UNKNOWN."""
    rule: str
    subject: str
    value: float | None
    what: str


@attrs.frozen
class ClusterHealth:
    """Whether a cluster is well, by the alert rules."""

    state: str
    """OK, WARNING, CRITICAL, or UNKNOWN where a node that should tell does not."""
    problems: list[Problem]
    checked: int
    """Readings that were compared with a threshold."""


@attrs.frozen
class BusyTopic:
    """A topic and what went into it in the last minute."""

    topic: str
    per_s: float
    day: int


@attrs.frozen
class SlowGroup:
    """A group and what it has not consumed."""

    group: str
    members: int
    lag: int


@attrs.frozen
class ClusterTop:
    """Brokers of a cluster, its busiest topics, and the groups that lag most."""

    brokers: list[ListedBroker]
    topics: list[BusyTopic]
    groups: list[SlowGroup]
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


@going_on
def describe_cluster(scope: JobScope, *, cluster: str = "") -> Flow[ClusterDetail]:
    """Describe what a cluster is made of. Errors: NotThere when no broker is registered."""
    known = yield from read_map(scope)
    known.names(cluster)
    namesrvs = yield from list_namesrvs(scope)
    brokers = yield from list_brokers(scope, cluster=cluster)
    names = yield from topic_names(scope)
    groups = yield from list_groups(scope)
    clusters = {
        name: sorted(held) for name, held in known.clusters.items() if cluster in ("", name)
    }
    count = sum(kind_of(name, known) == "normal" for name in names)
    return ClusterDetail(
        clusters,
        namesrvs.namesrvs,
        brokers.brokers,
        count,
        len(groups.groups),
        silent_in_words(scope, known),
    )


def cluster_health(
    scope: JobScope, rules: Mapping[str, Rule], instant: Callable[[], Instant]
) -> Flow[ClusterHealth]:
    """Hold the alert rules against one round of answers. Errors: NotThere for an empty cluster."""
    snapshot = yield from look(scope, Interest(topics=True), instant)
    if not snapshot.sets and any(not one.answer.error for one in snapshot.namesrvs):
        raise NotThere("no broker is registered with the name server")
    problems, checked = [], 0
    for verdict in judge(snapshot, rules, Area):
        checked += verdict.level is not None
        if verdict.level in (AlertLevel.WARN, AlertLevel.CRIT):
            level = "CRITICAL" if verdict.level is AlertLevel.CRIT else "WARNING"
            reading = verdict.reading
            problems.append(
                Problem(level, verdict.rule.name, reading.subject, reading.value, reading.text)
            )
    silent = [
        Problem("UNKNOWN", "", f"{one.name} at {one.address}", None, one.answer.error)
        for a_set in snapshot.sets
        for one in a_set.replicas
        if one.answer.error
    ]
    silent += [
        Problem("UNKNOWN", "", f"name server {one.address}", None, one.answer.error)
        for one in snapshot.namesrvs
        if one.answer.error
    ]
    levels = {one.level for one in problems}
    state = next((name for name in ("CRITICAL", "WARNING") if name in levels), "OK")
    if state == "OK" and silent:
        state = "UNKNOWN"
    return ClusterHealth(state, [*problems, *silent], checked)


def look(
    scope: JobScope, interest: Interest, instant: Callable[[], Instant]
) -> Flow[ClusterSnapshot]:
    """Ask what the watch asks, once; a node that does not answer is in it with the reason."""
    collector = Collector(scope.namesrvs, period_ms=_ONCE_PERIOD_MS, interest=interest)
    while due := collector.due(instant()):
        for begin in range(0, len(due), ASKED_AT_ONCE_MAX):
            some = due[begin : begin + ASKED_AT_ONCE_MAX]
            asks = []
            for question in some:
                command = question.command()
                asks.append(
                    Ask(
                        question.address,
                        command.code,
                        command.body_bytes(),
                        scope.patience_s,
                        dict(command.ext_fields),
                    )
                )
            replies = yield from ask_all(*asks)
            for question, reply in zip(some, replies, strict=True):
                if isinstance(reply, Answer):
                    response = RemotingCommand(reply.code, {}, reply.body, remark=reply.remark)
                    collector.answered(question, response, instant())
                else:
                    collector.failed(question, reply.reason, instant())
    return ClusterSnapshot.of(collector.raw(instant().wall_ms))


@going_on
def cluster_top(scope: JobScope, *, count: int = 10) -> Flow[ClusterTop]:
    """Return the busiest topics and the groups that lag most. Errors: NotThere, Unreachable."""
    known = yield from read_map(scope)
    masters = list(known.masters().values())
    brokers = yield from list_brokers(scope)
    names = [name for name in (yield from topic_names(scope)) if kind_of(name, known) == "normal"]
    code = RequestCode.VIEW_BROKER_STATS_DATA
    asks = [
        scope.ask(address, code, {"statsName": "TOPIC_PUT_NUMS", "statsKey": name})
        for name in names
        for address in masters
    ]
    replies = yield from ask_many(asks)
    busy = []
    for index, name in enumerate(names):
        minute = day = 0
        for reply in replies[index * len(masters) : (index + 1) * len(masters)]:
            if isinstance(reply, Answer) and reply.is_success:
                told = object_of(fastjson.loads(reply.body), "stats")
                minute += integer(object_of(told.get("statsMinute"), "minute"), "sum")
                day += integer(object_of(told.get("statsDay"), "day"), "sum")
        busy.append(BusyTopic(name, round(minute / 60, 2), day))
    groups = yield from list_groups(scope)
    slow = [SlowGroup(one.name, one.members, one.lag) for one in groups.groups]
    return ClusterTop(
        brokers.brokers,
        sorted(busy, key=lambda one: (-one.per_s, -one.day, one.topic))[:count],
        sorted(slow, key=lambda one: (-one.lag, one.group))[:count],
        silent_in_words(scope, known),
    )
