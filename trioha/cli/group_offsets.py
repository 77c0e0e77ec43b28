"""`trioha group reset-offsets|skip`: a group's offsets set by hand."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Any

import click

from trioha.cli.documents import loss_options, run_change
from trioha.cli.names import group_argument, topic_option
from trioha.cli.output import table
from trioha.jobs.offsets import Goal, OffsetChange, To, carry_out_offsets, plan_offsets
from trioha.times import parse_moment

_DURATION = re.compile(r"\d+(\.\d+)?\s*(s|sec|m|min|h|d|w)")


class QueueName(click.ParamType[tuple[str, int]]):
    """``BROKER:ID`` of a queue."""

    name = "broker:id"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        broker, colon, number = str(value).rpartition(":")
        if not (broker and colon and number.isdecimal()):
            self.fail(f"{value!r} is not BROKER:ID, as broker-a:0 is", param, ctx)
        return broker, int(number)


queue_option = click.option(
    "--queue",
    "queues",
    type=QueueName(),
    multiple=True,
    metavar="BROKER:ID",
    help="Only this queue; may be repeated.",
)


@click.command("reset-offsets")
@group_argument
@topic_option
@queue_option
@click.option("--to", "to", metavar="earliest|latest|TIME", help='TIME: ISO 8601, or "2h ago".')
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset.")
@click.option("--by-duration", metavar="2h", help="To where the queues were so long ago.")
@loss_options
def reset_offsets_command(
    ctx: click.Context,
    group: str,
    topic: str,
    queues: tuple[tuple[str, int], ...],
    to: str | None,
    to_offset: int | None,
    by_duration: str | None,
    **flags: Any,
) -> None:
    """Set where GROUP goes on in a topic.

    Its name has to be typed where messages are skipped or consumed again.

    \b
    trioha group reset-offsets billing -t orders --to earliest --dry-run
    trioha group reset-offsets billing -t orders --to 2026-11-20T09:00
    trioha group reset-offsets billing -t orders --by-duration 2h
    trioha group reset-offsets billing -t orders --queue broker-a:0 --to-offset 4711

    The group may run: the new offsets are also pushed to its members. Times without a zone are UTC.

    Exit codes: 1 no such group, topic or queue, or an offset beyond the range.
    """
    given = [one for one in (to, to_offset, by_duration) if one is not None]
    if len(given) != 1:
        raise click.UsageError("give one of --to, --to-offset, --by-duration", ctx)
    goal = _goal(to, to_offset, by_duration)
    _run(ctx, group, topic, goal, queues, flags)


@click.command("skip")
@group_argument
@topic_option
@queue_option
@click.option("--count", type=click.IntRange(1), help="So many of each queue; else all there are.")
@loss_options
def skip_command(
    ctx: click.Context,
    group: str,
    topic: str,
    queues: tuple[tuple[str, int], ...],
    count: int | None,
    **flags: Any,
) -> None:
    """Let GROUP skip messages of a topic.

    All that it has not consumed, or --count of each queue.

    \b
    trioha group skip billing -t orders --dry-run
    trioha group skip billing -t orders --queue broker-a:2 --count 1      a poison message

    Exit codes: as those of `reset-offsets`.
    """
    goal = Goal(To.LATEST) if count is None else Goal(To.ONWARDS, count)
    _run(ctx, group, topic, goal, queues, flags)


def _goal(to: str | None, to_offset: int | None, by_duration: str | None) -> Goal:
    if to_offset is not None:
        return Goal(To.OFFSET, to_offset)
    if to in ("earliest", "latest"):
        return Goal(To(to))
    now_ms = time.time_ns() // 1_000_000
    if by_duration is not None:
        if _DURATION.fullmatch(by_duration.strip()) is None:
            raise click.UsageError(f"--by-duration {by_duration!r} is not like 30s, 5m, 2h or 1d")
        moment = parse_moment(f"{by_duration} ago", now_ms)
    else:
        moment = parse_moment(to or "", now_ms)
    if moment is None:
        raise click.UsageError(
            f'Invalid time "{to}": give earliest, latest, an ISO 8601 time or "2h ago"'
        )
    return Goal(To.TIME, moment)


def _run(
    ctx: click.Context,
    group: str,
    topic: str,
    goal: Goal,
    queues: tuple[tuple[str, int], ...],
    flags: dict[str, Any],
) -> None:
    run_change(
        ctx,
        group,
        lambda scope: plan_offsets(scope, group, topic, goal, queues),
        partial(_carry_out, goal),
        _in_words,
        **flags,
    )


def _carry_out(goal: Goal, scope: Any, plan: OffsetChange) -> Any:
    return carry_out_offsets(scope, plan, goal)


def _in_words(plan: OffsetChange) -> str:
    word = "is set" if plan.done else "would be set"
    how = f", pushed to {', '.join(plan.members)}" if plan.members else ""
    rows = [
        (
            one.broker,
            one.queue_id,
            one.before,
            one.after,
            one.after - one.before if one.before is not None else None,
            f"{one.min_offset} to {one.max_offset}",
        )
        for one in plan.queues
    ]
    head = ("BROKER", "QUEUE", "OFFSET NOW" if not plan.done else "BEFORE", "THEN", "BY", "HOLDS")
    return f"{plan.group} {word} in {plan.topic}{how}\n{table(head, rows)}"
