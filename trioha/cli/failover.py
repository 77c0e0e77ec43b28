"""`trioha failover`: make another node of a replica set its master, at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import click
import trio

from trioha.cli.client_options import cluster_options, secret_option
from trioha.cli.confirmation import check_confirmable, confirm_by_name
from trioha.cli.failures import ExitCode
from trioha.cli.output import print_json, table
from trioha.client.cluster import Cluster, ClusterConfig, open_cluster
from trioha.client.failover import audit_records, new_order, plan_failover, run_failover
from trioha.failover.facts import ReplicaFacts
from trioha.failover.outcome import Outcome, Result, Step, plan_as_dict
from trioha.failover.plan import Kind, Plan

OUTCOME_UNKNOWN = 5
"""Exit code: the outcome is not known. (Of other commands, 5 is a node's refusal.)"""
_EXIT_CODES: Mapping[Result, int] = {
    Result.DONE: ExitCode.OK,
    Result.REFUSED: ExitCode.FAILED,
    Result.UNREACHABLE: ExitCode.UNREACHABLE,
    Result.UNKNOWN: OUTCOME_UNKNOWN,
}


@click.command("failover")
@click.argument("broker")
@click.option(
    "--to", type=click.IntRange(0), metavar="ID", help="Promote this brokerId; else the best."
)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for the broker's name to be typed.")
@click.option(
    "--force",
    is_flag=True,
    help="Accept a loss, a better candidate that does not answer, a silent name server.",
)
@click.option("--audit", is_flag=True, help="Show past failovers of this broker instead.")
@secret_option
@cluster_options
@click.pass_context
def command(
    ctx: click.Context,
    broker: str,
    to: int | None,
    dry_run: bool,
    yes: bool,
    force: bool,
    audit: bool,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Make a slave of BROKER its master, and its master a slave.

    \b
    trioha failover broker-a --dry-run        what would happen, and what it would cost
    trioha failover broker-a                  asks for the broker's name, then does it
    trioha failover broker-a --to 1 --yes     to this slave, without a question
    trioha failover broker-a --audit          who failed it over before, and how it went

    While the master answers the switch is planned: writes wait for a moment, the slave takes what
    it lacks, the two change places; nothing is lost. When the master is dead the switch is forced:
    the best of the slaves that answer is promoted, and what that may lose is said first. If it is
    not nothing, or a better candidate may exist, --force is wanted.

    The facts are asked for again right before anything is done; if they have changed since the plan
    was shown, nothing is.

    \b
    Exit codes: 0 done (or the plan may run), 1 refused and nothing has changed, 2 usage,
    4 somebody who has to be asked does not answer and nothing has changed,
    5 the outcome is not known: the message says what to look at; trying again repairs it.
    """
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    if audit:
        records, silent = trio.run(_in_cluster, namesrv, config, lambda c: audit_records(c, broker))
        _show_audit(broker, records, silent, output)
        ctx.exit(ExitCode.UNREACHABLE if silent and not records else ExitCode.OK)
    check_confirmable(yes, dry_run, output, "type the broker's name")

    async def make_plan(cluster: Cluster) -> Plan:
        return await plan_failover(cluster, new_order(cluster, broker, to=to, force=force))

    plan: Plan = trio.run(_in_cluster, namesrv, config, make_plan)
    if output == "table":
        click.echo(plan_in_words(plan))
    if dry_run or not plan.may_run:
        if output == "json":
            refused = Result.UNREACHABLE if plan.nobody_answers else Result.REFUSED
            result = "dry-run" if plan.may_run else refused.value
            print_json({"plan": plan_as_dict(plan), "steps": [], "result": result})
        ctx.exit(_exit_code_of(plan))
    if not yes:
        confirm_by_name(ctx, broker)

    async def carry_out(cluster: Cluster) -> Outcome:
        order = new_order(cluster, broker, to=to, force=force, confirmed=plan)
        return await run_failover(cluster, order, _say_step if output == "table" else _say_nothing)

    outcome: Outcome = trio.run(_in_cluster, namesrv, config, carry_out)
    if output == "json":
        print_json(outcome.as_dict())
    else:
        click.echo(outcome_in_words(outcome))
    ctx.exit(_EXIT_CODES[outcome.result])


async def _in_cluster(namesrv: str, config: ClusterConfig, work: Callable[[Cluster], Any]) -> Any:
    async with open_cluster(namesrv, config) as cluster:
        return await work(cluster)


def _exit_code_of(plan: Plan) -> int:
    if plan.may_run:
        return ExitCode.OK
    return ExitCode.UNREACHABLE if plan.nobody_answers else ExitCode.FAILED


def plan_in_words(plan: Plan) -> str:
    """Return a plan in words: both masters, the loss, each candidate with its reason, refusals."""
    lines = []
    target, master = plan.target, plan.master
    if target is not None:
        kind = "planned switch" if plan.kind is Kind.PLANNED else "forced switch, the master is out"
        lines.append(f"{plan.broker_name}: {kind}; epoch {plan.epoch} would begin")
        if master is not None:
            lines.append(f"  steps down    {_in_words(master)}")
        lines.append(f"  new master    {_in_words(target)}")
        if plan.loss is not None:
            lines.append(f"  data loss     {plan.loss}")
    if plan.candidates:
        rows = [
            (one.rank or None, one.replica.home_id, one.replica.address, one.reason)
            for one in plan.candidates
        ]
        lines += ["", table(("RANK", "ID", "ADDRESS", "WHY"), rows)]
    if plan.refusals:
        lines.append("")
        lines += [f"! {refusal}" for refusal in plan.refusals]
    return "\n".join(lines).lstrip()


def _in_words(replica: ReplicaFacts) -> str:
    return f"{replica.name}, epoch {replica.log_epoch}, log to {replica.max_phy_offset}"


def outcome_in_words(outcome: Outcome) -> str:
    """Return the outcome in words, and what is not yet as it should be."""
    mark = "" if outcome.result is Result.DONE else "! "
    return "\n".join([f"{mark}{outcome.message}", *(f"! {note}" for note in outcome.notes)])


def step_in_words(step: Step) -> str:
    """One step on one line."""
    return f"{step.elapsed_ms:5d} ms  {step.name:<10} {step.node}: {step.result}"


def _say_step(step: Step) -> None:
    click.echo(f"  {step_in_words(step)}")


def _say_nothing(_: Step) -> None:
    pass


def _show_audit(
    broker: str, records: list[Mapping[str, Any]], silent: list[str], output: str
) -> None:
    if output == "json":
        print_json({"broker": broker, "failovers": records, "silent": silent})
        return
    if not records:
        click.echo(f"No node of {broker} remembers a failover.")
    for record in records:
        plan = record.get("plan") or {}
        began = datetime.fromtimestamp(int(record.get("started_wall_ms", 0)) / 1000)
        took_ms = int(record.get("ended_wall_ms", 0)) - int(record.get("started_wall_ms", 0))
        account = record.get("account")
        operator = f"{account} ({record.get('operator')})" if account else record.get("operator")
        ends = [(plan.get(end) or {}).get("home_id") for end in ("master", "target")]
        click.echo(
            f"{began:%Y-%m-%d %H:%M:%S}  {operator}  {plan.get('kind')}  "
            f"{ends[0] if ends[0] is not None else '-'} → {ends[1]}  epoch {plan.get('epoch')}  "
            f"{took_ms} ms  {record.get('result')}: {record.get('message')}"
        )
    for line in silent:
        click.echo(f"! {line}")
