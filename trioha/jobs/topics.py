"""Facts of topics: a list, one in detail, its rates, the groups that read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from trioha.failover.asking import Answer, Flow
from trioha.jobs.cluster_map import ClusterMap, read_map, read_route, silent_in_words
from trioha.jobs.permissions import perm_in_words
from trioha.jobs.telling import (
    JobRefused,
    JobScope,
    answered,
    ask_many,
    ask_namesrv,
    going_on,
    heard_of,
    no_such,
    read_each,
    side_by_side,
)
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue, decode_kv_table, decode_topic_list
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.json_fields import integer, object_of, texts
from trioha.wire.names import is_dlq_topic, is_retry_topic, is_system_topic
from trioha.wire.route import TopicRouteData

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Namespace of a name server's KV configuration: ordered topics and their queues."""


@attrs.frozen
class ListedTopic:
    """One topic of a list."""

    name: str
    kind: str
    """normal, retry, dlq or system."""
    brokers: list[str]
    read_queues: int
    write_queues: int
    perm: str
    order: bool


@attrs.frozen
class TopicList:
    """Topics by name."""

    topics: list[ListedTopic]


@attrs.frozen
class TopicQueue:
    """One queue of a topic."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    last_stored_ms: int | None
    """Milliseconds since 1970; null while the queue is empty."""


@attrs.frozen
class Traffic:
    """Messages within the last minute, hour and day, as the brokers count them."""

    minute: int
    hour: int
    day: int
    per_s: float
    """Messages per second over the last minute."""


@attrs.frozen
class TopicOnBroker:
    """A topic's settings on one broker."""

    broker: str
    address: str
    read_queues: int
    write_queues: int
    perm: str


@attrs.frozen
class TopicDetail:
    """All that is known of one topic."""

    name: str
    kind: str
    order: bool
    brokers: list[TopicOnBroker]
    messages: int
    puts: Traffic | None
    """Null until a broker has counted for ten seconds."""
    groups: list[str]
    """Groups that read the topic now or have read it once."""
    queues: list[TopicQueue]
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


@attrs.frozen
class TopicStats:
    """Traffic into a topic, and out of it by group."""

    name: str
    puts: Traffic | None
    groups: dict[str, Traffic | None]
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


def kind_of(topic: str, known: ClusterMap | None = None) -> str:
    """Return normal, retry, dlq or system."""
    if is_retry_topic(topic):
        return "retry"
    if is_dlq_topic(topic):
        return "dlq"
    if is_system_topic(topic):
        return "system"
    if known is not None:
        own = {*known.brokers, *known.clusters, *(f"{one}_REPLY_TOPIC" for one in known.clusters)}
        if topic in own:
            return "system"
    return "normal"


def topic_names(scope: JobScope) -> Flow[list[str]]:
    """Return the names of all topics, sorted. Errors: Unreachable, CommandError."""
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    answer = yield from ask_namesrv(scope, code)
    return sorted(decode_topic_list(answered("the name server", answer).body))


def list_topics(scope: JobScope, *, everything: bool = False) -> Flow[TopicList]:
    """List the topics of applications, or `everything`: retry, DLQ and system topics too.

    Errors: Unreachable, CommandError.
    """
    known = yield from read_map(scope)
    names = yield from topic_names(scope)
    wanted = [name for name in names if everything or kind_of(name, known) == "normal"]
    ordered = yield from ordered_topics(scope)
    namesrv = yield from _answering_namesrv(scope)
    replies = yield from ask_many(
        [scope.ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name}) for name in wanted]
    )
    lines = []
    for name, reply in zip(wanted, replies, strict=True):
        # A topic that was deleted a moment ago has no route any more.
        if isinstance(reply, Answer) and reply.code == ResponseCode.TOPIC_NOT_EXIST:
            continue
        route = TopicRouteData.decode(answered(namesrv, reply).body)
        lines.append(_line(name, kind_of(name, known), route, name in ordered))
    return TopicList(lines)


@going_on
def describe_topic(scope: JobScope, topic: str) -> Flow[TopicDetail]:
    """Describe one topic. Errors: NotThere, Unreachable, CommandError."""
    route = yield from existing_route(scope, topic)
    addresses = addresses_of(route)
    queues = yield from topic_queues(scope, topic, addresses)
    puts = yield from traffic(scope, list(addresses.values()), "TOPIC_PUT_NUMS", topic)
    groups = yield from groups_reading(scope, topic, list(addresses.values()))
    known = yield from read_map(scope)
    return TopicDetail(
        topic,
        kind_of(topic, known),
        topic in (yield from ordered_topics(scope)),
        [
            TopicOnBroker(
                one.broker_name,
                addresses.get(one.broker_name, ""),
                one.read_queue_nums,
                one.write_queue_nums,
                perm_in_words(one.perm),
            )
            for one in sorted(route.queue_datas, key=lambda one: one.broker_name)
        ],
        sum(one.messages for one in queues),
        puts,
        groups,
        queues,
        silent_in_words(scope, known),
    )


@going_on
def topic_stats(scope: JobScope, topic: str) -> Flow[TopicStats]:
    """Return the traffic of a topic. Errors: NotThere, Unreachable, CommandError."""
    route = yield from existing_route(scope, topic)
    addresses = list(addresses_of(route).values())
    puts = yield from traffic(scope, addresses, "TOPIC_PUT_NUMS", topic)
    groups = yield from groups_reading(scope, topic, addresses)
    taken = yield from side_by_side(
        traffic(scope, addresses, "GROUP_GET_NUMS", f"{topic}@{group}") for group in groups
    )
    known = yield from read_map(scope)
    by_group = dict(zip(groups, taken, strict=True))
    return TopicStats(topic, puts, by_group, silent_in_words(scope, known))


def existing_route(scope: JobScope, topic: str) -> Flow[TopicRouteData]:
    """Return the route of a topic. Errors: NotThere with the nearest name."""
    route = yield from read_route(scope, topic)
    if route is None:
        raise no_such("topic", topic, (yield from topic_names(scope)))
    return route


def addresses_of(route: TopicRouteData) -> dict[str, str]:
    """Return of each broker of a route the master's address, or a slave's, by broker name."""
    return {
        one.broker_name: one.broker_addrs[min(one.broker_addrs)]
        for one in sorted(route.broker_datas, key=lambda one: one.broker_name)
        if one.broker_addrs
    }


def topic_queues(
    scope: JobScope, topic: str, addresses: Mapping[str, str], *, half_deleted: bool = False
) -> Flow[list[TopicQueue]]:
    """Return both ends of each queue, from every broker.

    Errors: JobRefused when a broker has deleted it already, unless `half_deleted` says that this
    may be; Unreachable, CommandError.
    """
    code = RequestCode.GET_TOPIC_STATS_INFO
    nodes = list(addresses.items())
    replies = yield from ask_many([scope.ask(one, code, {"topic": topic}) for _, one in nodes])
    gone = ResponseCode.TOPIC_NOT_EXIST
    for (name, _), reply in zip(nodes, replies, strict=True):
        if isinstance(reply, Answer) and reply.code == gone and not half_deleted:
            raise JobRefused(
                f"{topic} is being deleted: {name} has it no more, and the name server still names"
                " it; if that lasts, delete it again"
            )
    return queues_of(heard_of(scope, list(addresses.values()), replies, unless=gone).values())


def queues_of(answers: Iterable[Answer]) -> list[TopicQueue]:
    """Return the queues that the brokers' answers to 202 tell of, sorted."""
    queues = []
    for answer in answers:
        table = object_of(fastjson.loads(answer.body), "stats").get("offsetTable")
        # An empty table reads as a plain object.
        pairs = table.items() if isinstance(table, fastjson.ObjectKeyMap) else []
        for key, value in pairs:
            queue, offsets = MessageQueue.from_dict(key), object_of(value, "offsets")
            low, high = integer(offsets, "minOffset"), integer(offsets, "maxOffset")
            queues.append(
                TopicQueue(
                    queue.broker_name,
                    queue.queue_id,
                    max(0, low),
                    high,
                    high - max(0, low),
                    integer(offsets, "lastUpdateTimestamp") or None,
                )
            )
    return sorted(queues, key=lambda one: (one.broker, one.queue_id))


def traffic(scope: JobScope, addresses: list[str], stats: str, key: str) -> Flow[Traffic | None]:
    """Return the sum of what the brokers count (request 315); None where none counts it yet."""
    code = RequestCode.VIEW_BROKER_STATS_DATA
    asks = [scope.ask(one, code, {"statsName": stats, "statsKey": key}) for one in addresses]
    found = []
    for reply in (yield from ask_many(asks)):
        if isinstance(reply, Answer) and reply.is_success:
            found.append(object_of(fastjson.loads(reply.body), "stats"))
    if not found:
        return None
    sums = {
        name: sum(integer(object_of(one.get(name), name), "sum") for one in found)
        for name in ("statsMinute", "statsHour", "statsDay")
    }
    minute = sums["statsMinute"]
    return Traffic(minute, sums["statsHour"], sums["statsDay"], round(minute / 60, 3))


def groups_reading(scope: JobScope, topic: str, addresses: list[str]) -> Flow[list[str]]:
    """Return the groups that read a topic or did once. Errors: Unreachable, CommandError."""
    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    answers = yield from read_each(scope, addresses, code, {"topic": topic})
    groups: set[str] = set()
    for answer in answers.values():
        groups.update(texts(object_of(fastjson.loads(answer.body), "groups"), "groupList"))
    return sorted(groups)


def ordered_topics(scope: JobScope) -> Flow[Mapping[str, str]]:
    """Ordered topics and their queues. A name server tells them in routes only if it is set to."""
    code = RequestCode.GET_KVLIST_BY_NAMESPACE
    answer = yield from ask_namesrv(scope, code, {"namespace": ORDER_NAMESPACE})
    return decode_kv_table(answer.body) if answer.is_success else {}


def _answering_namesrv(scope: JobScope) -> Flow[str]:
    for address in scope.namesrvs[:-1]:
        (reply,) = yield from ask_many([scope.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)])
        if isinstance(reply, Answer) and reply.is_success:
            return address
    return scope.namesrvs[-1]


def _line(name: str, kind: str, route: TopicRouteData, order: bool) -> ListedTopic:
    perm = 0
    for one in route.queue_datas:
        perm |= one.perm
    return ListedTopic(
        name,
        kind,
        sorted(one.broker_name for one in route.broker_datas),
        sum(one.read_queue_nums for one in route.queue_datas),
        sum(one.write_queue_nums for one in route.queue_datas),
        perm_in_words(perm),
        order,
    )
