"""Facts of consumer groups: a list, and one in detail."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from trioha.failover.asking import Answer, Flow
from trioha.jobs.cluster_map import read_map, silent_in_words
from trioha.jobs.members import Member, RunningInfo, read_connections, read_running_infos
from trioha.jobs.telling import JobScope, ask_many, going_on, no_such, read_each, side_by_side
from trioha.jobs.topics import Traffic, queues_of, topic_names, traffic
from trioha.watch.catch_up import catch_up_s
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue, group_table_from_dict
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import integer, list_of, object_of
from trioha.wire.names import RETRY_PREFIX, SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, is_retry_topic


@attrs.frozen
class ListedGroup:
    """One group of a list."""

    name: str
    members: int
    model: str
    topics: list[str]
    lag: int
    """Messages that it has not consumed, redeliveries included."""


@attrs.frozen
class GroupList:
    """Consumer groups by name."""

    groups: list[ListedGroup]
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


@attrs.frozen
class GroupQueue:
    """A group's progress in one queue."""

    topic: str
    broker: str
    queue_id: int
    min_offset: int | None
    """First offset that the broker holds; null where it does not tell."""
    max_offset: int
    offset: int
    lag: int
    lag_s: float | None
    """Age in seconds of the oldest message that is not consumed; null where it is not known."""
    owner: str | None
    """Id of the client that holds the queue; null where no member tells."""


@attrs.frozen
class GroupTopic:
    """A group's progress in one topic."""

    topic: str
    lag: int
    lag_s: float | None
    consumes: Traffic | None
    arrives: Traffic | None
    eta_s: float | None
    """Seconds until it has caught up at the rates of the last minute; null if it does not."""


@attrs.frozen
class GroupDetail:
    """All that is known of one group."""

    name: str
    model: str
    kind: str
    members: list[Member]
    subscriptions: dict[str, str]
    conflicts: list[str]
    """Members whose subscriptions differ: some of the messages reach none of them."""
    lag: int
    topics: list[GroupTopic]
    queues: list[GroupQueue]
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


Progress = dict[MessageQueue, tuple[int, int]]
"""Queue → the broker's next offset, the group's offset."""


def group_names(scope: JobScope) -> Flow[list[str]]:
    """Return the names of all groups that ever read something, sorted."""
    names = yield from topic_names(scope)
    return [name.removeprefix(RETRY_PREFIX) for name in names if is_retry_topic(name)]


@going_on
def list_groups(scope: JobScope, *, everything: bool = False, broker: str = "") -> Flow[GroupList]:
    """List the groups; with `everything` the system's own too; lag on one broker if named.

    Errors: Unreachable, CommandError.
    """
    known = yield from read_map(scope)
    addresses = list(known.readers(broker=broker).values()) if known.brokers else []
    lags: dict[str, int] = {}
    topics: dict[str, set[str]] = {}
    code = RequestCode.GET_BROKER_CONSUME_STATS
    for answer in (yield from read_each(scope, addresses, code, {"isOrder": False})).values():
        body = object_of(fastjson.loads(answer.body), "consume stats")
        for value in list_of(body.get("consumeStatsList"), "groups"):
            for group, stats in object_of(value, "group").items():
                lags.setdefault(group, 0)
                for one in list_of(stats, group):
                    for queue, (end, offset) in _progress_of(one).items():
                        lags[group] += end - offset
                        topics.setdefault(group, set()).add(queue.topic)
    names = [name for name in sorted(lags) if everything or not _is_system(name)]
    lines = []
    connections = yield from side_by_side(read_connections(scope, one, addresses) for one in names)
    for name, told in zip(names, connections, strict=True):
        read = {topic for topic in topics.get(name, ()) if not is_retry_topic(topic)}
        read |= {topic for topic in told.subscriptions if not is_retry_topic(topic)}
        lines.append(ListedGroup(name, len(told.members), told.model, sorted(read), lags[name]))
    return GroupList(lines, silent_in_words(scope, known))


@going_on
def describe_group(scope: JobScope, group: str, *, ask_clients: bool = True) -> Flow[GroupDetail]:
    """Describe one group. With `ask_clients`, its members are asked which queues they hold.

    Errors: NotThere, Unreachable, CommandError.
    """
    known = yield from read_map(scope)
    addresses = list(known.readers().values())
    told = yield from read_connections(scope, group, addresses)
    progress = yield from read_progress(scope, group, addresses)
    # Topics that members subscribe to and have not committed anything in yet.
    new = told.subscriptions.keys() - {queue.topic for queue in progress}
    for more in (
        yield from side_by_side(_progress_in(scope, group, addresses, one) for one in sorted(new))
    ):
        progress |= more
    if not told.members and not progress:
        yield from check_group_exists(scope, group, addresses)
    infos: dict[str, RunningInfo] = {}
    if ask_clients and told.members:
        infos = yield from read_running_infos(scope, group, told)
    owners = {
        (held.topic, held.broker, held.queue_id): info.client_id
        for info in infos.values()
        for held in info.queues
    }
    names = sorted({queue.topic for queue in progress})
    spans = yield from _time_spans(scope, group, names, addresses)
    begins: dict[tuple[str, str, int], int] = {}
    each = yield from side_by_side(_begins(scope, name, addresses) for name in names)
    for name, stats in zip(names, each, strict=True):
        begins |= {(name, *place): begin for place, begin in stats.items()}
    queues = []
    for queue, (end, offset) in sorted(progress.items()):
        place = (queue.topic, queue.broker_name, queue.queue_id)
        lag = end - offset
        lag_s = spans.get(place)
        queues.append(
            GroupQueue(
                *place,
                begins.get(place),
                end,
                offset,
                lag,
                lag_s if lag > 0 else 0.0,
                owners.get(place),
            )
        )
    topics = yield from side_by_side(
        _topic_progress(scope, group, name, queues, addresses) for name in names
    )
    return GroupDetail(
        group,
        told.model,
        told.kind,
        told.members,
        told.subscriptions,
        _conflicts(infos),
        sum(one.lag for one in queues),
        topics,
        queues,
        silent_in_words(scope, known),
    )


def check_group_exists(scope: JobScope, group: str, addresses: list[str]) -> Flow[None]:
    """Errors: NotThere with the nearest name when no broker knows the group."""
    # Not request 352: a broker, and that of RocketMQ 5, creates the group that it asks for.
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    replies = yield from ask_many([scope.ask(one, code) for one in addresses])
    told = [reply for reply in replies if isinstance(reply, Answer) and reply.is_success]
    if any(group in group_table_from_dict(fastjson.loads(one.body))[1] for one in told):
        return
    names = yield from group_names(scope)
    if group not in names:
        raise no_such("group", group, names)


def read_progress(
    scope: JobScope, group: str, addresses: list[str], topic: str = ""
) -> Flow[Progress]:
    """Return a group's progress in every queue (208). Errors: Unreachable, CommandError."""
    fields = {"consumerGroup": group, **({"topic": topic} if topic else {})}
    found: Progress = {}
    answers = yield from read_each(scope, addresses, RequestCode.GET_CONSUME_STATS, fields)
    for answer in answers.values():
        found |= _progress_of(fastjson.loads(answer.body))
    return found


def _progress_in(scope: JobScope, group: str, addresses: list[str], topic: str) -> Flow[Progress]:
    """Return a group's progress in a topic that not every broker has."""
    fields = {"consumerGroup": group, "topic": topic}
    asks = [scope.ask(one, RequestCode.GET_CONSUME_STATS, fields) for one in addresses]
    found: Progress = {}
    for reply in (yield from ask_many(asks)):
        if isinstance(reply, Answer) and reply.is_success:
            found |= _progress_of(fastjson.loads(reply.body))
    return found


def _progress_of(stats: object) -> Progress:
    table = object_of(stats, "stats").get("offsetTable")
    found: Progress = {}
    # An empty table reads as a plain object.
    for key, value in table.items() if isinstance(table, fastjson.ObjectKeyMap) else ():
        offsets = object_of(value, "offsets")
        found[MessageQueue.from_dict(key)] = (
            integer(offsets, "brokerOffset"),
            integer(offsets, "consumerOffset"),
        )
    return found


def _time_spans(
    scope: JobScope, group: str, topics: list[str], addresses: list[str]
) -> Flow[Mapping[tuple[str, str, int], float]]:
    """Return the age in seconds of what each queue holds next for the group (request 303)."""
    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    asks = [
        scope.ask(address, code, {"topic": topic, "group": group})
        for topic in topics
        for address in addresses
    ]
    spans = {}
    for reply in (yield from ask_many(asks)):
        if not (isinstance(reply, Answer) and reply.is_success):
            continue
        body = object_of(fastjson.loads(reply.body), "time spans")
        for value in list_of(body.get("consumeTimeSpanSet"), "spans"):
            span = object_of(value, "span")
            queue = MessageQueue.from_dict(span.get("messageQueue"))
            place = (queue.topic, queue.broker_name, queue.queue_id)
            spans[place] = integer(span, "delayTime") / 1000
    return spans


def _begins(scope: JobScope, topic: str, addresses: list[str]) -> Flow[dict[tuple[str, int], int]]:
    """Return the first offset that each broker holds of each queue; a topic may be gone."""
    asks = [scope.ask(one, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}) for one in addresses]
    replies = yield from ask_many(asks)
    there = [one for one in replies if isinstance(one, Answer) and one.is_success]
    return {(one.broker, one.queue_id): one.min_offset for one in queues_of(there)}


def _topic_progress(
    scope: JobScope, group: str, topic: str, queues: list[GroupQueue], addresses: list[str]
) -> Flow[GroupTopic]:
    mine = [one for one in queues if one.topic == topic]
    lag = sum(one.lag for one in mine)
    ages = [one.lag_s for one in mine if one.lag_s is not None]
    consumes = yield from traffic(scope, addresses, "GROUP_GET_NUMS", f"{topic}@{group}")
    arrives = yield from traffic(scope, addresses, "TOPIC_PUT_NUMS", topic)
    return GroupTopic(
        topic, lag, max(ages, default=None), consumes, arrives, _eta_s(lag, consumes, arrives)
    )


def _eta_s(lag: int, consumes: Traffic | None, arrives: Traffic | None) -> float | None:
    gain = None if consumes is None or arrives is None else consumes.per_s - arrives.per_s
    eta_s = catch_up_s(lag, gain)
    return None if eta_s is None else round(eta_s, 1)


def _conflicts(infos: Mapping[str, RunningInfo]) -> list[str]:
    """Say which members subscribe to something else than the first."""
    told = [(one.client_id, one.subscriptions) for one in infos.values()]
    if not told:
        return []
    first_id, first = told[0]
    return [
        f"{client_id} reads {_in_words(other)}, but {first_id} reads {_in_words(first)}"
        for client_id, other in told[1:]
        if other != first
    ]


def _in_words(subscriptions: Mapping[str, str]) -> str:
    shown = [
        f"{topic}:{text}" for topic, text in subscriptions.items() if not is_retry_topic(topic)
    ]
    return ", ".join(shown) or "nothing"


def _is_system(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)
