"""The changes that an operator can make from the console: their plans, and how they are made.

The jobs are those of the command line (`trioha.jobs`); here they get the same shape, so one screen
shows them all: what would be done, what would be lost, what forbids it, what became of it.
"""

from __future__ import annotations

import os
import socket
import time

import attrs

from trioha.failover.asking import Flow
from trioha.jobs.brokers import carry_out_setting, plan_setting
from trioha.jobs.browse import Wanted, browse
from trioha.jobs.dead_letters import carry_out_purge, dlq_of, plan_purge
from trioha.jobs.drain import DrainOrder, carry_out_drain, plan_drain, undo_drain
from trioha.jobs.group_changes import (
    GroupSettings,
    carry_out_group,
    plan_delete_group,
    plan_put_group,
)
from trioha.jobs.messages import FoundMessage
from trioha.jobs.offsets import Goal, OffsetChange, carry_out_offsets, plan_offsets
from trioha.jobs.resend import ResendOrder, ResendProgress, ResendResult, resend
from trioha.jobs.telling import JobScope, NotThere
from trioha.jobs.topic_changes import (
    TopicChange,
    carry_out,
    plan_alter,
    plan_create,
    plan_delete,
)
from trioha.whoami import operator_here
from trioha.words import count_in_words
from trioha_console.planned import Done, Planned, PlannedOperation, Say

_WAIT_S = 120.0
_SHOWN_MAX = 12


def create_topic(name: str, queues: int, perm: str) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        made = yield from plan_create(
            scope, name, read_queues=queues, write_queues=queues, perm=perm, order=False
        )
        return _topic(made)

    return PlannedOperation("create topic", name, plan)


def alter_topic(
    name: str, *, queues: int | None, perm: str | None, order: bool | None
) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        made = yield from plan_alter(
            scope, name, read_queues=queues, write_queues=queues, perm=perm, order=order
        )
        return _topic(made)

    return PlannedOperation("alter topic", name, plan)


def delete_topic(name: str) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        return _topic((yield from plan_delete(scope, name)))

    return PlannedOperation("delete topic", name, plan)


def _topic(made: TopicChange) -> Planned:
    lines = []
    for one in made.brokers:
        new = f"{one.read_queues} read, {one.write_queues} write queues, {one.perm}"
        before = f"{one.before}  →  " if one.before else ""
        lines.append(f"{one.broker}: {'deleted' if made.action == 'delete' else before + new}")
    if made.order is not None:
        lines.append(f"ordered: {'yes' if made.order else 'no'}")

    def run(scope: JobScope, _: Say) -> Flow[Done]:
        done = yield from carry_out(scope, made)
        return Done([f"topic {made.topic}: {made.action} is done", *done.notes])

    return Planned(lines, made.loses, made.refusals, run)


def put_group(
    name: str, *, create: bool, retry_max: int | None = None, consume: bool | None = None
) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        made = yield from plan_put_group(
            scope, name, create=create, retry_max_times=retry_max, consume_enable=consume
        )

        def run(scope: JobScope, _: Say) -> Flow[Done]:
            done = yield from carry_out_group(scope, made)
            return Done([f"group {name}: {made.action} is done", *done.notes])

        lines = [f"on {', '.join(made.brokers)}: {_settings(made.settings)}"]
        if made.before is not None:
            lines.append(f"before: {_settings(made.before)}")
        return Planned(lines, made.loses, made.refusals, run)

    return PlannedOperation("create group" if create else "alter group", name, plan)


def _settings(one: GroupSettings | None) -> str:
    if one is None:
        return "-"
    consumes = "consumes" if one.consume_enable else "does not consume"
    return f"{consumes}, delivered again up to {one.retry_max_times} times"


def delete_group(name: str) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        made = yield from plan_delete_group(scope, name)

        def run(scope: JobScope, _: Say) -> Flow[Done]:
            done = yield from carry_out_group(scope, made)
            return Done([f"group {name} is deleted", *done.notes])

        lines = [f"deleted on {', '.join(made.brokers)}"]
        return Planned(lines, made.loses, made.refusals, run)

    return PlannedOperation("delete group", name, plan)


def reset_offsets(group: str, topic: str, goal: Goal) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        made = yield from plan_offsets(scope, group, topic, goal)

        def run(scope: JobScope, _: Say) -> Flow[Done]:
            done = yield from carry_out_offsets(scope, made, goal)
            return Done([f"{group} goes on from there in {topic}", *done.notes])

        return Planned(_moves(made), made.loses, made.refusals, run)

    return PlannedOperation("reset offsets of", group, plan)


def _moves(made: OffsetChange) -> list[str]:
    """Return the effect of the reset in lines, queue by queue."""
    members = count_in_words(len(made.members), "connected member")
    lines = [f"in {made.topic}, to {made.goal}; pushed to {members}"]
    for one in made.queues[:_SHOWN_MAX]:
        before = "-" if one.before is None else str(one.before)
        lines.append(
            f"{one.broker} queue {one.queue_id}: {before}  →  {one.after}"
            f"   (it holds {one.min_offset} to {one.max_offset})"
        )
    if len(made.queues) > _SHOWN_MAX:
        lines.append(f"and {len(made.queues) - _SHOWN_MAX} queues more")
    return lines


def resend_dead_letters(group: str, msg_id: str) -> PlannedOperation:
    """All dead letters of a group, or one."""

    def plan(scope: JobScope) -> Flow[Planned]:
        topic = yield from dlq_of(scope, group)
        found: list[FoundMessage] = []
        yield from browse(scope, Wanted(topic), found.append)
        chosen = [one for one in found if msg_id in ("", one.msg_id, one.record.message_id)]
        if not chosen:
            raise NotThere(f"{group} has no dead letter {msg_id}".rstrip())
        client_id = f"{socket.gethostname()}@{os.getpid()}"
        order = ResendOrder(group, dry_run=True, client_id=client_id)
        would = yield from resend(scope, order, chosen)

        def run(scope: JobScope, say: Say) -> Flow[Done]:
            def note(progress: ResendProgress) -> None:
                through = progress.sent + progress.present + len(progress.skipped)
                say(f"{through} of {progress.found}, {progress.sent} sent")

            real = attrs.evolve(order, dry_run=False)
            done = yield from resend(scope, real, chosen, note)
            lines = _resent(done, "sent")
            return Done(lines, not (done.skipped or done.unknown))

        return Planned(_resent(would, "would be sent"), [], [], run, asks_name=True)

    return PlannedOperation("resend dead letters of", group, plan)


def _resent(result: ResendResult, verb: str) -> list[str]:
    found = count_in_words(result.found, "dead letter")
    lines = [f"{found}: {result.sent} {verb} to {result.source}, {result.present} sent before"]
    odd = [f"not sent: {one}" for one in result.skipped]
    odd += [f"{one}; the same again goes on" for one in result.unknown]
    lines += odd[:_SHOWN_MAX]
    if len(odd) > _SHOWN_MAX:
        lines.append(f"and {len(odd) - _SHOWN_MAX} more")
    return lines


def purge_dead_letters(group: str) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        made = yield from plan_purge(scope, group)

        def run(scope: JobScope, _: Say) -> Flow[Done]:
            done = yield from carry_out_purge(scope, made)
            return Done([f"{made.topic} is empty", *done.notes])

        lines = [f"{made.topic} on {', '.join(made.brokers)}"]
        return Planned(lines, made.loses, made.refusals, run)

    return PlannedOperation("purge dead letters of", group, plan)


def set_setting(broker: str, key: str, value: str) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        made = yield from plan_setting(scope, broker, None, key, value)

        def run(scope: JobScope, _: Say) -> Flow[Done]:
            yield from carry_out_setting(scope, made)
            return Done([f"{key} is {value} on {', '.join(made.brokers)}"])

        lines = [f"{name}: {key} {before}  →  {value}" for name, before in made.before.items()]
        return Planned(lines, made.loses, made.refusals, run)

    return PlannedOperation("change a setting of", broker, plan)


def drain_broker(broker: str, broker_id: int | None) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        made = yield from plan_drain(scope, broker, broker_id, _drain_order(lambda words: None))

        def run(scope: JobScope, say: Say) -> Flow[Done]:
            say("waiting for clients to leave")
            done = yield from carry_out_drain(scope, made, _drain_order(say))
            word = "safe to stop" if done.safe_to_stop else "NOT safe to stop yet"
            lines = [f"{broker} {made.id} at {made.address} is {word}", *done.notes]
            return Done(lines, done.safe_to_stop)

        return Planned([*made.would, *made.notes], made.loses, made.refusals, run, asks_name=True)

    return PlannedOperation("drain", broker, plan)


def _drain_order(say: Say) -> DrainOrder:
    return DrainOrder(
        ticket_id=os.urandom(8).hex(),
        operator=operator_here(),
        wait_s=_WAIT_S,
        now_ms=lambda: time.monotonic_ns() // 1_000_000,
        wall_ms=lambda: time.time_ns() // 1_000_000,
        on_step=say,
    )


def undrain_broker(broker: str) -> PlannedOperation:
    def plan(scope: JobScope) -> Flow[Planned]:
        yield from ()

        def run(scope: JobScope, _: Say) -> Flow[Done]:
            notes = yield from undo_drain(scope, broker)
            return Done([f"{broker} takes messages again; producers find it in 30 s", *notes])

        return Planned([f"producers may send to {broker} again"], [], [], run)

    return PlannedOperation("end the drain of", broker, plan)
