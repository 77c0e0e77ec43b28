"""RocketMQ's stock layouts as processes under one supervisor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import click
import trio

from trioha.ready_line import ready_line
from trioha.services.signals import watch_signals
from trioha.services.transport import format_address
from trioha.supervisor import Node, Supervisor, open_supervisor

START_PATIENCE_S = 60.0
"""For one node: a big store that was not closed has to be recovered first."""
PORT_STEP = 10


@attrs.frozen
class Member:
    """One broker of a layout."""

    name: str
    broker_id: int
    role: str

    @property
    def label(self) -> str:
        return f"{self.name}-{self.broker_id}"


def members_of(layout: str) -> list[Member]:
    """Masters first. `layout` is 2m-2s-async, 2m-2s-sync or 2m-noslave."""
    master = "SYNC_MASTER" if layout == "2m-2s-sync" else "ASYNC_MASTER"
    names = ("broker-a", "broker-b")
    members = [Member(name, 0, master) for name in names]
    if layout != "2m-noslave":
        members += [Member(name, 1, "SLAVE") for name in names]
    return members


async def run_cluster(
    layout: str,
    *,
    host: str,
    namesrv_port: int,
    broker_port: int,
    directory: Path,
    settings: Sequence[str],
) -> int:
    """Run a layout until a signal comes or the last node is gone; returns how many died unasked."""
    deaths = 0
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
                namesrv = await _start(
                    supervisor,
                    "namesrv",
                    [
                        *("namesrv", "--listen", format_address(host, namesrv_port)),
                        *("--set", f"kvConfigPath={directory / 'namesrv' / 'kvConfig.json'}"),
                    ],
                )
                members = members_of(layout)
                ports = _ports(broker_port, len(members))
                # Masters before slaves: a slave asks the name server for its master at once.
                for is_slave in (False, True):
                    async with trio.open_nursery() as together:
                        for member in members:
                            if (member.broker_id > 0) is is_slave:
                                listen = format_address(host, next(ports))
                                arguments = broker_arguments(
                                    member, listen, namesrv.address, directory, settings
                                )
                                together.start_soon(_start, supervisor, member.label, arguments)
                click.echo(f"trioha cluster {layout} ready namesrv={namesrv.address}")
            await shutdown.wait()
        nursery.cancel_scope.cancel()
    return deaths


def broker_arguments(
    member: Member, listen: str, namesrv: str, directory: Path, settings: Sequence[str]
) -> list[str]:
    """What `trioha run` is to be told for this member."""
    host = listen.rpartition(":")[0]
    port = int(listen.rpartition(":")[2])
    arguments = [
        *("broker", "--name", member.name, "--id", str(member.broker_id)),
        *("--role", member.role, "--listen", listen),
        *("--ha-listen", f"{host}:{port + 1 if port else 0}"),
        *("--namesrv", namesrv, "--store", str(directory / member.label)),
    ]
    for setting in settings:
        arguments += ["--set", setting]
    return arguments


async def _start(supervisor: Supervisor, name: str, arguments: Sequence[str]) -> Node:
    with trio.fail_after(START_PATIENCE_S):
        node = await supervisor.start(name, arguments)
    facts = {key: value for key, value in node.facts.items() if key != "event"}
    click.echo(ready_line(facts, as_json=False))
    return node


def _ports(first: int, count: int) -> Iterator[int]:
    return iter([first + PORT_STEP * i if first else 0 for i in range(count)])


async def _cancel_on(shutdown: trio.Event, scope: trio.CancelScope) -> None:
    await shutdown.wait()
    scope.cancel()


def _show_line(node: Node, line: str) -> None:
    click.echo(f"[{node.name}] {line}", err=True)
