"""`trioha transactions list`: what is neither committed nor rolled back."""

from __future__ import annotations

import time

import attrs
import click
import trio

from trioha.cli.client_options import namesrv_option, timeout_option
from trioha.cli.output import age_in_words, output_option, print_json, table
from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.masters import ask_masters
from trioha.client.transactions_admin import OpenTransactions, open_transactions


@click.group("transactions")
def command() -> None:
    """Look at transactional messages that are neither committed nor rolled back."""


@command.command("list")
@click.option("-b", "--broker", default="", metavar="NAME", help="Only the master of this set.")
@click.option("-g", "--group", default="", metavar="GROUP", help="Only of this producer group.")
@click.option(
    "--count",
    type=click.IntRange(0, 1000),
    default=100,
    show_default=True,
    help="Transactions to show of each master.",
)
@namesrv_option
@timeout_option
@output_option
def list_(broker: str, group: str, count: int, namesrv: str, timeout_s: float, output: str) -> None:
    """List the open transactions of every master, the oldest first.

    A group with 0 producers has nobody who could answer a check: start one, or the messages go to
    TRANS_CHECK_MAX_TIME_TOPIC after transactionCheckMax checks.

    \b
    trioha transactions list
    trioha transactions list -b broker-a -g shop-orders -o json
    """
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)

    async def ask() -> dict[str, OpenTransactions]:
        async with open_cluster(namesrv, config) as cluster:
            return await ask_masters(
                cluster,
                broker,
                lambda address: open_transactions(cluster, address, group=group, count=count),
            )

    found = trio.run(ask)
    if output == "json":
        print_json({name: attrs.asdict(one) for name, one in found.items()})
    else:
        click.echo(_in_words(found, int(time.time() * 1000)))


def _in_words(found: dict[str, OpenTransactions], wall_ms: int) -> str:
    rows = [
        (
            name,
            one.group,
            one.producers,
            one.topic,
            one.unique_key or one.keys or None,
            age_in_words(max(0, wall_ms - one.born_ms) / 1000),
            one.checks,
            age_in_words(max(0, one.next_check_ms - wall_ms) / 1000),
        )
        for name, answer in found.items()
        for one in answer.shown
    ]
    head = ("BROKER", "GROUP", "PRODUCERS", "TOPIC", "KEY", "AGE", "CHECKS", "NEXT CHECK IN")
    counts = ", ".join(f"{name} {answer.count}" for name, answer in found.items())
    lines = [f"open transactions: {counts}"]
    return "\n".join([*lines, table(head, rows)] if rows else lines)
