"""Status and journal of nodes under test, and the commands of an operator."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import msgpack

from support.processes.admin import request
from support.processes.rig import REPO, Node
from support.suite.printing import check_printed
from trioha.journal.file import Event, read_journal
from trioha.store.inspect import verify_store
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

LEVEL_S = 40.0
COMMAND_S = 60.0
# Progress is not announced to a test, so it asks for it at this pace.
ASK_PERIOD_S = 0.03


def told_lines(node: Node, position: int = 0) -> list[str]:
    """Return a node's lines to its user but notes and events, from a position of its log on."""
    text = node.process.log_path.read_bytes()[position:].decode(errors="replace")
    lines = [line for line in text.splitlines() if line.startswith("trioha: ")]
    return [line for line in lines if not line.startswith("trioha: note:")]


def start_and_fail(node: Node) -> list[str]:
    """Start a node that cannot run: it ends by itself with code 1; returns what it told."""
    log = node.process.log_path
    position = log.stat().st_size if log.exists() else 0
    node.process.start()
    assert node.process.wait() == 1, node.process.tail()
    return told_lines(node, position)


def node_status(node: Node, within_s: float = 10.0) -> dict[str, Any]:
    """Return what `ha status` asks a broker for. Errors: OSError when it does not answer."""
    answer = request(node.address, RemotingCommand(RequestCode.TRIOHA_NODE_STATUS), within_s)
    assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"
    status: dict[str, Any] = msgpack.unpackb(answer.body_bytes())
    return status


def wait_until(what: str, is_so: Callable[[], object], within_s: float = LEVEL_S) -> None:
    """Ask again and again until `is_so`; its last false answer goes into the error."""
    deadline = time.monotonic() + within_s
    while True:
        answer = is_so()
        if answer is True or (answer and not isinstance(answer, str)):
            return
        assert time.monotonic() < deadline, f"not {what} after {within_s} s: {answer!r}"
        time.sleep(ASK_PERIOD_S)


def wait_in_sync(master: Node, within_s: float = LEVEL_S) -> None:
    """Wait until the master counts a slave as in sync."""

    def in_sync() -> object:
        links = node_status(master)["connections"]
        return any(link["in_sync"] for link in links) or str(links)

    wait_until(f"in sync with {master.name}", in_sync, within_s)


def wait_level(master: Node, slave: Node, within_s: float = LEVEL_S) -> int:
    """Wait until the slave holds and has dispatched all that the master holds; returns the end."""
    end = 0

    def level() -> object:
        nonlocal end
        above, below = node_status(master), node_status(slave)
        end = above["max_phy_offset"]
        ends = [above["max_phy_offset"], above["dispatched_offset"]]
        ends += [below["max_phy_offset"], below["dispatched_offset"]]
        return len(set(ends)) == 1 or f"{ends}, slave {below['slave']}"

    wait_until(f"{slave.name} level with {master.name}", level, within_s)
    return end


def check_sound(node: Node) -> None:
    """Every record is whole, and the consume queues are the projection of the log."""
    assert node.store is not None
    report = verify_store(node.store)
    assert report.sound, f"{node.store}: {report}"


def journal(node: Node, name: str | None = None) -> list[Event]:
    """The events of a broker's journal, or those of one name."""
    assert node.store is not None
    events = [item for item in read_journal(node.store / "journal") if isinstance(item, Event)]
    return [event for event in events if name is None or event.name == name]


def wait_for_event(
    node: Node, name: str, within_s: float = LEVEL_S, **fields: Any
) -> Mapping[str, Any]:
    """Wait for an event in the journal whose fields contain these."""
    found: list[Event] = []

    def there() -> bool:
        found[:] = [
            event
            for event in journal(node, name)
            if all(event.fields.get(key) == value for key, value in fields.items())
        ]
        return bool(found)

    wait_until(f"event {name} of {node.name}", there, within_s)
    return found[0].fields


@attrs.frozen
class Outcome:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str


def run_trioha(
    *arguments: str,
    within_s: float = COMMAND_S,
    prefix: Sequence[str] = (),
    **environment: str,
) -> Outcome:
    """Run a `trioha` command to its end. No user ever sees a traceback.

    A command that prints JSON prints what docs/schemas says.

    `prefix` comes before the command: see `support.processes.namespaces.Host.prefix`.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("TRIOHA_")}
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "trioha", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within_s,
        cwd=REPO,
        env=env | environment,
        check=False,
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    check_printed(arguments, done.stdout)
    return Outcome(done.returncode, done.stdout, done.stderr)
