"""Sets a group's offsets: to a time, to either end, to a number, onwards.

Theory of operation. The plan names each queue with the offset now and then. The offsets are
committed at the masters (15). Connected members would commit their own over them, so the brokers
also push the new offsets to the members (222, which sends 220): a member drops what it holds of the
queue and goes on from there, a Java member ten seconds later.

A trioha broker pushes the offsets in the request's body. RocketMQ's broker computes them from a
time itself, so with members connected there it can only be told a time, or an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

import attrs

from trioha.errors import CommandError
from trioha.failover.asking import Answer, Flow
from trioha.jobs.cluster_map import read_map
from trioha.jobs.groups import check_group_exists, read_progress
from trioha.jobs.members import read_connections
from trioha.jobs.telling import (
    Fields,
    JobRefused,
    JobScope,
    NotThere,
    answered,
    ask_many,
    change_one,
)
from trioha.jobs.topics import TopicQueue, existing_route, topic_queues
from trioha.wire import fastjson
from trioha.wire.bodies import MessageQueue
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.words import count_in_words

_JAVA_NOTE = (
    "Java members stop at once and go on from the new offsets after 10 s; `trioha group describe`"
    " shows them then"
)
_JAVA_LATEST = -1


class To(Enum):
    """Kind of place that offsets are set to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"
    ONWARDS = "onwards"
    """Forward over so many messages of each queue."""


@attrs.frozen
class Goal:
    """Goal of the offsets; `value` is milliseconds since 1970, an offset, or a count."""

    to: To
    value: int = 0


@attrs.frozen
class QueueMove:
    """One queue's offset now and then."""

    broker: str
    queue_id: int
    before: int | None
    """Null while the group has not read the queue."""
    after: int
    min_offset: int
    max_offset: int


@attrs.frozen
class OffsetChange:
    """A plan for a group's offsets in one topic, and once it is carried out what was done."""

    group: str
    topic: str
    goal: str
    members: list[str]
    """Connected members: the new offsets are pushed to them."""
    queues: list[QueueMove]
    again: int
    """Messages that the group would consume again."""
    skipped: int
    """Messages that the group would never consume."""
    loses: list[str]
    refusals: list[str]
    done: bool
    notes: list[str]


def plan_offsets(
    scope: JobScope,
    group: str,
    topic: str,
    goal: Goal,
    queues: Sequence[tuple[str, int]] = (),
) -> Flow[OffsetChange]:
    """Return the plan; `queues` are (broker, queue id), none for all of the topic.

    Errors: NotThere, JobRefused, Unreachable, CommandError.
    """
    route = yield from existing_route(scope, topic)
    masters = (yield from read_map(scope)).masters()
    names = sorted(one.broker_name for one in route.queue_datas)
    if missing := [name for name in names if name not in masters]:
        raise JobRefused(f"{', '.join(missing)} has no master now, and {topic} lies there too")
    ends = yield from topic_queues(scope, topic, {name: masters[name] for name in names})
    chosen = _chosen(ends, topic, queues)
    told = yield from read_connections(scope, group, list(masters.values()))
    progress = yield from _offsets_now(scope, group, topic, chosen, masters)
    if goal.to is To.ONWARDS and not any(at is not None for at in progress.values()):
        raise NotThere(f"group {group} has read nothing of {topic} yet: there is nothing to skip")
    if not told.members and all(at is None for at in progress.values()):
        yield from check_group_exists(scope, group, list(masters.values()))
    after = yield from _targets(scope, topic, goal, chosen, progress, masters)
    moves = [
        QueueMove(
            one.broker,
            one.queue_id,
            progress[one.broker, one.queue_id],
            after[one.broker, one.queue_id],
            one.min_offset,
            one.max_offset,
        )
        for one in chosen
    ]
    refusals = [
        f"offset {one.after} is outside queue {one.queue_id} of {one.broker}, which holds"
        f" {one.min_offset} to {one.max_offset}"
        for one in moves
        if not one.min_offset <= one.after <= one.max_offset
    ]
    if told.model == "BROADCASTING":
        refusals.append(f"{group} is broadcasting: its members keep their offsets themselves")
    members = [one.client_id for one in told.members] if topic in told.subscriptions else []
    if members and (goal.to in (To.OFFSET, To.ONWARDS) or queues):
        for name in sorted({one.broker for one in chosen}):
            if not (yield from _is_trioha(scope, masters[name])):
                refusals.append(
                    f"{name} is RocketMQ's broker: it pushes a time to connected members, but no"
                    " offset; stop the members, or reset all queues to a time"
                )
    again = sum(max(0, one.before - one.after) for one in moves if one.before is not None)
    skipped = sum(
        max(0, one.after - max(one.before, one.min_offset))
        for one in moves
        if one.before is not None
    )
    loses = []
    if skipped and not refusals:
        loses.append(f"{count_in_words(skipped, 'message')} skipped: {group} never gets them")
    if again and not refusals:
        loses.append(f"{count_in_words(again, 'message')} consumed again")
    return OffsetChange(
        group,
        topic,
        goal.to.value,
        members,
        moves,
        again,
        skipped,
        loses,
        refusals,
        False,
        [],
    )


def carry_out_offsets(scope: JobScope, plan: OffsetChange, goal: Goal) -> Flow[OffsetChange]:
    """Carry out a plan.

    Errors: JobRefused when members have come or gone since, OutcomeUnknown, Unreachable,
    CommandError.
    """
    masters = (yield from read_map(scope)).masters()
    told = yield from read_connections(scope, plan.group, list(masters.values()))
    if (plan.topic in told.subscriptions) != bool(plan.members):
        raise JobRefused(
            f"members of {plan.group} have come or gone since the plan was made; nothing has"
            " changed, try again"
        )
    by_broker: dict[str, list[QueueMove]] = {}
    for one in plan.queues:
        by_broker.setdefault(one.broker, []).append(one)
    done: list[str] = []
    for broker, moves in by_broker.items():
        address = masters.get(broker)
        if address is None:
            raise JobRefused(f"{broker} has no master now; done before: {', '.join(done) or '-'}")
        yield from _commit(scope, plan, address, moves, done)
        if plan.members:
            yield from _push(scope, plan, goal, address, moves, done)
        done.append(broker)
    notes = [_JAVA_NOTE] if any(one.language == "JAVA" for one in told.members) else []
    return attrs.evolve(plan, done=True, notes=notes if plan.members else [])


def _chosen(
    ends: Sequence[TopicQueue], topic: str, queues: Sequence[tuple[str, int]]
) -> list[TopicQueue]:
    if not queues:
        return list(ends)
    there = {(one.broker, one.queue_id): one for one in ends}
    for broker, queue_id in queues:
        if (broker, queue_id) not in there:
            shown = ", ".join(f"{name}:{number}" for name, number in sorted(there))
            raise NotThere(f"{topic} has no queue {broker}:{queue_id}; its queues are: {shown}")
    return [there[one] for one in queues]


def _offsets_now(
    scope: JobScope,
    group: str,
    topic: str,
    queues: Sequence[TopicQueue],
    masters: Mapping[str, str],
) -> Flow[dict[tuple[str, int], int | None]]:
    code = RequestCode.QUERY_CONSUMER_OFFSET
    replies = yield from ask_many(
        [
            scope.ask(
                masters[one.broker],
                code,
                {"consumerGroup": group, "topic": topic, "queueId": one.queue_id},
            )
            for one in queues
        ]
    )
    # A broker answers 0 for a queue that a group has not read but may begin to.
    progress = yield from read_progress(scope, group, list(masters.values()), topic)
    found: dict[tuple[str, int], int | None] = {}
    for one, reply in zip(queues, replies, strict=True):
        place = (one.broker, one.queue_id)
        known = MessageQueue(topic, *place) in progress
        if isinstance(reply, Answer) and reply.code == ResponseCode.QUERY_NOT_FOUND:
            found[place] = None
        else:
            offset = int(answered(masters[one.broker], reply).ext_fields["offset"])
            found[place] = offset if known or offset else None
    return found


def _targets(
    scope: JobScope,
    topic: str,
    goal: Goal,
    queues: Sequence[TopicQueue],
    now: Mapping[tuple[str, int], int | None],
    masters: Mapping[str, str],
) -> Flow[dict[tuple[str, int], int]]:
    if goal.to is To.TIME:
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        asks = [
            scope.ask(
                masters[one.broker],
                code,
                {"topic": topic, "queueId": one.queue_id, "timestamp": goal.value},
            )
            for one in queues
        ]
        replies = yield from ask_many(asks)
        found = {}
        for one, reply in zip(queues, replies, strict=True):
            offset = int(answered(masters[one.broker], reply).ext_fields["offset"])
            if one.last_stored_ms is not None and goal.value > one.last_stored_ms:
                offset = one.max_offset  # the broker answers the last message
            found[one.broker, one.queue_id] = max(offset, one.min_offset)
        return found
    after = {}
    for one in queues:
        place = (one.broker, one.queue_id)
        at = now[place]
        after[place] = {
            To.EARLIEST: one.min_offset,
            To.LATEST: one.max_offset,
            To.OFFSET: goal.value,
            To.ONWARDS: min(one.max_offset, (one.min_offset if at is None else at) + goal.value),
        }[goal.to]
    return after


def _commit(
    scope: JobScope, plan: OffsetChange, address: str, moves: list[QueueMove], done: list[str]
) -> Flow[None]:
    for one in moves:
        fields: Fields = {
            "consumerGroup": plan.group,
            "topic": plan.topic,
            "queueId": one.queue_id,
            "commitOffset": one.after,
        }
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        yield from change_one(scope, address, code, fields, done=done)


def _push(
    scope: JobScope,
    plan: OffsetChange,
    goal: Goal,
    address: str,
    moves: list[QueueMove],
    done: list[str],
) -> Flow[None]:
    is_trioha = yield from _is_trioha(scope, address)
    if not is_trioha and goal.to in (To.OFFSET, To.ONWARDS):
        raise JobRefused(
            f"{address} is RocketMQ's broker: it pushes a time to connected members, but no"
            " offset; stop the members, or reset to a time"
        )
    pairs = [
        (MessageQueue(plan.topic, one.broker, one.queue_id).to_dict(), one.after) for one in moves
    ]
    times = {To.EARLIEST: 0, To.LATEST: _JAVA_LATEST, To.TIME: goal.value}
    fields: Fields = {
        "topic": plan.topic,
        "group": plan.group,
        "timestamp": times.get(goal.to, 0),
        "isForce": True,
    }
    body = fastjson.dumps({"offsetTable": fastjson.ObjectKeyMap(pairs)}) if is_trioha else None
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    try:
        yield from change_one(scope, address, code, fields, body, done=done)
    except CommandError as error:
        # Its members are connected to another broker.
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise


def _is_trioha(scope: JobScope, address: str) -> Flow[bool]:
    (reply,) = yield from ask_many([scope.ask(address, RequestCode.TRIOHA_NODE_STATUS)])
    return isinstance(reply, Answer) and reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
