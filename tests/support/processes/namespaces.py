"""Hosts of their own for the nodes of a set: network namespaces on a bridge, cut as a cable is.

The test, its clients and the name servers live in the namespace of the machine, at `.1` of a small
network; each node has a namespace and an address. A cut drops packets where they would arrive, so
the sender notices nothing but silence.

Networks are numbered. A process that uses a number holds a socket of that name, which the kernel
closes when the process dies, however it dies. So a network whose number no process holds was left
by a killed run, and the next one removes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator

import attrs

from support.processes.rig import Node
from support.suite.skips import unavailable

PREFIX = "cut"
NUMBERS = 250


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout


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
        """Drop packets that `source` sends here."""
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
        """Address of the test."""
        return f"{self.network}.1"

    def cut(self, source: Host, target: Host) -> None:
        """One way."""
        target.drop_from(source.address)

    def separate(self, one: Host, other: Host) -> None:
        """From each other, both ways."""
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, host: Host) -> None:
        """Cut a host off from the others both ways, and drop what the gateway sends to it."""
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
    remove_what_dead_runs_left()
    with _own_number() as number:
        network, bridge = f"10.78.{number}", f"{PREFIX}-{number}"
        hosts = [
            Host(f"{bridge}-{index}", f"{network}.{index + 2}", f"{bridge}v{index}")
            for index in range(count)
        ]
        try:
            _ip("link", "add", bridge, "type", "bridge")
        except AssertionError as error:
            unavailable(f"no bridge can be made here: {error}")
        try:
            _ip("addr", "add", f"{network}.1/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            for host in hosts:
                _connect(host, bridge)
            yield Net(network, hosts)
        finally:
            _remove(number)


def remove_what_dead_runs_left() -> None:
    """Remove the networks whose process was killed."""
    for number in {number for number, _ in (*_links(), *_namespaces())}:
        with contextlib.suppress(OSError), _holding(number):
            _remove(number)


def _connect(host: Host, bridge: str) -> None:
    _ip("netns", "add", host.name)
    _ip("link", "add", host.veth, "type", "veth", "peer", "name", "eth0", "netns", host.name)
    _ip("link", "set", host.veth, "master", bridge, "up")
    host.run("addr", "add", f"{host.address}/24", "dev", "eth0")
    host.run("link", "set", "eth0", "up")
    host.run("link", "set", "lo", "up")
    # The table of local addresses comes first as a rule: our drops have to come before it.
    host.run("rule", "add", "pref", "10", "lookup", "local")
    host.run("rule", "del", "pref", "0")


@contextlib.contextmanager
def _own_number() -> Iterator[int]:
    """Hold a number that no living process holds."""
    for step in range(NUMBERS):
        number = (os.getpid() + step) % NUMBERS
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(_holding(number))
            except OSError:
                continue
            yield number
            return
    raise AssertionError(f"all {NUMBERS} networks are in use")


def _holding(number: int) -> socket.socket:
    """Return the socket that holds a number until it is closed. Errors: OSError if it is held."""
    held = socket.socket(socket.AF_UNIX)
    try:
        # An abstract name: it belongs to the network namespace, as bridges do, and is no file.
        held.bind(f"\0trioha-{PREFIX}-{number}")
    except OSError:
        held.close()
        raise
    return held


def _remove(number: int) -> None:
    """Remove all that has this number, which this process holds."""
    # Veths first: with its namespace one would go a moment later, and its name be taken meanwhile.
    for kind, found in (("link", _links()), ("netns", _namespaces())):
        for name in (name for its_number, name in found if its_number == number):
            subprocess.run(["ip", kind, "del", name], capture_output=True, check=False)


def _links() -> list[tuple[int, str]]:
    """Return number and name of each bridge and veth."""
    names = re.findall(r"^\d+: ([^:@]+)", _ip("-o", "link", "show"), re.MULTILINE)
    return [(int(m[1]), m[0]) for m in map(_LINK.fullmatch, names) if m]


def _namespaces() -> list[tuple[int, str]]:
    """Return number and name of each namespace."""
    names = re.findall(r"^\S+", _ip("netns", "list"), re.MULTILINE)
    return [(int(m[1]), m[0]) for m in map(_NAMESPACE.fullmatch, names) if m]


_LINK = re.compile(rf"{PREFIX}-(\d+)(?:v\d+)?")
_NAMESPACE = re.compile(rf"{PREFIX}-(\d+)-\d+")
