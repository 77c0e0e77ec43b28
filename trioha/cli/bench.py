"""`trioha bench produce|consume|ha|e2e`: measures a cluster, or one of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import attrs
import click
import trio

from trioha.cli.output import output_option

F = TypeVar("F", bound=Callable[..., Any])


@click.group("bench")
def command() -> None:
    """Measure sends, consumption, replication and end-to-end latency.

    Without -n each benchmark starts a name server and a broker of its own in a temporary
    directory and removes them afterwards. Load generator and brokers share the cores of this
    machine: figures are those of the whole.
    """


def bench_options(function: F) -> F:
    """What every benchmark takes."""
    options = [
        click.option("-n", "--namesrv", metavar="HOST:PORT;…", help="Measure this cluster."),
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
    ]
    for option in reversed(options):
        function = option(function)
    return output_option(function)


def slaves_option(default: int) -> Callable[[F], F]:
    return click.option(
        "--slaves",
        type=click.IntRange(0, 4),
        default=default,
        show_default=True,
        help="Slaves that are started beside the master.",
    )


def _seconds_options(function: F) -> F:
    function = click.option("--seconds", type=click.FloatRange(0.1), default=10.0)(function)
    return click.option("--warm-up", "warm_up_s", type=click.FloatRange(0), default=2.0)(function)


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
def produce(**flags: Any) -> None:
    """Send as fast as --concurrency senders can, or at --rate, and measure each send.

    \b
    trioha bench produce --concurrency 64 --role SYNC_MASTER --slaves 1
    trioha bench produce -n 127.0.0.1:9876 --rate 5000 --seconds 30 -o json
    """
    from trioha.cli.bench_runs import run_produce

    trio.run(partial(run_produce, **_checked(flags)), strict_exception_groups=True)


@command.command("consume")
@bench_options
@slaves_option(0)
@click.option("--count", type=click.IntRange(0), help="Messages to put there first.")
@click.option("--pull", "pull_count", type=click.IntRange(1, 1024), default=32, show_default=True)
@click.option("--push", is_flag=True, help="Through trioha.client's PushConsumer and a handler.")
def consume(**flags: Any) -> None:
    """Read a backlog to its end.

    \b
    trioha bench consume --count 1000000
    trioha bench consume -n 127.0.0.1:9876 -t T --push

    --count is 500,000 for a cluster of our own, else 0: what the topic holds.
    """
    from trioha.cli.bench_runs import run_consume

    trio.run(partial(run_consume, **_checked(flags)), strict_exception_groups=True)


@command.command("e2e")
@bench_options
@slaves_option(0)
@_seconds_options
@click.option("--rate", type=click.FloatRange(0.1), default=1000.0, show_default=True)
def e2e(**flags: Any) -> None:
    """Send at --rate and measure until a parked pull brings the message.

    \b
    trioha bench e2e --rate 1000 --role SYNC_MASTER --slaves 1
    """
    from trioha.cli.bench_runs import run_e2e

    trio.run(partial(run_e2e, **_checked(flags)), strict_exception_groups=True)


@command.command("ha")
@bench_options
@click.option("--mb", type=click.IntRange(1), default=1000, show_default=True, help="Log to copy.")
def ha(**flags: Any) -> None:
    """Fill a master, start an empty slave, and measure how fast it catches up.

    \b
    trioha bench ha --mb 1000 --size 1024
    """
    from trioha.cli.bench_runs import run_ha

    if flags["namesrv"] is not None:
        raise click.UsageError("ha starts its own cluster: leave -n out")
    trio.run(partial(run_ha, **_checked(flags)), strict_exception_groups=True)


@attrs.frozen(kw_only=True)
class BenchSetup:
    """What every benchmark is told."""

    namesrv: str | None
    role: str
    slaves: int
    settings: tuple[str, ...]
    topic: str
    queues: int
    size: int
    quiet: bool
    output: str

    def facts(self) -> dict[str, object]:
        """For the report."""
        cluster: dict[str, object] = {"namesrv": self.namesrv}
        if self.namesrv is None:
            cluster = {"role": self.role, "slaves": self.slaves}
            cluster |= {"settings": " ".join(self.settings)} if self.settings else {}
        return {**cluster, "size": self.size, "queues": self.queues}


def _checked(flags: dict[str, Any]) -> dict[str, Any]:
    if flags.pop("own") and flags["namesrv"] is not None:
        raise click.UsageError("--self and -n exclude each other")
    names = [field.name for field in attrs.fields(BenchSetup)]
    flags.setdefault("slaves", 0)
    return {"setup": BenchSetup(**{name: flags.pop(name) for name in names}), **flags}
