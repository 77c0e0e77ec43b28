"""RocketMQ's stock layouts as processes under one supervisor."""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import click
import trio

from trioha.client.raft import look_at_groups
from trioha.ready_line import ready_line
from trioha.services.signals import watch_signals
from trioha.services.transport import format_address
from trioha.supervisor import Node, Supervisor, open_supervisor
from trioha.watch.snapshot import ReplicaSet

START_PATIENCE_S = 60.0
"""For one node: a big store that was not closed has to be recovered first."""
PORT_STEP = 10
RAFT_LAYOUT = "3n-dledger"
LAYOUTS = ("2m-2s-async", "2m-2s-sync", "2m-noslave", RAFT_LAYOUT)
_FREE_PORTS = (20_000, 32_000)
_BESIDE = (-2, 0, 1, 3)
"""VIP channel, clients, HA, HTTP."""
_ASK_PATIENCE_S = 3.0
_ASK_AGAIN_S = 0.05


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
                for wave in _waves(layout, host, broker_port, namesrv.address, directory, settings):
                    async with trio.open_nursery() as together:
                        for label, arguments in wave.items():
                            together.start_soon(_start, supervisor, label, arguments)
                if layout == RAFT_LAYOUT:
                    await wait_serving_leader(namesrv.address)
                click.echo(f"trioha cluster {layout} ready namesrv={namesrv.address}")
            await shutdown.wait()
        nursery.cancel_scope.cancel()
    return deaths


Wave = dict[str, list[str]]
"""Nodes that may start together: what `trioha run` is to be told, by label."""


def _waves(
    layout: str,
    host: str,
    broker_port: int,
    namesrv: str,
    directory: Path,
    settings: Sequence[str],
) -> list[Wave]:
    if layout == RAFT_LAYOUT:
        ports = _ports(broker_port, 3) if broker_port else free_ports(host, 3)
        group = RaftGroup(
            "broker-a", {f"n{i}": format_address(host, next(ports)) for i in range(3)}
        )
        return [
            {
                group.label(member): group.arguments(member, namesrv, directory, settings)
                for member in group.peers
            }
        ]
    members = members_of(layout)
    ports = _ports(broker_port, len(members))
    # Masters before slaves: a slave asks the name server for its master at once.
    waves: list[Wave] = [{}, {}]
    for member in members:
        listen = format_address(host, next(ports))
        waves[member.broker_id > 0][member.label] = broker_arguments(
            member, listen, namesrv, directory, settings
        )
    return waves


@attrs.frozen
class RaftGroup:
    """Brokers that elect their master: one name, and where each member is."""

    name: str
    peers: Mapping[str, str]

    def label(self, member: str) -> str:
        return f"{self.name}-{member}"

    def arguments(
        self, member: str, namesrv: str, directory: Path, settings: Sequence[str]
    ) -> list[str]:
        """What `trioha run` is to be told for this member."""
        peers = ";".join(f"{name}-{address}" for name, address in self.peers.items())
        arguments = [
            *("broker", "--name", self.name, "--listen", self.peers[member]),
            *("--namesrv", namesrv, "--store", str(directory / self.label(member))),
        ]
        for setting in (
            *("enableDLegerCommitLog=true", f"dLegerGroup={self.name}"),
            *(f"dLegerPeers={peers}", f"dLegerSelfId={member}", *settings),
        ):
            arguments += ["--set", setting]
        return arguments


def free_ports(host: str, count: int) -> Iterator[int]:
    """Ports that nobody has now: the members of a group must know them before one is there.

    Below those that the system gives to connections, so that none of them is taken meanwhile; and
    with the two beside each that a broker takes as well.
    """
    ports = list(range(*_FREE_PORTS, PORT_STEP))
    random.shuffle(ports)
    free = (port for port in ports if all(_is_free(host, port + near) for near in _BESIDE))
    return itertools.islice(free, count)


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


async def wait_serving_leader(namesrv: str) -> ReplicaSet:
    """Until a group's leader serves. The caller owns patience.

    Not ideal: nobody tells a client, so this asks again.
    """
    while True:
        for one in await look_at_groups(namesrv, _ASK_PATIENCE_S):
            if any(master.raft and master.raft.is_serving for master in one.masters):
                return one
        await trio.sleep(_ASK_AGAIN_S)


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
