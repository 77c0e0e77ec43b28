"""Dead letter queues: which there are, and emptying one."""

from __future__ import annotations

import attrs

from trioha.errors import Unreachable
from trioha.failover.asking import Flow
from trioha.jobs.cluster_map import read_map, read_route, silent_in_words, tell_namesrvs
from trioha.jobs.queue_locks import HeldQueues
from trioha.jobs.telling import (
    JobRefused,
    JobScope,
    NotThere,
    change_each,
    going_on,
    no_such,
    side_by_side,
)
from trioha.jobs.topics import addresses_of, existing_route, topic_names, topic_queues
from trioha.wire.bodies import MessageQueue
from trioha.wire.codes import RequestCode
from trioha.wire.names import DLQ_PREFIX, dlq_topic, is_dlq_topic
from trioha.words import count_in_words

_PURGER = "purge"
"""Client id of the locks: two purges at once do no harm."""


@attrs.frozen
class DeadLetters:
    """One group's dead letter queue."""

    group: str
    topic: str
    messages: int
    last_stored_ms: int | None
    """Milliseconds since 1970; null while it is empty."""


@attrs.frozen
class DeadLetterList:
    """All dead letter queues."""

    queues: list[DeadLetters]
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


@attrs.frozen
class PurgePlan:
    """A plan to delete a group's dead letters, and once it is carried out what was done."""

    group: str
    topic: str
    brokers: dict[str, str]
    messages: int
    loses: list[str]
    refusals: list[str]
    done: bool
    notes: list[str]


@going_on
def list_dead_letters(scope: JobScope) -> Flow[DeadLetterList]:
    """List the groups that have dead letters. Errors: Unreachable, CommandError."""
    names = yield from topic_names(scope)
    found = yield from side_by_side(_dead_letters(scope, one) for one in names if is_dlq_topic(one))
    known = yield from read_map(scope)
    return DeadLetterList([one for one in found if one], silent_in_words(scope, known))


def _dead_letters(scope: JobScope, topic: str) -> Flow[DeadLetters | None]:
    route = yield from read_route(scope, topic)
    if route is None:
        return None  # purged a moment ago
    try:
        queues = yield from topic_queues(scope, topic, addresses_of(route), half_deleted=True)
    except Unreachable:
        return None  # all its brokers are silent
    stored = [one.last_stored_ms for one in queues if one.last_stored_ms is not None]
    return DeadLetters(
        topic.removeprefix(DLQ_PREFIX),
        topic,
        sum(one.messages for one in queues),
        max(stored, default=None),
    )


def dlq_of(scope: JobScope, group: str) -> Flow[str]:
    """Return the topic of a group's dead letters. Errors: NotThere."""
    topic = dlq_topic(group)
    names = yield from topic_names(scope)
    if topic in names:
        return topic
    groups = [name.removeprefix(DLQ_PREFIX) for name in names if is_dlq_topic(name)]
    if not groups:
        raise NotThere(f"group {group} has no dead letters; no group has any")
    raise no_such("dlq", group, groups)


def plan_purge(scope: JobScope, group: str) -> Flow[PurgePlan]:
    """Return the plan to delete a group's dead letters. Errors: NotThere, Unreachable."""
    topic = yield from dlq_of(scope, group)
    route = yield from existing_route(scope, topic)
    known = yield from read_map(scope)
    masters = known.masters()
    names = [one.broker_name for one in route.queue_datas]
    refusals = [f"{name} has no master now" for name in names if name not in masters]
    queues = yield from topic_queues(scope, topic, addresses_of(route))
    count = sum(one.messages for one in queues)
    loses = [count_in_words(count, "dead letter")] if count else []
    brokers = {name: masters[name] for name in names if name in masters}
    return PurgePlan(group, topic, brokers, count, loses, refusals, False, [])


def carry_out_purge(scope: JobScope, plan: PurgePlan) -> Flow[PurgePlan]:
    """Delete the DLQ's topic, which the next dead letter creates anew.

    Errors: JobRefused during a resend, and when dead letters have come since the plan was made;
    OutcomeUnknown, Unreachable, CommandError.
    """
    queues = yield from topic_queues(scope, plan.topic, plan.brokers)
    count = sum(one.messages for one in queues)
    if count > plan.messages:
        what = count_in_words(count - plan.messages, "dead letter")
        raise JobRefused(
            f"{what} of {plan.group} came after the plan was made; nothing is deleted, look again"
        )
    names = [MessageQueue(plan.topic, one.broker, one.queue_id) for one in queues]
    locks = HeldQueues(scope, _PURGER, names)
    yield from locks.take()
    fields = {"topic": plan.topic}
    nodes = list(plan.brokers.items())
    yield from change_each(scope, nodes, RequestCode.DELETE_TOPIC_IN_BROKER, fields)
    notes = yield from tell_namesrvs(scope, RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)
    yield from locks.give_back()
    return attrs.evolve(plan, done=True, notes=notes)
