"""Creates, alters and deletes consumer groups, and copies one's progress to another.

As mqadmin does: 200 for the settings, 207 with the progress, 314 to clone; a deleted group's retry
and dead letter topics go with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from trioha.failover.asking import Flow
from trioha.jobs.cluster_map import read_map, tell_namesrvs
from trioha.jobs.groups import check_group_exists, read_progress
from trioha.jobs.members import read_connections
from trioha.jobs.telling import (
    Fields,
    JobRefused,
    JobScope,
    change_each,
    change_one,
    check_unchanged,
    no_such,
    read_one,
    side_by_side,
)
from trioha.jobs.topics import topic_names, topic_queues
from trioha.wire import fastjson
from trioha.wire.bodies import SubscriptionGroupConfig, group_table_from_dict
from trioha.wire.codes import RequestCode
from trioha.wire.names import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, dlq_topic, retry_topic


@attrs.frozen
class GroupSettings:
    """Settings of a group."""

    consume_enable: bool
    broadcast_enable: bool
    retry_queues: int
    retry_max_times: int


@attrs.frozen
class GroupChange:
    """A plan for one group, and once it is carried out what was done."""

    group: str
    action: str
    """create, alter, delete or clone."""
    brokers: dict[str, str]
    """Name and address of the masters."""
    settings: GroupSettings | None
    """Settings on the first broker; null unless the action is create or alter."""
    before: GroupSettings | None
    source: str
    """Group whose progress is copied; empty unless the action is clone."""
    topic: str
    """Topic whose progress is copied; empty for all."""
    loses: list[str]
    refusals: list[str]
    done: bool
    notes: list[str]
    before_each: dict[str, GroupSettings]
    """Settings on each broker that knows the group."""
    after_each: dict[str, GroupSettings]


def plan_put_group(
    scope: JobScope,
    group: str,
    *,
    create: bool,
    consume_enable: bool | None = None,
    broadcast_enable: bool | None = None,
    retry_queues: int | None = None,
    retry_max_times: int | None = None,
    broker: str = "",
) -> Flow[GroupChange]:
    """Return the plan to create or alter a group. Errors: NotThere, JobRefused."""
    known = yield from read_map(scope)
    masters = known.masters(broker=broker)
    old = yield from _read_settings(scope, group, masters)
    if create and old:
        raise JobRefused(f"group {group} exists already; `trioha group alter {group}` changes it")
    if not create and not old:
        yield from check_group_exists(scope, group, list(masters.values()))
    asked = {
        "consume_enable": consume_enable,
        "broadcast_enable": broadcast_enable,
        "retry_queues": retry_queues,
        "retry_max_times": retry_max_times,
    }
    changes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    unset = _settings(SubscriptionGroupConfig(group))
    before = {name: _settings(old[name]) for name in masters if name in old}
    after = {name: attrs.evolve(before.get(name, unset), **changes) for name in masters}
    return GroupChange(
        group,
        "create" if create else "alter",
        masters,
        next(iter(after.values())),
        next(iter(before.values()), None),
        "",
        "",
        [],
        [],
        False,
        [],
        before,
        after,
    )


def plan_delete_group(scope: JobScope, group: str) -> Flow[GroupChange]:
    """Return the plan to delete a group, its progress and its dead letters. Errors: NotThere."""
    known = yield from read_map(scope)
    masters = known.masters()
    addresses = list(masters.values())
    if group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX):
        raise JobRefused(f"{group} is a group of the system's own and can not be deleted")
    progress = yield from read_progress(scope, group, addresses)
    told = yield from read_connections(scope, group, addresses)
    if not progress and not told.members:
        yield from check_group_exists(scope, group, addresses)
    topics = sorted({queue.topic for queue in progress})
    loses = [f"its progress in {', '.join(topics)}"] if topics else []
    existing = set((yield from topic_names(scope)))
    for topic, what in ((dlq_topic(group), "dead letters"), (retry_topic(group), "redeliveries")):
        if topic in existing:
            queues = yield from topic_queues(scope, topic, masters)
            if count := sum(one.messages for one in queues):
                loses.append(f"{count} {what} in {topic}")
    loses = loses or ["its settings"]
    refusals = [
        f"{one.client_id} at {one.address} is connected; stop it first" for one in told.members
    ]
    return GroupChange(
        group, "delete", masters, None, None, "", "", loses, refusals, False, [], {}, {}
    )


def plan_clone(scope: JobScope, source: str, group: str, topic: str = "") -> Flow[GroupChange]:
    """Return the plan to set `group` where `source` is. Errors: NotThere, JobRefused."""
    known = yield from read_map(scope)
    masters = known.masters()
    addresses = list(masters.values())
    progress = yield from read_progress(scope, source, addresses, topic)
    if not progress:
        yield from check_group_exists(scope, source, addresses)
        if topic and topic not in (names := (yield from topic_names(scope))):
            raise no_such("topic", topic, names)
        raise JobRefused(f"group {source} has read nothing{f' of {topic}' if topic else ''} yet")
    if group == source:
        raise JobRefused(f"{group} is both source and target")
    told = yield from read_connections(scope, group, addresses)
    refusals = [
        f"{one.client_id} of {group} is connected and would write its own progress; stop it first"
        for one in told.members
    ]
    had = yield from read_progress(scope, group, addresses, topic)
    loses = [f"the progress that {group} has now"] if any(at for _, at in had.values()) else []
    return GroupChange(
        group, "clone", masters, None, None, source, topic, loses, refusals, False, [], {}, {}
    )


def carry_out_group(scope: JobScope, plan: GroupChange) -> Flow[GroupChange]:
    """Carry out a plan. Errors: OutcomeUnknown, Unreachable, CommandError, as `change_each`."""
    nodes = list(plan.brokers.items())
    notes: list[str] = []
    if plan.action == "delete":
        # 4.9 reads removeOffset, 5 reads cleanOffset.
        fields: Fields = {"groupName": plan.group, "removeOffset": True, "cleanOffset": True}
        yield from change_each(scope, nodes, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
        for topic in (retry_topic(plan.group), dlq_topic(plan.group)):
            code = RequestCode.DELETE_TOPIC_IN_BROKER
            yield from change_each(scope, nodes, code, {"topic": topic})
            notes += yield from tell_namesrvs(
                scope, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic}
            )
    elif plan.action == "clone":
        clone: Fields = {
            "srcGroup": plan.source,
            "destGroup": plan.group,
            "topic": plan.topic,
            "offline": True,
        }
        yield from change_each(scope, nodes, RequestCode.CLONE_GROUP_OFFSET, clone)
    else:
        present = yield from _read_settings(scope, plan.group, plan.brokers)
        for name in plan.brokers:
            now = _settings(present[name]) if name in present else None
            check_unchanged(f"group {plan.group} on {name}", plan.before_each.get(name), now)
        done: list[str] = []
        for name, address in nodes:
            # Settings that this command does not know stay as each broker has them.
            settings = plan.after_each[name]
            new = attrs.evolve(
                present.get(name, SubscriptionGroupConfig(plan.group)),
                consume_enable=settings.consume_enable,
                consume_broadcast_enable=settings.broadcast_enable,
                retry_queue_nums=settings.retry_queues,
                retry_max_times=settings.retry_max_times,
            )
            body = fastjson.dumps(new.to_dict())
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            yield from change_one(scope, address, code, None, body, done=done)
            done.append(name)
    return attrs.evolve(plan, done=True, notes=sorted(set(notes)))


def _read_settings(
    scope: JobScope, group: str, masters: Mapping[str, str]
) -> Flow[dict[str, SubscriptionGroupConfig]]:
    """Return the settings on each broker that knows the group. Errors: Unreachable."""
    flows = [_read_setting(scope, group, address) for address in masters.values()]
    told = yield from side_by_side(flows)
    return {name: one for name, one in zip(masters, told, strict=True) if one is not None}


def _read_setting(
    scope: JobScope, group: str, address: str
) -> Flow[SubscriptionGroupConfig | None]:
    # Not request 352: a broker, and that of RocketMQ 5, creates the group that it asks for.
    answer = yield from read_one(scope, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return group_table_from_dict(fastjson.loads(answer.body))[1].get(group)


def _settings(one: SubscriptionGroupConfig) -> GroupSettings:
    return GroupSettings(
        one.consume_enable,
        one.consume_broadcast_enable,
        one.retry_queue_nums,
        one.retry_max_times,
    )
