"""`trioha bench produce|consume|ha|e2e`: measures a cluster, or one of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import attrs
import click
import trio

from trioha.bench.histogram import LatencySummary
from trioha.bench.setup import BenchResult, BenchSetup
from trioha.cli.client_options import chosen_context, context_option, use_secret
from trioha.cli.decorators import all_of
from trioha.cli.output import output_option, print_json, table
from trioha.credentials import set_tls_source

_LATENCY_HEAD = ("", "count", "avg ms", "p50", "p99", "p99.9", "max")

F = TypeVar("F", bound=Callable[..., Any])


@click.group("bench")
def command() -> None:
    """Measure sends, consumption, replication and end-to-end latency.

    Without -n each benchmark starts a name server and a broker of its own in a temporary
    directory and removes them afterwards. With a context, or TRIOHA_ACCESS_KEY and
    TRIOHA_SECRET_KEY, every request is signed. Load generator and brokers share the cores of this
    machine: figures are those of the whole.
    """


bench_options = all_of(
    output_option,
    click.option("-n", "--namesrv", metavar="HOST:PORT;…", help="Measure this cluster."),
    context_option,
    click.option("--self", "own", is_flag=True, help="Start a cluster to measure (default)."),
    click.option(
        "--role",
        type=click.Choice(["ASYNC_MASTER", "SYNC_MASTER"]),
        default="ASYNC_MASTER",
        show_default=True,
        help="Of the master that is started.",
    ),
    click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="For brokers."),
    click.option("-t", "--topic", default="trioha_bench", show_default=True),
    click.option("--queues", type=click.IntRange(1), default=8, show_default=True),
    click.option("--size", type=click.IntRange(0), default=128, show_default=True),
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
)
"""Options of every benchmark."""


def slaves_option(default: int) -> Callable[[F], F]:
    return click.option(
        "--slaves",
        type=click.IntRange(0, 4),
        default=default,
        show_default=True,
        help="Slaves that are started beside the master.",
    )


_seconds_options = all_of(
    click.option("--warm-up", "warm_up_s", type=click.FloatRange(0), default=2.0),
    click.option("--seconds", type=click.FloatRange(0.1), default=10.0),
)


@command.command("produce")
@bench_options
@slaves_option(0)
@_seconds_options
@click.option("--count", type=click.IntRange(0), default=0, help="Messages, instead of --seconds.")
@click.option("--concurrency", type=click.IntRange(1, 65536), default=64, show_default=True)
@click.option("--connections", type=click.IntRange(1, 512), default=1, show_default=True)
@click.option("--batch", type=click.IntRange(1, 1024), default=1, show_default=True)
@click.option(
    "--rate", type=click.FloatRange(0), default=0.0, help="Sends a second; 0: closed loop."
)
@click.option(
    "--header", type=click.Choice(["json", "rocketmq"]), default="json", show_default=True
)
@click.option("--transactions", "transactional", is_flag=True, help="Commit each message at once.")
@click.option(
    "--timers", type=click.IntRange(0), default=0, help="Messages due in a day to put there first."
)
def produce(**flags: Any) -> None:
    """Send as fast as --concurrency senders can, or at --rate, and measure each send.

    \b
    trioha bench produce --concurrency 64 --role SYNC_MASTER --slaves 1
    trioha bench produce -n 127.0.0.1:9876 --rate 5000 --seconds 30 -o json
    trioha bench produce --transactions
    trioha bench produce --timers 1000000
    """
    from trioha.bench.runs import run_produce

    if flags["transactional"] and flags["batch"] > 1:
        raise click.UsageError("a batch is no transaction: leave --batch or --transactions out")
    _run(run_produce, flags)


@command.command("consume")
@bench_options
@slaves_option(0)
@click.option("--count", type=click.IntRange(0), help="Messages to put there first.")
@click.option("--pull", "pull_count", type=click.IntRange(1, 1024), default=32, show_default=True)
@click.option("--push", is_flag=True, help="Through trioha.client's PushConsumer and a handler.")
@click.option(
    "--filter-percent",
    type=click.IntRange(1, 100),
    metavar="P",
    help="An SQL92 filter takes P % of the messages that --count put there.",
)
def consume(**flags: Any) -> None:
    """Read a backlog to its end.

    \b
    trioha bench consume --count 1000000
    trioha bench consume --filter-percent 1
    trioha bench consume -n 127.0.0.1:9876 -t T --push

    --count is 500,000 for a cluster of our own, else 0: what the topic holds.
    """
    from trioha.bench.runs import run_consume

    if flags["filter_percent"] is not None and flags["push"]:
        raise click.UsageError("--push reads without a filter: leave it or --filter-percent out")
    _run(run_consume, flags)


@command.command("e2e")
@bench_options
@slaves_option(0)
@_seconds_options
@click.option("--rate", type=click.FloatRange(0.1), default=1000.0, show_default=True)
@click.option(
    "--delay-ms", type=click.IntRange(0), default=0, help="Send timer messages with this delay."
)
def e2e(**flags: Any) -> None:
    """Send at --rate and measure until a parked pull brings the message.

    \b
    trioha bench e2e --rate 1000 --role SYNC_MASTER --slaves 1
    trioha bench e2e --rate 1000 --delay-ms 2000
    """
    from trioha.bench.runs import run_e2e

    _run(run_e2e, flags)


@command.command("ha")
@bench_options
@click.option("--mb", type=click.IntRange(1), default=1000, show_default=True, help="Log to copy.")
def ha(**flags: Any) -> None:
    """Fill a master, start an empty slave, and measure how fast it catches up.

    \b
    trioha bench ha --mb 1000 --size 1024
    """
    from trioha.bench.runs import run_ha

    if flags["namesrv"] is not None or chosen_context(click.get_current_context()) is not None:
        raise click.UsageError("ha starts its own cluster: leave -n and --context out")
    _run(run_ha, flags)


def _checked(flags: dict[str, Any]) -> dict[str, Any]:
    ctx = click.get_current_context()
    context = chosen_context(ctx)
    if context is not None:
        if flags["namesrv"] is not None:
            raise click.UsageError("-n and --context both say where to; give one")
        flags["namesrv"] = context.namesrv
    if flags.pop("own") and flags["namesrv"] is not None:
        raise click.UsageError("--self excludes -n and --context")
    if flags["namesrv"] is not None:
        use_secret(ctx, context)
    names = [field.name for field in attrs.fields(BenchSetup)]
    flags.setdefault("slaves", 0)
    return {"setup": BenchSetup(**{name: flags.pop(name) for name in names}), **flags}


def _run(bench: Callable[..., Awaitable[BenchResult]], flags: dict[str, Any]) -> None:
    output = flags.pop("output")
    if flags["namesrv"] is None:
        # A cluster of its own takes its settings from the environment, and no context names it.
        set_tls_source(None)
    result = trio.run(partial(bench, **_checked(flags)), strict_exception_groups=True)
    print_result(result, output)


def print_result(result: BenchResult, output: str) -> None:
    """Print the figures of one run as `output`: json or table."""
    report = result.report
    if output == "json":
        setup = dict(result.setup)
        print_json({"bench": result.bench, "setup": setup, "report": attrs.asdict(report)})
        return
    setup_words = ", ".join(f"{name} {value}" for name, value in result.setup.items())
    click.echo(f"{result.bench}: {setup_words}")
    latencies = []
    for field in attrs.fields(type(report)):
        value = getattr(report, field.name)
        label = field.name.replace("_", " ")
        if isinstance(value, LatencySummary):
            latencies.append((label, *attrs.astuple(value)))
        else:
            click.echo(f"  {label:<26} {_in_words(value)}")
    if latencies:
        click.echo(table(_LATENCY_HEAD, latencies))


def _in_words(value: object) -> str:
    if isinstance(value, (int, float)):
        return f"{value:,}"
    return str(value or "-")
