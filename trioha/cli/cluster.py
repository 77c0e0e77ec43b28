"""`trioha cluster describe|health|top`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress

import click

from trioha.cli.client_options import chosen_context
from trioha.cli.documents import DOCUMENTS, noun_options, run_job, show
from trioha.cli.names import only_cluster_option
from trioha.cli.output import table
from trioha.contexts import load_contexts
from trioha.jobs.overview import (
    ClusterDetail,
    ClusterHealth,
    ClusterTop,
    cluster_health,
    cluster_top,
    describe_cluster,
)
from trioha.remoting.channel import Instant

_STATES = {"OK": 0, "WARNING": 1, "CRITICAL": 1, "UNKNOWN": 3}


@click.group("cluster")
def command() -> None:
    """See a whole cluster: what it is made of, its health, its traffic."""


@command.command("describe")
@only_cluster_option
@noun_options
def describe(cluster: str, namesrv: str, timeout_s: float, output: str) -> None:
    """Show name servers, brokers, numbers of topics and groups.

    \b
    trioha cluster describe

    Exit codes: 1 no broker is registered.
    """
    found = run_job(lambda scope: describe_cluster(scope, cluster=cluster), namesrv, timeout_s)
    show(found, output, lambda wide: _detail_in_words(found))


@command.command("health")
@noun_options
@click.pass_context
def health(ctx: click.Context, namesrv: str, timeout_s: float, output: str) -> None:
    """Say what is wrong, by the alert rules.

    They are those of the context: `trioha context show`.

    \b
    trioha cluster health
    trioha cluster health -o json

    Exit codes: 0 all is well, 1 something is wrong or no broker is registered, 3 a node that should
    tell does not answer. `trioha check` has the codes that monitoring systems expect.
    """
    context = chosen_context(ctx)
    rules = load_contexts(os.environ).rules if context is None else context.rules

    def instant() -> Instant:
        return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)

    found = run_job(lambda scope: cluster_health(scope, rules, instant), namesrv, timeout_s)
    show(found, output, lambda wide: _health_in_words(found))
    ctx.exit(_STATES[found.state])


@command.command("top")
@click.option("--count", type=click.IntRange(1), default=10, show_default=True, help="Rows each.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(1),
    metavar="SECONDS",
    help="Again and again until Ctrl-C; on a terminal every 5 s.",
)
@click.option("--once", is_flag=True, help="Only once, also on a terminal.")
@noun_options
def top(
    count: int, every_s: float | None, once: bool, namesrv: str, timeout_s: float, output: str
) -> None:
    """Show traffic, the busiest topics, the slowest groups.

    \b
    trioha cluster top
    trioha cluster top --once --count 3

    Rates of topics are of the last minute. Piped, or with -o json, it looks once.
    """
    is_live = sys.stdout.isatty() and output not in DOCUMENTS

    def look(clear: bool) -> None:
        found = run_job(lambda scope: cluster_top(scope, count=count), namesrv, timeout_s)
        if clear:
            click.clear()
        show(found, output, lambda wide: _top_in_words(found))

    if once or not (is_live or every_s is not None):
        look(clear=False)
        return
    with suppress(click.exceptions.Exit):  # a broker did not answer: it may the next time
        look(clear=False)
    while True:
        time.sleep(every_s or 5.0)
        with suppress(click.exceptions.Exit):
            look(clear=is_live)


def _detail_in_words(found: ClusterDetail) -> str:
    rows = [
        (one.name, one.id, one.role, one.address, one.cluster, one.error or "answers")
        for one in found.brokers
    ]
    servers = [(one.address, one.brokers, one.error or "answers") for one in found.namesrvs]
    return "\n".join(
        [
            f"clusters  {', '.join(found.clusters)}",
            f"topics    {found.topics}",
            f"groups    {found.groups}",
            "",
            table(("NAME SERVER", "SETS", "STATE"), servers),
            "",
            table(("BROKER", "ID", "ROLE", "ADDRESS", "CLUSTER", "STATE"), rows),
        ]
    )


def _health_in_words(found: ClusterHealth) -> str:
    if not found.problems:
        return f"OK: {found.checked} readings, none reaches a threshold."
    rows = [(one.level, one.subject, one.what) for one in found.problems]
    return f"{found.state}\n{table(('LEVEL', 'WHERE', 'WHAT'), rows)}"


def _top_in_words(found: ClusterTop) -> str:
    brokers = [
        (
            one.name,
            one.id,
            one.role,
            one.in_per_s,
            one.out_per_s,
            None if one.disk_ratio is None else f"{one.disk_ratio:.0%}",
        )
        for one in found.brokers
    ]
    parts = []
    if brokers:
        parts.append(table(("BROKER", "ID", "ROLE", "IN/S", "OUT/S", "DISK"), brokers))
    if found.topics:
        topics = [(one.topic, one.per_s, one.day) for one in found.topics]
        parts.append(table(("TOPIC", "IN/S", "TODAY"), topics))
    if found.groups:
        groups = [(one.group, one.members, one.lag) for one in found.groups]
        parts.append(table(("GROUP", "MEMBERS", "LAG"), groups))
    return "\n\n".join(parts)
