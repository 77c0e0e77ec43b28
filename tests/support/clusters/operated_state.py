"""State of a cluster as far as an operator's jobs change it, asked of masters and name server.

Two clusters in which the same was done have equal states, though clients chose queues by chance:
messages and offsets are summed over the queues.
"""

from __future__ import annotations

from typing import Any

from trioha.client.cluster import Cluster, success
from trioha.jobs.topics import ORDER_NAMESPACE
from trioha.testing.cluster import TriohaCluster
from trioha.watch.questions import TOPIC_STATS, Question
from trioha.wire import fastjson
from trioha.wire.bodies import decode_kv_table
from trioha.wire.codes import RequestCode
from trioha.wire.json_fields import object_of
from trioha.wire.names import RETRY_PREFIX, SYSTEM_GROUPS, is_retry_topic, is_system_topic
from trioha.wire.remoting_command import ExtValue, RemotingCommand
from trioha.wire.route import TopicRouteData

State = dict[str, Any]
_NAMESPACES = (ORDER_NAMESPACE, "shop")
_PLACES = ("listenPort", "haListenPort", "namesrvAddr", "storePathRootDir")
"""Settings that differ from cluster to cluster."""


async def read_state(cluster: TriohaCluster) -> State:
    """Return the state of a cluster of masters; RocketMQ's own topics and groups are left out."""
    masters = {one.machine.name: one.address for one in cluster.brokers}
    hidden = {*masters, "DefaultCluster"}
    found: State = {"messages": {}, "offsets": {}}
    for name, address in masters.items():
        topics, groups = [
            object_of((await _json(cluster.observer, address, code))[field], field)
            for code, field in (
                (RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable"),
                (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable"),
            )
        ]
        kept = [
            one
            for one in topics
            if not is_system_topic(one) and one.removesuffix("_REPLY_TOPIC") not in hidden
        ]
        found[f"topics of {name}"] = {one: topics[one] for one in kept}
        found[f"groups of {name}"] = {
            one: groups[one] for one in groups if one not in SYSTEM_GROUPS
        }
        settings = await _ask(cluster.observer, address, RequestCode.GET_BROKER_CONFIG)
        found[f"settings of {name}"] = [
            line
            for line in settings.body_bytes().decode().splitlines()
            if line.partition("=")[0] not in _PLACES
        ]
        ends: dict[tuple[str, int], int] = {}
        for topic in kept:
            asked = Question(address, f"{TOPIC_STATS}{topic}", 0)
            rows: Any = asked.read(await cluster.observer.request(address, asked.command()))
            for queue, first, end, _ in rows:
                ends[topic, queue] = end
                _add(found["messages"], topic, end - first)
        told = await _json(cluster.observer, address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        offsets: dict[tuple[str, str, int], int] = {}
        for place, table in object_of(told["offsetTable"], "offsets").items():
            topic, _, group = place.partition("@")
            if topic in kept and group not in SYSTEM_GROUPS:
                for queue, offset in object_of(table, place).items():
                    offsets[group, topic, int(queue)] = int(str(offset))
        for topic, queue in ends:
            if is_retry_topic(topic):
                # Whether a member has committed 0 there before it left is chance.
                offsets.setdefault((topic.removeprefix(RETRY_PREFIX), topic, queue), 0)
        for (group, topic, queue), offset in offsets.items():
            _add(found["offsets"], f"{group} in {topic}", offset)
            _add(found["offsets"], f"{group} behind in {topic}", ends[topic, queue] - offset)
    ask = cluster.observer.ask_namesrv
    for namespace in _NAMESPACES:
        fields: dict[str, ExtValue] = {"namespace": namespace}
        answer = await ask(RemotingCommand(RequestCode.GET_KVLIST_BY_NAMESPACE, fields))
        found[f"entries of {namespace}"] = (
            decode_kv_table(answer.body_bytes()) if answer.code == 0 else {}
        )
    topics_seen = {topic for name in masters for topic in found[f"topics of {name}"]}
    for topic in sorted(topics_seen):
        answer = await ask(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))
        if answer.code == 0:
            route = TopicRouteData.decode(answer.body_bytes())
            found[f"route of {topic}"] = sorted(str(one) for one in route.queue_datas)
    return found


def _add(table: dict[str, int], key: str, count: int) -> None:
    table[key] = table.get(key, 0) + count


async def _json(cluster: Cluster, address: str, code: RequestCode) -> Any:
    return fastjson.loads((await _ask(cluster, address, code)).body_bytes())


async def _ask(cluster: Cluster, address: str, code: RequestCode) -> RemotingCommand:
    return success(await cluster.request(address, RemotingCommand(code)))
