"""`trioha timers list`: messages that wait for their time."""

from __future__ import annotations

import time

import attrs
import click
import trio

from trioha.cli.client_options import namesrv_option, timeout_option
from trioha.cli.output import age_in_words, output_option, print_json, table
from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.client.masters import ask_masters
from trioha.client.timers_admin import PendingTimers, pending_timers
from trioha.times import moment_in_words


@click.group("timers")
def command() -> None:
    """Look at messages that wait for their time, sent with a delay in seconds."""


@command.command("list")
@click.option("-b", "--broker", default="", metavar="NAME", help="Only the master of this set.")
@click.option(
    "--count",
    type=click.IntRange(0, 1000),
    default=100,
    show_default=True,
    help="Messages to show of each master.",
)
@namesrv_option
@timeout_option
@output_option
def list_(broker: str, count: int, namesrv: str, timeout_s: float, output: str) -> None:
    """List the waiting messages of every master, those that are due next first.

    Messages with a delay level are not among them.

    \b
    trioha timers list
    trioha timers list -b broker-a --count 10 -o json
    """
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)

    async def ask() -> dict[str, PendingTimers]:
        async with open_cluster(namesrv, config) as cluster:
            return await ask_masters(
                cluster, broker, lambda address: pending_timers(cluster, address, count)
            )

    found = trio.run(ask)
    if output == "json":
        print_json({name: attrs.asdict(one) for name, one in found.items()})
    else:
        click.echo(_in_words(found, int(time.time() * 1000)))


def _in_words(found: dict[str, PendingTimers], wall_ms: int) -> str:
    rows = [
        (
            name,
            one.topic,
            f"cancels {one.cancels}" if one.cancels else one.unique_key or one.keys or None,
            moment_in_words(one.deliver_at_ms),
            age_in_words(max(0, one.deliver_at_ms - wall_ms) / 1000),
        )
        for name, answer in found.items()
        for one in answer.shown
    ]
    head = ("BROKER", "TOPIC", "KEY", "DUE (UTC)", "IN")
    counts = ", ".join(
        f"{name} {answer.count}{'' if answer.is_loaded else ' so far'}"
        for name, answer in found.items()
    )
    lines = [f"pending timer messages: {counts}"]
    return "\n".join([*lines, table(head, rows)] if rows else lines)
