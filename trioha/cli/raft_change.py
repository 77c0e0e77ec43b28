"""`trioha raft transfer|add|promote|remove`: what a leader is asked to change."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import click
import trio

from trioha.cli.client_options import Address, cluster_options, secret_option
from trioha.cli.confirmation import check_confirmable, confirm_by_name
from trioha.cli.decorators import all_of
from trioha.cli.failures import ExitCode
from trioha.cli.output import print_json
from trioha.client.raft import look_at_set, run_change
from trioha.dledger.membership import MEMBER_ID_CHARS_MAX
from trioha.watch.raft_change import ChangePlan, Do, plan_change

_change_options = all_of(
    click.option("--dry-run", is_flag=True, help="Show the plan, change nothing."),
    secret_option,
    cluster_options,
    click.pass_context,
)


class MemberId(click.ParamType[str]):
    """A dLegerSelfId: ``n`` and a number."""

    name = "member"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).strip()
        is_id = text[:1] == "n" and text[1:].isdecimal() and len(text) <= MEMBER_ID_CHARS_MAX
        if not is_id:
            self.fail(f"{text!r} is no dLegerSelfId; those are n0, n1, n2, …", param, ctx)
        return text


_member_argument = click.argument("member", type=MemberId())


@click.command("transfer")
@click.argument("group")
@click.option(
    "--to", type=MemberId(), metavar="MEMBER", help="The next leader; default: the best follower."
)
@_change_options
def transfer_command(ctx: click.Context, group: str, to: str | None, **flags: Any) -> None:
    """Hand the leadership of GROUP over: before the leader's machine is restarted, say.

    \b
    trioha raft transfer broker-a --dry-run       to whom it would go
    trioha raft transfer broker-a                 to the best of the followers
    trioha raft transfer broker-a --to n1

    The leader takes nothing new for a moment, waits until MEMBER holds all it has, and lets it
    stand. Nothing is lost; sends wait for some tens of milliseconds. If it does not come about
    within an election timeout the old leader goes on, and the command says so.

    \b
    Exit codes: 0 MEMBER leads (or the plan may run), 1 it cannot be asked for, 2 usage, 3 not
    known, 4 no name server or no leader answers, 5 the leader refuses or goes on: it says why.
    """
    _run(ctx, Do.TRANSFER, group, to or "", **flags)


@click.command("add")
@click.argument("group")
@_member_argument
@click.argument("address", type=Address(), metavar="HOST:PORT")
@_change_options
def add_command(ctx: click.Context, group: str, member: str, address: str, **flags: Any) -> None:
    """Take MEMBER at HOST:PORT into GROUP, as a learner: it is sent everything, and has no vote.

    \b
    trioha raft add broker-a n3 10.0.0.4:10911
    trioha run broker … --set dLegerSelfId=n3     on that machine, with an empty store
    trioha raft status broker-a                   until its GAP is small
    trioha raft promote broker-a n3

    Give it an id that the group has never had: one that was used before may have promised a vote.
    Its dLegerPeers are those that the group began with, and its own entry.

    \b
    Exit codes: 0 it is a learner now (or the plan may run), 1 it cannot be asked for, 2 usage,
    3 not known, 4 no name server or no leader answers, 5 the leader refuses.
    """
    _run(ctx, Do.ADD, group, member, address, **flags)


@click.command("promote")
@click.argument("group")
@_member_argument
@_change_options
def promote_command(ctx: click.Context, group: str, member: str, **flags: Any) -> None:
    """Let the learner MEMBER of GROUP vote, once it holds what the leader holds.

    \b
    trioha raft promote broker-a n3

    Odd numbers of voters are best: four survive the loss of one, as three do.

    \b
    Exit codes: 0 it votes now (or the plan may run), 1 it cannot be asked for, 2 usage, 3 not
    known, 4 no name server or no leader answers, 5 the leader refuses.
    """
    _run(ctx, Do.PROMOTE, group, member, **flags)


@click.command("remove")
@click.argument("group")
@_member_argument
@click.option("--yes", is_flag=True, help="Do not ask for the group's name to be typed.")
@_change_options
def remove_command(ctx: click.Context, group: str, member: str, yes: bool, **flags: Any) -> None:
    """Take MEMBER out of GROUP, for good: its id must not be used again.

    \b
    trioha raft remove broker-a n0 --dry-run      what the group survives afterwards
    trioha raft remove broker-a n0

    Stop its process afterwards. To replace a machine add the new member first, promote it, and
    then remove the old one: so there are never fewer copies than before.

    \b
    Exit codes: 0 it is no member any more (or the plan may run), 1 not confirmed by you or it
    cannot be asked for, 2 usage, 3 not known, 4 no name server or no leader answers, 5 refused.
    """
    check_confirmable(yes, flags["dry_run"], flags["output"], "type the group's name")
    _run(ctx, Do.REMOVE, group, member, confirm=None if yes else group, **flags)


def _run(
    ctx: click.Context,
    do: Do,
    group: str,
    member: str,
    address: str = "",
    *,
    dry_run: bool,
    namesrv: str,
    timeout_s: float,
    output: str,
    confirm: str | None = None,
) -> None:
    one = trio.run(look_at_set, namesrv, timeout_s, group)
    plan = plan_change(one, do, member, address)
    if output == "table":
        click.echo(plan_in_words(plan))
    if dry_run or not plan.may_run:
        result = "dry-run" if plan.may_run else "refused"
        _tell_end(plan, result, "; ".join(plan.refusals), None, output)
        if plan.may_run:
            ctx.exit(ExitCode.OK)
        is_silent = all(replica.answer.error for replica in one.replicas)
        ctx.exit(ExitCode.UNREACHABLE if is_silent else ExitCode.FAILED)
    if confirm is not None:
        confirm_by_name(ctx, confirm)
    began_s = time.monotonic()
    message = trio.run(partial(run_change, namesrv, timeout_s, plan))
    elapsed_ms = round(1000 * (time.monotonic() - began_s))
    _tell_end(plan, "done", message, elapsed_ms, output)


def _tell_end(
    plan: ChangePlan, result: str, message: str, elapsed_ms: int | None, output: str
) -> None:
    if output == "json":
        told = {"plan": plan.as_dict(), "result": result, "message": message}
        print_json({**told, "elapsed_ms": elapsed_ms})
    elif result == "done":
        click.echo(f"{message} ({elapsed_ms} ms)")


def plan_in_words(plan: ChangePlan) -> str:
    """Return a plan in words: the request, the leader that gets it, its cost, what forbids it."""
    lines = []
    if plan.leader is not None:
        who = f"{plan.leader.member_id} ({plan.leader_address}), term {plan.leader.term}"
        lines.append(f"{plan.broker_name}: {plan.do.value} {plan.member}".rstrip())
        lines.append(f"  asks     {who}")
    if plan.would:
        lines.append(f"  then     {plan.would}")
    if plan.costs:
        lines.append(f"  costs    {plan.costs}")
    lines += [f"! {refusal}" for refusal in plan.refusals]
    return "\n".join(lines)
