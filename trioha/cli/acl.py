"""`trioha acl list|get|set|delete`: the accounts of a cluster's brokers."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import attrs
import click
import trio

from trioha.cli.account import ask_secret
from trioha.cli.client_options import namesrv_option, timeout_option
from trioha.cli.failures import ExitCode
from trioha.cli.output import output_option, print_json, table
from trioha.client.acl_admin import AclAdmin, ShownAcl
from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.errors import CommandError, TriohaError

NEW_SECRET_VARIABLE = "TRIOHA_NEW_SECRET_KEY"
_NOT_SUPPORTED = 3
_PERM = click.Choice(["DENY", "PUB", "SUB", "PUB|SUB"])

T = TypeVar("T")
broker_option = click.option(
    "-b", "--broker", default="", metavar="NAME", help="Only the brokers of this set."
)


@click.group("acl")
def command() -> None:
    """Show and change the accounts of a cluster's brokers.

    Every broker has its own file of accounts; a change goes to each of them. Brokers have access
    control once they run with aclEnable=true: docs/security.md.
    """


@command.command("list")
@broker_option
@namesrv_option
@timeout_option
@output_option
@click.pass_context
def list_(ctx: click.Context, broker: str, namesrv: str, timeout_s: float, output: str) -> None:
    """List the accounts of every broker. Secrets are not shown.

    \b
    trioha acl list
    trioha acl list -b broker-a -o json

    Exit codes: 0 all brokers answered and have the same accounts, 1 they differ.
    """
    shown = _on_every_broker(namesrv, broker, timeout_s, lambda admin, at: admin.show(at))
    if output == "json":
        print_json({name: attrs.asdict(acl) for name, acl in shown.items()})
    else:
        for name, acl in shown.items():
            click.echo(_in_words(name, acl))
    ctx.exit(ExitCode.OK if len(set(shown.values())) == 1 else ExitCode.FAILED)


@command.command("get")
@click.argument("access_key")
@broker_option
@namesrv_option
@timeout_option
@output_option
def get(access_key: str, broker: str, namesrv: str, timeout_s: float, output: str) -> None:
    """Show one account as each broker has it.

    \b
    trioha acl get shop-orders -o json
    """
    shown = _on_every_broker(namesrv, broker, timeout_s, lambda admin, at: admin.show(at))
    found = {
        name: [one for one in acl.accounts if one.access_key == access_key]
        for name, acl in shown.items()
    }
    if not any(found.values()):
        raise TriohaError(f"no broker has an account {access_key}")
    if output == "json":
        print_json({name: attrs.asdict(one[0]) if one else None for name, one in found.items()})
        return
    for name, accounts in found.items():
        if accounts:
            click.echo(_in_words(name, ShownAcl(tuple(accounts), ())))
        else:
            click.echo(f"{name}\n  no account {access_key}")


@command.command("set")
@click.argument("access_key")
@click.option("--admin/--no-admin", default=False, help="May everything, or only what is listed.")
@click.option("--white-address", metavar="ADDRESS", help="Admitted from here without a signature.")
@click.option("--default-topic", type=_PERM, help="For topics that are not listed.")
@click.option("--default-group", type=_PERM, help="For groups that are not listed.")
@click.option("--topic", "topics", multiple=True, metavar="NAME=PERM", help="Repeatable.")
@click.option("--group", "groups", multiple=True, metavar="NAME=PERM", help="Repeatable.")
@broker_option
@namesrv_option
@timeout_option
@output_option
def set_(
    access_key: str,
    admin: bool,
    white_address: str | None,
    default_topic: str | None,
    default_group: str | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    broker: str,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Add an account to every broker, or change it. What is not given stays.

    The secret is asked for, or taken from TRIOHA_NEW_SECRET_KEY. PERM is DENY, PUB, SUB or PUB|SUB.

    \b
    trioha acl set shop-orders --topic 'orders=PUB|SUB' --group orders-billing=SUB
    trioha acl set operator-anna --admin
    """
    secret_key = os.environ.get(NEW_SECRET_VARIABLE) or ask_secret(access_key)

    async def put(account_admin: AclAdmin, address: str) -> None:
        await account_admin.put(
            address,
            access_key,
            secret_key,
            admin=admin,
            white_remote_address=white_address,
            default_topic_perm=default_topic,
            default_group_perm=default_group,
            topic_perms=topics or None,
            group_perms=groups or None,
        )

    _tell(_on_every_broker(namesrv, broker, timeout_s, put), f"{access_key} is set", output)


@command.command("delete")
@click.argument("access_key")
@broker_option
@namesrv_option
@timeout_option
@output_option
def delete(access_key: str, broker: str, namesrv: str, timeout_s: float, output: str) -> None:
    """Delete an account from every broker.

    \b
    trioha acl delete shop-orders
    """

    async def take(admin: AclAdmin, address: str) -> None:
        await admin.delete(address, access_key)

    _tell(_on_every_broker(namesrv, broker, timeout_s, take), f"{access_key} is deleted", output)


def _on_every_broker(
    namesrv: str,
    broker: str,
    timeout_s: float,
    work: Callable[[AclAdmin, str], Awaitable[T]],
) -> dict[str, T]:
    """Do the same at each broker, one after the other; return each one's result by its name.

    Errors: of the first broker where it fails; the message says which brokers were done.
    """
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)

    async def run() -> dict[str, T]:
        done: dict[str, T] = {}
        async with open_cluster(namesrv, config) as cluster:
            admin = AclAdmin(cluster)
            for address, name in (await admin.brokers(broker)).items():
                try:
                    done[name] = await work(admin, address)
                except CommandError as error:
                    raise CommandError(error.code, _failure(name, error, list(done))) from None
        return done

    return trio.run(run)


def _failure(name: str, error: CommandError, done: list[str]) -> str:
    remark = error.remark
    if error.code == _NOT_SUPPORTED:
        remark = "it has no access control; start it with aclEnable=true"
    before = f"; done before: {', '.join(done)}" if done else ""
    return f"{name}: {remark}{before}"


def _tell(done: Mapping[str, object], words: str, output: str) -> None:
    if output == "json":
        print_json({"done": list(done)})
    else:
        click.echo(f"{words} on {', '.join(done)}")


def _in_words(name: str, acl: ShownAcl) -> str:
    lines = [name]
    if acl.white_addresses:
        lines.append(f"  white list: {', '.join(acl.white_addresses)}")
    rows = [
        (
            f"  {one.access_key}",
            one.admin,
            one.default_topic_perm or "DENY",
            one.default_group_perm or "DENY",
            ", ".join(one.topic_perms) or None,
            ", ".join(one.group_perms) or None,
            one.white_remote_address or None,
        )
        for one in acl.accounts
    ]
    head = ("  ACCOUNT", "ADMIN", "TOPICS", "GROUPS", "TOPIC RULES", "GROUP RULES", "FROM")
    return "\n".join([*lines, table(head, rows) if rows else "  no accounts"])
