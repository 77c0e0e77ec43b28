"""Parts that `trioha message resend` and `trioha dlq resend` share: plan, progress, outcome."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import NoReturn

import attrs
import click

from trioha.cli.confirmation import check_confirmable, confirm_by_name
from trioha.cli.documents import DOCUMENTS, print_document, run_job
from trioha.cli.failures import ExitCode
from trioha.cli.progress import TerminalProgress
from trioha.failover.asking import Flow
from trioha.jobs.messages import FoundMessage
from trioha.jobs.resend import ResendOrder, ResendProgress, ResendResult, resend
from trioha.jobs.telling import JobScope, NotThere
from trioha.words import count_in_words

resend_options = click.option(
    "--rate",
    "rate_per_s",
    type=click.FloatRange(0),
    default=0.0,
    metavar="N",
    help="At most so many messages per second; 0: as fast as it goes.",
)
_SHOWN_MAX = 10


def run_resend(
    ctx: click.Context,
    source: str,
    find: Callable[[JobScope], Flow[list[FoundMessage]]],
    *,
    topic: str,
    to_origin: bool,
    rate_per_s: float,
    dry_run: bool,
    yes: bool,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> NoReturn:
    """Find the messages, say what would be sent, ask, send; the command ends with it."""
    check_confirmable(yes, dry_run, output, f"type {source}")
    found = run_job(find, namesrv, timeout_s)
    if not found:
        raise NotThere(f"no message of {source} matches")
    order = ResendOrder(
        source,
        topic,
        to_origin,
        rate_per_s,
        True,
        f"{socket.gethostname()}@{os.getpid()}",
    )
    is_quiet = output in DOCUMENTS or len(found) == 1
    bar = TerminalProgress()

    def go(order: ResendOrder, what: str) -> ResendResult:
        def note(progress: ResendProgress) -> None:
            if not is_quiet:
                bar.advance(1)

        bar.begin(f"{what} {source}", len(found), "messages")
        try:
            return run_job(lambda scope: resend(scope, order, found, note), namesrv, timeout_s)
        finally:
            bar.end()

    if dry_run or not yes:
        plan = go(order, "look up copies of")
        if dry_run or not plan.sent:
            _end(ctx, plan, output)
        click.echo(_in_words(plan))
        confirm_by_name(ctx, source)
    _end(ctx, go(attrs.evolve(order, dry_run=False), "resend"), output)


def _end(ctx: click.Context, result: ResendResult, output: str) -> NoReturn:
    if output in DOCUMENTS:
        print_document(result, output)
    else:
        click.echo(_in_words(result))
    if result.unknown:
        ctx.exit(ExitCode.UNKNOWN)
    ctx.exit(ExitCode.FAILED if result.skipped else ExitCode.OK)


def _in_words(result: ResendResult) -> str:
    verb = "would be sent" if result.dry_run else "sent"
    lines = [
        f"{result.source}: {count_in_words(result.found, 'message')} found,"
        f" {result.sent} {verb}, {result.present} sent before"
    ]
    lines += [f"! not sent: {one}" for one in result.skipped[:_SHOWN_MAX]]
    if len(result.skipped) > _SHOWN_MAX:
        lines.append(f"! and {len(result.skipped) - _SHOWN_MAX} more that can not be sent")
    lines += [f"! {one}; run the same command again to go on" for one in result.unknown]
    return "\n".join(lines)
