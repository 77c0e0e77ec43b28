"""Creates, alters and deletes topics, as RocketMQ's mqadmin does, but with the plan shown first.

A topic lives on masters (17, 215); name servers drop it with 216, and keep whether it is ordered in
their KV configuration. Creating is for a topic that does not exist: to change one, alter it.
"""

from __future__ import annotations

import attrs

from trioha.errors import CommandError, Unreachable
from trioha.failover.asking import Answer, Failed, Flow, ask_all, pause
from trioha.jobs.cluster_map import read_map, read_route, tell_namesrvs
from trioha.jobs.permissions import perm_in_words, perm_of
from trioha.jobs.telling import (
    JobRefused,
    JobScope,
    answered,
    ask_many,
    change_each,
    change_one,
    check_unchanged,
    read_one,
    side_by_side,
)
from trioha.jobs.topics import (
    ORDER_NAMESPACE,
    addresses_of,
    existing_route,
    groups_reading,
    kind_of,
    ordered_topics,
    topic_queues,
)
from trioha.wire import fastjson
from trioha.wire.bodies import TopicConfig, topic_table_from_dict
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.json_fields import list_of, object_of
from trioha.wire.names import AUTO_CREATE_TOPIC
from trioha.wire.route import QueueData
from trioha.words import count_in_words

_ROUTE_ROUNDS = 40
_ROUTE_PAUSE_S = 0.05


@attrs.frozen
class TopicSetting:
    """A topic's settings on one broker, before and after."""

    broker: str
    address: str
    read_queues: int
    write_queues: int
    perm: str
    before: str
    """The settings before, in words; empty for a new topic."""


@attrs.frozen
class TopicChange:
    """A plan for one topic, and once it is carried out what was done."""

    topic: str
    action: str
    """create, alter or delete."""
    brokers: list[TopicSetting]
    order: bool | None
    """Whether its messages shall be ordered; null leaves it as it is."""
    loses: list[str]
    """Things that are lost or cannot be read any more, in words."""
    refusals: list[str]
    """Reasons that forbid the change without --force."""
    done: bool
    notes: list[str]


def plan_create(
    scope: JobScope,
    topic: str,
    *,
    read_queues: int,
    write_queues: int,
    perm: str,
    order: bool,
    cluster: str = "",
    broker: str = "",
) -> Flow[TopicChange]:
    """Return the plan for a new topic.

    Errors: NotThere, JobRefused if the topic exists, Unreachable.
    """
    known = yield from read_map(scope)
    masters = known.masters(cluster, broker)
    code = RequestCode.GET_TOPIC_CONFIG
    replies = yield from ask_many(
        [scope.ask(address, code, {"topic": topic}) for address in masters.values()]
    )
    if silent := [one.reason for one in replies if isinstance(one, Failed)]:
        raise Unreachable("; ".join(silent))
    there = [
        name
        for name, reply in zip(masters, replies, strict=True)
        if isinstance(reply, Answer) and reply.is_success
    ]
    # RocketMQ 4.9 cannot be asked for one topic: its name servers can.
    route = yield from read_route(scope, topic)
    there += [one.broker_name for one in route.queue_datas] if route is not None else []
    if there and (hit := sorted(set(there) & masters.keys())):
        raise JobRefused(
            f"topic {topic} exists already on {', '.join(hit)};"
            f" `trioha topic alter {topic}` changes it"
        )
    if kind_of(topic, known) == "system":
        raise JobRefused(f"{topic} is a name of the system's own; choose another")
    settings = [
        TopicSetting(name, address, read_queues, write_queues, perm, "")
        for name, address in masters.items()
    ]
    return TopicChange(topic, "create", settings, order or None, [], [], False, [])


def plan_alter(
    scope: JobScope,
    topic: str,
    *,
    read_queues: int | None = None,
    write_queues: int | None = None,
    perm: str | None = None,
    order: bool | None = None,
    broker: str = "",
) -> Flow[TopicChange]:
    """Return the plan for a change of an existing topic; None leaves a setting as it is.

    Errors: NotThere, Unreachable, CommandError.
    """
    route = yield from existing_route(scope, topic)
    known = yield from read_map(scope)
    masters = known.masters(broker=broker)
    before = {one.broker_name: one for one in route.queue_datas}
    masters = {name: address for name, address in masters.items() if name in before}
    queues = yield from topic_queues(scope, topic, masters)
    settings, loses = [], []
    for name, address in masters.items():
        old = before[name]
        new = TopicSetting(
            name,
            address,
            old.read_queue_nums if read_queues is None else read_queues,
            old.write_queue_nums if write_queues is None else write_queues,
            perm_in_words(old.perm) if perm is None else perm,
            _words(old),
        )
        settings.append(new)
        loses += [
            f"{count_in_words(one.messages, 'message')} in queue {one.queue_id} of {name}:"
            " no consumer reads them any more"
            for one in queues
            if one.broker == name and one.queue_id >= new.read_queues and one.messages
        ]
    if not settings:
        raise JobRefused(f"topic {topic} is not on a master{f' of {broker}' if broker else ''}")
    return TopicChange(topic, "alter", settings, order, loses, [], False, [])


def plan_delete(scope: JobScope, topic: str) -> Flow[TopicChange]:
    """Return the plan for the deletion of a topic. Errors: NotThere, JobRefused, Unreachable."""
    route = yield from existing_route(scope, topic)
    known = yield from read_map(scope)
    if kind_of(topic, known) == "system":
        raise JobRefused(f"{topic} is a topic of the system's own and can not be deleted")
    addresses = addresses_of(route)
    queues = yield from topic_queues(scope, topic, addresses, half_deleted=True)
    loses = []
    if count := sum(one.messages for one in queues):
        loses.append(
            f"{count_in_words(count, 'message')} in {count_in_words(len(queues), 'queue')}"
        )
    groups = yield from groups_reading(scope, topic, list(addresses.values()))
    are_reading = yield from side_by_side(
        is_group_reading_now(scope, group, topic, list(addresses.values())) for group in groups
    )
    refusals = []
    for group, is_reading in zip(groups, are_reading, strict=True):
        if is_reading:
            refusals.append(f"group {group} is connected and reads {topic}; stop it first")
        else:
            loses.append(f"the progress of group {group} in it")
    settings = [
        TopicSetting(
            one.broker_name,
            addresses.get(one.broker_name, ""),
            one.read_queue_nums,
            one.write_queue_nums,
            perm_in_words(one.perm),
            "",
        )
        for one in route.queue_datas
    ]
    missing = [one.broker_name for one in route.broker_datas if 0 not in one.broker_addrs]
    refusals += [f"{name} has no master now, and would keep the topic" for name in missing]
    return TopicChange(topic, "delete", settings, None, loses, refusals, False, [])


def _words(one: QueueData) -> str:
    return f"{one.read_queue_nums} read, {one.write_queue_nums} write, {perm_in_words(one.perm)}"


def carry_out(scope: JobScope, plan: TopicChange) -> Flow[TopicChange]:
    """Carry out a plan; return it with `done` set.

    Errors: OutcomeUnknown, Unreachable, CommandError: they tell which brokers were done before.
    """
    if plan.action == "delete":
        notes = yield from _delete(scope, plan)
    else:
        notes = yield from _put(scope, plan)
    return attrs.evolve(plan, done=True, notes=[*plan.notes, *notes])


def _put(scope: JobScope, plan: TopicChange) -> Flow[list[str]]:
    route = yield from read_route(scope, plan.topic)
    present = {} if route is None else {one.broker_name: _words(one) for one in route.queue_datas}
    planned = {one.broker: one.before for one in plan.brokers}
    now = {name: present.get(name, "") for name in planned}
    check_unchanged(f"topic {plan.topic}", planned, now)
    done: list[str] = []
    for one in plan.brokers:
        old = TopicConfig(plan.topic)
        if plan.action == "alter":
            # Settings that this command does not know stay as each broker has them.
            old = yield from _read_config(scope, one.address, plan.topic)
        fields: dict[str, str | int | bool] = {
            "topic": plan.topic,
            "defaultTopic": AUTO_CREATE_TOPIC,
            "readQueueNums": one.read_queues,
            "writeQueueNums": one.write_queues,
            "perm": perm_of(one.perm),
            "topicFilterType": old.topic_filter_type,
            "topicSysFlag": old.topic_sys_flag,
            "order": old.order if plan.order is None else plan.order,
        }
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        yield from change_one(scope, one.address, code, fields, done=done)
        done.append(one.broker)
    notes = yield from _set_order(scope, plan)
    return notes + (yield from _wait_for_route(scope, plan))


def _read_config(scope: JobScope, address: str, topic: str) -> Flow[TopicConfig]:
    try:
        answer = yield from read_one(scope, address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
    except CommandError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        # RocketMQ 4.9 tells all topics or none.
        answer = yield from read_one(scope, address, RequestCode.GET_ALL_TOPIC_CONFIG)
        _, topics = topic_table_from_dict(fastjson.loads(answer.body))
        return topics.get(topic, TopicConfig(topic))
    return TopicConfig.from_dict(fastjson.loads(answer.body), topic)


def _set_order(scope: JobScope, plan: TopicChange) -> Flow[list[str]]:
    """Keep the name servers' entry of an ordered topic: the write queues of each broker.

    Brokers that the plan does not name stay in it, as with mqadmin's -b.
    """
    before = (yield from ordered_topics(scope)).get(plan.topic, "")
    queues = dict(one.split(":", 1) for one in before.split(";") if ":" in one)
    for one in plan.brokers:
        if plan.order or (plan.order is None and one.broker in queues):
            queues[one.broker] = str(one.write_queues)
        elif plan.order is False:
            queues.pop(one.broker, None)
    fields = {"namespace": ORDER_NAMESPACE, "key": plan.topic}
    if not queues:
        if not before:
            return []
        return (yield from tell_namesrvs(scope, RequestCode.DELETE_KV_CONFIG, fields))
    fields["value"] = ";".join(f"{name}:{count}" for name, count in queues.items())
    return (yield from tell_namesrvs(scope, RequestCode.PUT_KV_CONFIG, fields))


def _wait_for_route(scope: JobScope, plan: TopicChange) -> Flow[list[str]]:
    wanted = {one.broker: (one.read_queues, one.write_queues) for one in plan.brokers}
    for _ in range(_ROUTE_ROUNDS):
        route = yield from read_route(scope, plan.topic)
        told = (
            {}
            if route is None
            else {
                one.broker_name: (one.read_queue_nums, one.write_queue_nums)
                for one in route.queue_datas
            }
        )
        if wanted.items() <= told.items():
            return []
        # Not ideal: name servers tell nobody, so this asks again.
        yield from pause(_ROUTE_PAUSE_S)
    return ["the name server has not heard of it yet; brokers register every 30 s"]


def _delete(scope: JobScope, plan: TopicChange) -> Flow[list[str]]:
    nodes = [(one.broker, one.address) for one in plan.brokers if one.address]
    fields = {"topic": plan.topic}
    yield from change_each(scope, nodes, RequestCode.DELETE_TOPIC_IN_BROKER, fields)
    notes = yield from tell_namesrvs(scope, RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)
    order = {"namespace": ORDER_NAMESPACE, "key": plan.topic}
    return notes + (yield from tell_namesrvs(scope, RequestCode.DELETE_KV_CONFIG, order))


def is_group_reading_now(
    scope: JobScope, group: str, topic: str, addresses: list[str]
) -> Flow[bool]:
    """Return whether a member of the group is connected and subscribed to the topic."""
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    asks = [scope.ask(one, code, {"consumerGroup": group}) for one in addresses]
    for address, reply in zip(addresses, (yield from ask_all(*asks)), strict=True):
        if isinstance(reply, Answer) and reply.code == ResponseCode.CONSUMER_NOT_ONLINE:
            continue
        body = object_of(fastjson.loads(answered(address, reply).body), "connections")
        members = list_of(body.get("connectionSet"), "connectionSet")
        if members and topic in object_of(body.get("subscriptionTable"), "subscriptions"):
            return True
    return False
