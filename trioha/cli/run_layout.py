"""RocketMQ's stock layouts as processes under one supervisor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click
import trio

from trioha.client.raft import look_at_groups
from trioha.layouts import RAFT_LAYOUT, START_PATIENCE_S, namesrv_arguments, waves
from trioha.ready_line import ready_line
from trioha.services.loop.transport import format_address
from trioha.services.node.signals import watch_signals
from trioha.supervisor import Node, Supervisor, open_supervisor
from trioha.watch.replica_set import ReplicaSet

_ASK_PATIENCE_S = 3.0
_ASK_AGAIN_S = 0.05


async def run_cluster(
    layout: str,
    *,
    host: str,
    namesrv_port: int,
    broker_port: int,
    directory: Path,
    settings: Sequence[str],
    sets: int = 0,
    pins: bool = False,
) -> int:
    """Run a layout until a signal comes or the last node is gone; returns how many died unasked.

    `sets`: how many, 0 for the layout's own number. `pins`: each broker stays on one core.
    """
    deaths = 0
    cores = sorted(os.sched_getaffinity(0)) if pins else []
    shutdown = trio.Event()

    def on_death(node: Node) -> None:
        nonlocal deaths
        deaths += 1
        click.echo(
            f"trioha: {node.name} (pid {node.pid}) died with exit code {node.process.returncode};"
            " it is not restarted. Its last lines:",
            err=True,
        )
        for line in node.tail():
            click.echo(f"    {line}", err=True)
        if all(other.process.returncode is not None for other in supervisor.nodes):
            shutdown.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(watch_signals, shutdown, name="signals")
        async with open_supervisor(on_line=_show_line, on_death=on_death) as supervisor:
            with trio.CancelScope() as starting:
                nursery.start_soon(_cancel_on, shutdown, starting, name="shutdown")
                listen = format_address(host, namesrv_port)
                namesrv = await _start(
                    supervisor, "namesrv", namesrv_arguments(listen, directory / "namesrv")
                )
                for wave in waves(
                    layout,
                    host=host,
                    broker_port=broker_port,
                    namesrv=namesrv.address,
                    directory=directory,
                    settings=settings,
                    sets=sets,
                ):
                    async with trio.open_nursery() as together:
                        for label, planned in wave.items():
                            core = planned.core(cores) if cores else None
                            together.start_soon(_start, supervisor, label, planned.arguments, core)
                if layout == RAFT_LAYOUT:
                    await wait_serving_leader(namesrv.address, groups=sets or 1)
                click.echo(f"trioha cluster {layout} ready namesrv={namesrv.address}")
            await shutdown.wait()
        nursery.cancel_scope.cancel()
    return deaths


async def wait_serving_leader(namesrv: str, *, groups: int = 1) -> ReplicaSet:
    """Wait until leaders of so many groups serve; return one group. The caller owns patience.

    Not ideal: no node tells a client, so this asks again.
    """
    while True:
        serving = [
            one
            for one in await look_at_groups(namesrv, _ASK_PATIENCE_S)
            if any(master.raft and master.raft.is_serving for master in one.masters)
        ]
        if len(serving) >= groups:
            return serving[0]
        await trio.sleep(_ASK_AGAIN_S)


async def _start(
    supervisor: Supervisor, name: str, arguments: Sequence[str], core: int | None = None
) -> Node:
    with trio.fail_after(START_PATIENCE_S):
        node = await supervisor.start(name, arguments, core=core)
    facts = {key: value for key, value in node.facts.items() if key != "event"}
    if core is not None:
        facts["core"] = core
    click.echo(ready_line(facts, as_json=False))
    return node


async def _cancel_on(shutdown: trio.Event, scope: trio.CancelScope) -> None:
    await shutdown.wait()
    scope.cancel()


def _show_line(node: Node, line: str) -> None:
    click.echo(f"[{node.name}] {line}", err=True)
