"""`trioha dlq list|browse|resend|purge`: messages that a group failed too often."""

from __future__ import annotations

from typing import Any

import click

from trioha.cli.documents import (
    dry_run_option,
    loss_options,
    noun_options,
    run_change,
    run_job,
    show,
    yes_option,
)
from trioha.cli.message import list_in_words
from trioha.cli.names import TOPIC, group_argument
from trioha.cli.output import table
from trioha.cli.resending import resend_options, run_resend
from trioha.failover.asking import Flow
from trioha.jobs.browse import Wanted, browse, list_messages
from trioha.jobs.dead_letters import (
    DeadLetterList,
    PurgePlan,
    carry_out_purge,
    dlq_of,
    list_dead_letters,
    plan_purge,
)
from trioha.jobs.messages import FoundMessage, MessageList
from trioha.jobs.telling import JobScope
from trioha.times import moment_in_words
from trioha.words import count_in_words


@click.group("dlq")
def command() -> None:
    """List, browse, resend, purge dead letters.

    A message that a group has failed retryMaxTimes times goes to the topic %DLQ%group, which no
    consumer reads.
    """


@command.command("list")
@noun_options
def list_(namesrv: str, timeout_s: float, output: str) -> None:
    """List the groups that have dead letters.

    \b
    trioha dlq list
    """
    found = run_job(list_dead_letters, namesrv, timeout_s)
    show(found, output, lambda wide: _list_in_words(found))


@command.command("browse")
@group_argument
@click.option("--count", type=click.IntRange(1), default=50, show_default=True, help="At most.")
@noun_options
def browse_(group: str, count: int, namesrv: str, timeout_s: float, output: str) -> None:
    """Show a group's dead letters; -o wide shows whole bodies.

    \b
    trioha dlq browse billing
    """

    def read(scope: JobScope) -> Flow[MessageList]:
        topic = yield from dlq_of(scope, group)
        return (yield from list_messages(scope, Wanted(topic), count=count))

    found = run_job(read, namesrv, timeout_s)
    show(found, output, lambda wide: list_in_words(found.messages, wide))


@command.command("resend")
@group_argument
@click.argument("msg_id", required=False, default="")
@click.option("--to-origin", is_flag=True, help="To the topic they came from: every group gets it.")
@click.option("--to", "target", type=TOPIC, default="", help="Into this topic instead.")
@resend_options
@dry_run_option
@yes_option
@noun_options
@click.pass_context
def resend_(
    ctx: click.Context, /, group: str, msg_id: str, to_origin: bool, target: str, **flags: Any
) -> None:
    """Give a group its dead letters again.

    One by MSG_ID, or all of them.

    \b
    trioha dlq resend billing --dry-run
    trioha dlq resend billing --rate 100
    trioha dlq resend billing AC1100010001...

    They go through the group's retry topic, so no other group gets them. What was sent again
    before is left out: a resend that broke off is begun again and goes on where it was. The dead
    letters stay in the DLQ until `trioha dlq purge`.

    \b
    Exit codes: 1 there are none, some can not be sent, or another operator resends the same;
    3 it is not known whether a message was sent: it is named.
    """
    if target and to_origin:
        raise click.UsageError("give --to or --to-origin, not both", ctx)

    def find(scope: JobScope) -> Flow[list[FoundMessage]]:
        topic = yield from dlq_of(scope, group)
        found: list[FoundMessage] = []
        yield from browse(scope, Wanted(topic), found.append)
        return [one for one in found if not msg_id or msg_id in (one.msg_id, one.record.message_id)]

    run_resend(ctx, group, find, topic=target, to_origin=to_origin, **flags)


@command.command("purge")
@group_argument
@loss_options
def purge(ctx: click.Context, group: str, **flags: Any) -> None:
    """Delete a group's dead letters; asks for its name.

    \b
    trioha dlq purge billing --dry-run
    trioha dlq purge billing

    Exit codes: 1 there are none, more have come since, or another operator resends them.
    """
    run_change(
        ctx,
        group,
        lambda scope: plan_purge(scope, group),
        carry_out_purge,
        _purge_in_words,
        **flags,
    )


def _list_in_words(found: DeadLetterList) -> str:
    if not found.queues:
        return "No dead letters."
    rows = [
        (
            one.group,
            one.messages,
            moment_in_words(one.last_stored_ms) if one.last_stored_ms else None,
        )
        for one in found.queues
    ]
    return table(("GROUP", "DEAD LETTERS", "LAST (UTC)"), rows)


def _purge_in_words(plan: PurgePlan) -> str:
    count = count_in_words(plan.messages, "dead letter")
    return f"{plan.group}: {count} {'deleted' if plan.done else 'would be deleted'}"
