"""`trioha user list|describe|create|alter|delete|grant|revoke`: users as RocketMQ 5 has them."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from trioha.cli.account import ask_secret
from trioha.cli.documents import (
    change_options,
    loss_options,
    noun_options,
    run_change,
    run_job,
    show,
)
from trioha.cli.names import LiveName, only_broker_option
from trioha.cli.output import table
from trioha.errors import CommandError
from trioha.jobs.users import (
    UserChange,
    UserDetail,
    UserList,
    UserPolicy,
    carry_out_user,
    describe_user,
    list_users,
    plan_user,
    user_names,
)

PASSWORD_VARIABLE = "TRIOHA_NEW_SECRET_KEY"
_KINDS = click.Choice(["Normal", "Super"])
_STATUSES = click.Choice(["enable", "disable"])
_ACTIONS = click.Choice(["All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List"])


def _check_user(name: str) -> None:
    if not name.strip() or any(not sign.isprintable() for sign in name):
        raise CommandError(1, f"user {name!r:.80} is blank or contains control characters")


user_argument = click.argument("username", type=LiveName("user", _check_user, user_names))


@click.group("user")
def command() -> None:
    """List, create, alter, delete users and their policies.

    Brokers have users once they run with authenticationEnabled=true (docs/security.md). Accounts
    of RocketMQ 4's kind are those of `trioha acl`.
    """


@command.command("list")
@only_broker_option
@noun_options
def list_(broker: str, namesrv: str, timeout_s: float, output: str) -> None:
    """List the users, and the brokers that have each.

    \b
    trioha user list
    """
    found = run_job(lambda scope: list_users(scope, broker=broker), namesrv, timeout_s)
    show(found, output, lambda wide: _list_in_words(found))


@command.command("describe")
@user_argument
@noun_options
def describe(username: str, namesrv: str, timeout_s: float, output: str) -> None:
    """Show a user and its policies. Passwords are not shown.

    \b
    trioha user describe shop
    """
    found = run_job(lambda scope: describe_user(scope, username), namesrv, timeout_s)
    show(found, output, lambda wide: _detail_in_words(found))


@command.command("create")
@user_argument
@click.option("--kind", type=_KINDS, default="Normal", show_default=True, help="Super may all.")
@only_broker_option
@change_options
def create(ctx: click.Context, username: str, kind: str, broker: str, **flags: Any) -> None:
    """Create a user on every broker.

    Its password is asked for, or taken from TRIOHA_NEW_SECRET_KEY.

    \b
    trioha user create shop
    """
    _change(ctx, username, "create", flags, kind=kind, broker=broker, asks_password=True)


@command.command("alter")
@user_argument
@click.option("--kind", type=_KINDS, help="Super may all.")
@click.option("--status", type=_STATUSES, help="A disabled user may nothing.")
@click.option("--password", "new_password", is_flag=True, help="Ask for a new password.")
@only_broker_option
@change_options
def alter(
    ctx: click.Context,
    username: str,
    kind: str | None,
    status: str | None,
    new_password: bool,
    broker: str,
    **flags: Any,
) -> None:
    """Change a user on every broker; what is not given stays.

    \b
    trioha user alter shop --status disable
    trioha user alter shop --password
    """
    if not (kind or status or new_password):
        raise click.UsageError("nothing to change: give --kind, --status or --password", ctx)
    _change(
        ctx,
        username,
        "alter",
        flags,
        kind=kind or "",
        status=status or "",
        broker=broker,
        asks_password=new_password,
    )


@command.command("delete")
@user_argument
@loss_options
def delete(ctx: click.Context, username: str, **flags: Any) -> None:
    """Delete a user and its policies.

    From every broker; the name has to be typed.

    \b
    trioha user delete shop
    """
    _change(ctx, username, "delete", flags)


@command.command("grant")
@user_argument
@click.argument("resource", metavar="Topic:NAME|Group:NAME")
@click.option(
    "--action", "actions", type=_ACTIONS, multiple=True, required=True, help="Repeatable."
)
@click.option(
    "--from", "source_ips", multiple=True, metavar="IP", help="Only from here; repeatable."
)
@click.option("--deny", is_flag=True, help="Forbid it instead.")
@change_options
def grant(
    ctx: click.Context,
    username: str,
    resource: str,
    actions: tuple[str, ...],
    source_ips: tuple[str, ...],
    deny: bool,
    **flags: Any,
) -> None:
    """Let a user do something with a topic or a group.

    NAME may be * or end in *.

    \b
    trioha user grant shop Topic:orders --action Pub
    trioha user grant shop 'Group:shop-*' --action Sub --from 10.0.0.0/8
    """
    decision = "Deny" if deny else "Allow"
    policy = UserPolicy(resource, list(actions), list(source_ips), decision)
    _change(ctx, username, "grant", flags, policy=policy)


@command.command("revoke")
@user_argument
@click.argument("resource", metavar="Topic:NAME|Group:NAME")
@loss_options
def revoke(ctx: click.Context, username: str, resource: str, **flags: Any) -> None:
    """Take a user's policy for a resource back.

    The user's name has to be typed.

    \b
    trioha user revoke shop Topic:orders
    """
    _change(ctx, username, "revoke", flags, policy=UserPolicy(resource, [], [], ""))


def _change(
    ctx: click.Context,
    username: str,
    action: str,
    flags: dict[str, Any],
    *,
    asks_password: bool = False,
    **plan: Any,
) -> None:
    password = ""
    if asks_password and not flags["dry_run"]:
        password = os.environ.get(PASSWORD_VARIABLE) or ask_secret(username)
    run_change(
        ctx,
        username,
        lambda scope: plan_user(scope, username, action, **plan),
        partial(_carry_out, password),
        _change_in_words,
        **flags,
    )


def _carry_out(password: str, scope: Any, plan: UserChange) -> Any:
    return carry_out_user(scope, plan, password)


def _list_in_words(found: UserList) -> str:
    if not found.users:
        return "No users."
    rows = [(one.username, one.kind, one.status, ", ".join(one.brokers)) for one in found.users]
    return table(("USER", "KIND", "STATUS", "BROKERS"), rows)


def _detail_in_words(one: UserDetail) -> str:
    lines = [
        f"user     {one.username} ({one.kind}, {one.status})",
        f"brokers  {', '.join(one.brokers)}",
    ]
    rows = [
        (
            policy.resource,
            policy.decision,
            ", ".join(policy.actions),
            ", ".join(policy.source_ips) or None,
        )
        for policy in one.policies
    ]
    lines += [
        "",
        table(("RESOURCE", "DECISION", "ACTIONS", "FROM"), rows) if rows else "No policies.",
    ]
    return "\n".join(lines)


_DONE = {
    "create": "created",
    "alter": "altered",
    "delete": "deleted",
    "grant": "given a policy",
    "revoke": "rid of a policy",
}


def _change_in_words(plan: UserChange) -> str:
    word = f"is {_DONE[plan.action]}" if plan.done else f"would be {_DONE[plan.action]}"
    about = ""
    if plan.policy is not None:
        rights = (
            f" {plan.policy.decision} {', '.join(plan.policy.actions)}"
            if plan.policy.actions
            else ""
        )
        about = f": {plan.policy.resource}{rights}"
    return f"user {plan.username} {word} on {', '.join(plan.brokers)}{about}"
