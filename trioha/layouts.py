"""RocketMQ's stock layouts: their nodes, and the arguments that `trioha run` takes for each."""

from __future__ import annotations

import random
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

import attrs

from trioha.services.loop.transport import format_address

START_PATIENCE_S = 60.0
"""Time for one node to start: it may have to recover a big store that was not closed."""
PORT_STEP = 10
RAFT_LAYOUT = "3n-dledger"
_FREE_PORTS = (26_000, 32_000)
_BESIDE = (-2, 0, 1, 3)
"""VIP channel, clients, HA, HTTP."""
_CLAIMS_MAX = 128
"""Older claims are given up: their nodes listen, or are gone."""
_claims: deque[socket.socket] = deque()

SETS_MAX = 26
"""Sets are named broker-a to broker-z."""
_STOCK_SETS = 2


@attrs.frozen
class PlannedNode:
    """One broker to start, and its place among the sets of the cluster."""

    arguments: Sequence[str]
    """Arguments of `trioha run`."""
    set_number: int
    place: int
    """Place within its set: 0 for a master or the first member."""

    def core(self, cores: Sequence[int]) -> int:
        """Return the core to be pinned to: masters spread over all, and slaves beside others."""
        return cores[(self.set_number + self.place) % len(cores)]


Wave = dict[str, PlannedNode]
"""Nodes that may start together, by label."""


def waves(
    layout: str,
    *,
    host: str,
    broker_port: int,
    namesrv: str,
    directory: Path,
    settings: Sequence[str],
    sets: int = 0,
) -> list[Wave]:
    """The brokers of a layout in the order in which they start. Port 0 means any free port.

    `sets`: number of master-slave sets or groups; 0 means as many as the layout has.
    """
    if layout == RAFT_LAYOUT:
        count = 3 * (sets or 1)
        ports = _ports(broker_port, count) if broker_port else free_ports(host, count)
        together: Wave = {}
        for number in range(sets or 1):
            group = RaftGroup(
                set_name(number), {f"n{i}": format_address(host, next(ports)) for i in range(3)}
            )
            for place, peer in enumerate(group.peers):
                arguments = group.arguments(peer, namesrv, directory, settings)
                together[group.label(peer)] = PlannedNode(arguments, number, place)
        return [together]
    members = members_of(layout, sets)
    ports = _ports(broker_port, len(members))
    # Masters before slaves: a slave asks the name server for its master at once.
    masters: Wave = {}
    slaves: Wave = {}
    names = sorted({member.name for member in members})
    for member in members:
        wave = slaves if member.broker_id else masters
        listen = format_address(host, next(ports))
        arguments = broker_arguments(member, listen, namesrv, directory, settings)
        wave[member.label] = PlannedNode(arguments, names.index(member.name), member.broker_id)
    return [masters, slaves]


def set_name(number: int) -> str:
    """Return the broker name of a set, counted from 0."""
    return f"broker-{chr(ord('a') + number)}"


@attrs.frozen
class LayoutMember:
    """One broker of a layout."""

    name: str
    broker_id: int
    role: str

    @property
    def label(self) -> str:
        return f"{self.name}-{self.broker_id}"


def members_of(layout: str, sets: int = 0) -> list[LayoutMember]:
    """Masters first. `layout` is 2m-2s-async, 2m-2s-sync or 2m-noslave; `sets` 0 means two."""
    master = "SYNC_MASTER" if layout == "2m-2s-sync" else "ASYNC_MASTER"
    names = [set_name(number) for number in range(sets or _STOCK_SETS)]
    members = [LayoutMember(name, 0, master) for name in names]
    if layout != "2m-noslave":
        members += [LayoutMember(name, 1, "SLAVE") for name in names]
    return members


@attrs.frozen
class RaftGroup:
    """Brokers that elect their master: one name, and the address of each member."""

    name: str
    peers: Mapping[str, str]

    def label(self, member: str) -> str:
        return f"{self.name}-{member}"

    def arguments(
        self, member: str, namesrv: str, directory: Path, settings: Sequence[str]
    ) -> list[str]:
        """Arguments of `trioha run` for this member."""
        peers = ";".join(f"{name}-{address}" for name, address in self.peers.items())
        options = {
            "--name": self.name,
            "--listen": self.peers[member],
            "--namesrv": namesrv,
            "--store": str(directory / self.label(member)),
        }
        membership = {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": self.name,
            "dLegerPeers": peers,
            "dLegerSelfId": member,
        }
        pairs = [f"{key}={value}" for key, value in membership.items()]
        return _arguments("broker", options, [*pairs, *settings])


def broker_arguments(
    member: LayoutMember, listen: str, namesrv: str, directory: Path, settings: Sequence[str]
) -> list[str]:
    """Arguments of `trioha run` for this member. A port of 0 in `listen` means any free port."""
    host, _, port = listen.rpartition(":")
    options = {
        "--name": member.name,
        "--id": str(member.broker_id),
        "--role": member.role,
        "--listen": listen,
        "--ha-listen": f"{host}:{int(port) + 1 if int(port) else 0}",
        "--namesrv": namesrv,
        "--store": str(directory / member.label),
    }
    return _arguments("broker", options, settings)


def namesrv_arguments(listen: str, directory: Path) -> list[str]:
    """Arguments of `trioha run` for a name server with its KV configuration in `directory`."""
    return _arguments(
        "namesrv", {"--listen": listen}, [f"kvConfigPath={directory / 'kvConfig.json'}"]
    )


def free_ports(host: str, count: int) -> Iterator[int]:
    """Return ports that are free now: the members of a group must know them before one is there.

    Below those that the system gives to connections, so that none of them is taken meanwhile; and
    with the two beside each that a broker takes as well. No other process that chooses ports in
    this way gets one before its node listens.
    """
    ports = list(range(*_FREE_PORTS, PORT_STEP))
    random.shuffle(ports)
    free = (
        port
        for port in ports
        if all(_is_free(host, port + near) for near in _BESIDE) and _claim(host, port)
    )
    return islice(free, count)


def _arguments(node: str, options: Mapping[str, str], settings: Iterable[str]) -> list[str]:
    sets = (("--set", setting) for setting in settings)
    return [node, *chain.from_iterable(options.items()), *chain.from_iterable(sets)]


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _claim(host: str, port: int) -> bool:
    """Take the UDP port of this number, which no node needs, as a sign for other processes."""
    sign = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sign.bind((host, port))
    except OSError:
        sign.close()
        return False
    _claims.append(sign)
    if len(_claims) > _CLAIMS_MAX:
        _claims.popleft().close()
    return True


def _ports(first: int, count: int) -> Iterator[int]:
    return iter([first + PORT_STEP * i if first else 0 for i in range(count)])
