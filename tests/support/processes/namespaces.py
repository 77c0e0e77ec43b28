"""Hosts of their own for the nodes of a set: network namespaces on a bridge, cut as a cable is.

The test, its clients and the name servers live in the namespace of the machine, at `.1` of a small
network; each node has a namespace and an address. A cut drops packets where they would arrive, so
the sender notices nothing but silence.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import attrs

from support.processes.rig import Node
from support.suite.skips import unavailable

PREFIX = "drill"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"


@attrs.define(eq=False)
class Host:
    """One namespace."""

    name: str
    address: str
    veth: str
    drops: list[str] = attrs.Factory(list)

    def run(self, *arguments: str) -> None:
        _ip("netns", "exec", self.name, "ip", *arguments)

    def drop_from(self, source: str) -> None:
        """What `source` sends does not arrive here."""
        if source in self.drops:
            return
        self.run("rule", "add", "pref", "1", "from", source, "blackhole")
        self.drops.append(source)

    def heal(self) -> None:
        for source in self.drops:
            self.run("rule", "del", "pref", "1", "from", source, "blackhole")
        self.drops.clear()

    def place(self, node: Node) -> None:
        """Let a node that is not started yet live here."""
        listen_at(node, self.address)
        node.process.command = [*self.prefix, *node.process.command]

    @property
    def prefix(self) -> tuple[str, ...]:
        """Before a command that is to run here."""
        return "ip", "netns", "exec", self.name


@attrs.define(eq=False)
class Net:
    """A bridge and the hosts on it."""

    network: str
    hosts: list[Host]

    @property
    def gateway(self) -> str:
        """Where the test lives."""
        return f"{self.network}.1"

    def cut(self, source: Host, target: Host) -> None:
        """One way."""
        target.drop_from(source.address)

    def separate(self, one: Host, other: Host) -> None:
        """From each other, both ways."""
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, host: Host) -> None:
        """From everybody, both ways."""
        host.drop_from(self.gateway)
        for other in self.hosts:
            if other is not host:
                host.drop_from(other.address)
                other.drop_from(host.address)

    def heal(self) -> None:
        for host in self.hosts:
            host.heal()


def listen_at(node: Node, address: str) -> None:
    """Give a node that is not started yet another address than loopback's."""
    node.process.command = [word.replace("127.0.0.1", address) for word in node.process.command]
    if "--listen" in node.process.command:  # one of ours: it has no secret here, and says so
        node.process.command = [*node.process.command, "--insecure"]
    node.address = node.address.replace("127.0.0.1", address)
    if node.ha_address is not None:
        node.ha_address = node.ha_address.replace("127.0.0.1", address)


@contextlib.contextmanager
def open_net(count: int) -> Iterator[Net]:
    """`count` hosts; the test is skipped where namespaces cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        unavailable("networks that can be cut need root and iproute2")
    serial = os.getpid() % 250
    network, bridge = f"10.77.{serial}", f"{PREFIX}-{serial}"
    hosts = [
        Host(f"{PREFIX}-{serial}-{number}", f"{network}.{number + 2}", f"{PREFIX}{serial}v{number}")
        for number in range(count)
    ]
    try:
        _ip("link", "add", bridge, "type", "bridge")
    except AssertionError as error:
        unavailable(f"no bridge can be made here: {error}")
    try:
        _ip("addr", "add", f"{network}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for host in hosts:
            _ip("netns", "add", host.name)
            _ip(
                "link", "add", host.veth, "type", "veth", "peer", "name", "eth0", "netns", host.name
            )
            _ip("link", "set", host.veth, "master", bridge, "up")
            host.run("addr", "add", f"{host.address}/24", "dev", "eth0")
            host.run("link", "set", "eth0", "up")
            host.run("link", "set", "lo", "up")
            # The table of local addresses comes first as a rule: our drops have to come before it.
            host.run("rule", "add", "pref", "10", "lookup", "local")
            host.run("rule", "del", "pref", "0")
        yield Net(network, hosts)
    finally:
        for host in hosts:
            # With its namespace it would go a moment later, and its name be taken meanwhile.
            subprocess.run(["ip", "link", "del", host.veth], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)
