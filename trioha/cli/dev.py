"""`trioha dev`: a cluster of processes for the tests of another program."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import trio

from trioha.config.sources import set_entry
from trioha.services.node.signals import watch_signals
from trioha.testing.fault_port import serve_faults
from trioha.testing.machines import LAYOUTS
from trioha.testing.process_cluster import ProcessCluster, open_process_cluster

_SIGNALLED = 128
_NOT_FOUND = 127
FAULTS_VARIABLE = "TRIOHA_DEV_FAULTS"
_COMMAND_KEY = "trioha.dev.command"


class DevCommand(click.Command):
    """Takes what stands behind ``--`` as a command of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND_KEY] = args[place + 1 :]
        return super().parse_args(ctx, args[:place])


@click.command("dev", cls=DevCommand, options_metavar="[OPTIONS]")
@click.argument("layout", default="pair", metavar="[LAYOUT] [-- COMMAND ...]")
@click.option("--fault-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve hands.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Brokers' setting.")
@click.option(
    "--store", type=click.Path(path_type=Path, file_okay=False), help="Keep the stores here."
)
@click.pass_context
def command(
    ctx: click.Context,
    layout: str,
    fault_port: int | None,
    settings: Sequence[str],
    store: Path | None,
) -> int:
    """Start a cluster, run COMMAND beside it, stop all, and end with COMMAND's exit code.

    LAYOUT is single, pair (the default), three, raft, 2m-2s-sync, 2m-2s-async or 2m-noslave. The
    nodes are processes on free loopback ports; stores are deleted at the end. COMMAND finds the
    name server in ROCKETMQ_NAMESRV_ADDR and NAMESRV_ADDR. Without COMMAND the cluster runs until
    Ctrl-C.

    \b
    trioha dev -- mvn test
    trioha dev raft -- npm test
    trioha dev --fault-port 7070
    curl -X POST -H 'Content-Type: application/json' localhost:7070/brokers/broker-a-0/kill

    With --fault-port a test in any language kills, pauses and fails over brokers over HTTP; port 0
    takes a free one. COMMAND finds the address in TRIOHA_DEV_FAULTS. docs/testing-with-trioha.md
    lists the requests.
    """
    if layout not in LAYOUTS:
        raise click.UsageError(f"no layout has the name {layout}; take one of {', '.join(LAYOUTS)}")
    entries = [set_entry(one) for one in settings]
    pairs = {entry.key: entry.value for entry in entries}
    if store is not None:
        store.mkdir(parents=True, exist_ok=True)
    return trio.run(_run, layout, fault_port, pairs, store, ctx.meta[_COMMAND_KEY])


async def _run(
    layout: str,
    fault_port: int | None,
    settings: Mapping[str, object],
    store: Path | None,
    words: Sequence[str],
) -> int:
    shutdown = trio.Event()
    code = 0
    async with trio.open_nursery() as nursery:
        if not words:
            await nursery.start(watch_signals, shutdown, name="signals")
        async with (
            open_process_cluster(layout, seed=0, root=store, settings=settings) as cluster,
            trio.open_nursery() as hands,
        ):
            environment = cluster.environment
            if fault_port is not None:
                address = await hands.start(serve_faults, cluster, fault_port, name="faults")
                environment[FAULTS_VARIABLE] = f"http://{address}"
            _tell(layout, cluster, environment.get(FAULTS_VARIABLE, ""))
            if words:
                code = await _run_command(words, environment)
            else:
                await shutdown.wait()
            hands.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    return code


def _tell(layout: str, cluster: ProcessCluster, faults: str) -> None:
    click.echo(f"trioha dev {layout} ready namesrv={cluster.namesrv}", err=True)
    for broker in cluster.brokers:
        click.echo(f"    {broker.label:<12} {broker.address}", err=True)
    if faults:
        click.echo(f"    hands        {faults}", err=True)


async def _run_command(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command to its end; signals that arrive here go on to it."""
    try:
        process = await trio.lowlevel.open_process(list(words), env=dict(environment))
    except OSError as error:
        click.echo(f"trioha: cannot run {words[0]}: {error.strerror}", err=True)
        return _NOT_FOUND

    async def pass_on() -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                # A terminal has sent Ctrl-C to the command too.
                if number == signal.SIGTERM:
                    process.terminate()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_on, name="signals")
        code = await process.wait()
        nursery.cancel_scope.cancel()
    return _SIGNALLED - code if code < 0 else code
