"""`trioha broker drain`: empties a broker of its duties before its machine is stopped."""

from __future__ import annotations

import os
import time
from typing import Any

import click

from trioha.cli.confirmation import check_confirmable, confirm_by_name
from trioha.cli.documents import (
    DOCUMENTS,
    loss_options,
    plan_in_words,
    print_document,
    run_job,
    show,
)
from trioha.cli.failures import ExitCode
from trioha.cli.names import broker_argument
from trioha.jobs.drain import DrainOrder, DrainPlan, carry_out_drain, plan_drain, undo_drain
from trioha.whoami import operator_here


@click.command("drain")
@broker_argument
@click.option(
    "--id", "broker_id", type=click.IntRange(0), metavar="N", help="This node; else the master."
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for clients to leave.",
)
@click.option("--undo", is_flag=True, help="Let producers use it again.")
@loss_options
def drain_command(
    ctx: click.Context,
    broker: str,
    broker_id: int | None,
    wait_s: float,
    undo: bool,
    dry_run: bool,
    yes: bool,
    **flags: Any,
) -> None:
    """Move a broker's duties away; say when it is safe to stop.

    \b
    trioha broker drain broker-a --dry-run
    trioha broker drain broker-a && ssh host-a systemctl stop trioha-broker
    trioha broker drain broker-a --undo       after a lone master is back

    A master hands over to its slave, a leader of a DLEDGER group to a follower, without loss. A
    master without a slave loses its write permission at the name servers: producers turn to other
    brokers within 30 s, and what it holds is consumed first.

    \b
    Exit codes: 0 safe to stop; 1 it keeps its duties, or clients were still there after --wait.
    """
    namesrv, timeout_s, output = flags["namesrv"], flags["timeout_s"], flags["output"]
    if undo:
        for note in run_job(lambda scope: undo_drain(scope, broker), namesrv, timeout_s):
            click.echo(f"! {note}")
        click.echo(f"{broker} takes messages again; producers find it within 30 s")
        return
    check_confirmable(yes, dry_run, output, f"type {broker}")
    is_document = output in DOCUMENTS

    def say(text: str) -> None:
        if not is_document:
            click.echo(f"  {text}")

    order = DrainOrder(
        ticket_id=os.urandom(8).hex(),
        operator=operator_here(),
        wait_s=wait_s,
        now_ms=lambda: time.monotonic_ns() // 1_000_000,
        wall_ms=lambda: time.time_ns() // 1_000_000,
        on_step=say,
    )
    plan = run_job(lambda scope: plan_drain(scope, broker, broker_id, order), namesrv, timeout_s)
    if plan.refusals or dry_run:
        show(plan, output, lambda wide: plan_in_words(plan, _in_words))
        ctx.exit(ExitCode.FAILED if plan.refusals else ExitCode.OK)
    if not is_document:
        click.echo(plan_in_words(plan, _in_words))
    if not yes:
        confirm_by_name(ctx, broker)
    done = run_job(lambda scope: carry_out_drain(scope, plan, order), namesrv, timeout_s)
    if is_document:
        print_document(done, output)
    else:
        click.echo(_in_words(done))
        for note in done.notes:
            click.echo(f"! {note}")
    ctx.exit(ExitCode.OK if done.safe_to_stop else ExitCode.FAILED)


def _in_words(plan: DrainPlan) -> str:
    name = f"{plan.broker} {plan.id} at {plan.address}"
    if plan.done:
        return f"{name} is {'safe to stop' if plan.safe_to_stop else 'NOT safe to stop yet'}"
    return "\n".join([f"{name} would be drained:", *(f"  {one}" for one in plan.would)])
