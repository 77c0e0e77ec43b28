"""An operator's jobs in the console, by a script: a real cluster, a real terminal, keys counted.

`python -m support.screens.console_day` prints the table of docs/console.md.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from support.clusters.replica_set import BROKER, SETTINGS, ReplicaSet
from support.processes.admin import create_topic
from support.processes.rig import REPO, Process, Processes, running_processes, trioha_command
from support.processes.status import run_trioha
from support.screens.terminal import Terminal, open_terminal

TOPIC, GROUP = "orders", "billing"
DEAD_LETTERS = 1000
SIZES = ((80, 24), (200, 50))
_HEARTBEAT_MS, _LIMIT_MS = 1000, 12_000


@attrs.frozen
class JobDone:
    """One job, as it went."""

    job: str
    keys: int
    seconds: float
    """From the first key to the words that say that it is done."""


@attrs.define(eq=False)
class Day:
    """The cluster, the terminal, and what has been done so far."""

    set: ReplicaSet
    terminal: Terminal
    done: list[JobDone] = attrs.Factory(list)
    _keys: int = 0

    def press(self, *keys: str) -> None:
        self._keys += len(keys)
        self.terminal.send(*keys)

    def type(self, text: str) -> None:
        self._keys += len(text)
        self.terminal.type(text)

    def enter(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def leave(self) -> None:
        """Back to the cluster. The next key has to wait: escape and a key at once are alt."""
        self.press("Escape")
        self.terminal.wait_for(r"1 Replication +2 Brokers")

    @contextmanager
    def job(self, name: str) -> Iterator[None]:
        self._keys = 0
        began_s = time.monotonic()
        yield
        self.done.append(JobDone(name, self._keys, time.monotonic() - began_s))


@contextmanager
def open_day(processes: Processes, terminal: Terminal) -> Iterator[Day]:
    """Three nodes with a topic and a DLQ; a consumer that runs; the console is open."""
    settings = dict(SETTINGS) | {
        "haSendHeartbeatInterval": _HEARTBEAT_MS,
        "haHousekeepingInterval": _LIMIT_MS,
    }
    nodes = ReplicaSet(processes, slave_count=2, namesrv_count=2, settings=settings).start()
    for topic in (TOPIC, f"%DLQ%{GROUP}", f"%RETRY%{GROUP}"):
        create_topic(nodes.master.address, nodes.namesrvs[0].address, topic)
    for topic, count in ((TOPIC, 200), (f"%DLQ%{GROUP}", DEAD_LETTERS)):
        many = ("--count", str(count), "--concurrency", "16")
        sent = run_trioha("produce", "-n", nodes.namesrv, "-t", topic, *many)
        assert sent.code == 0, sent.err
    consumer = _consumer(processes, nodes.namesrv)
    python_path = os.pathsep.join([str(REPO), str(REPO / "console")])
    environment = {"PYTHONPATH": python_path, "XDG_STATE_HOME": str(processes.root)}
    command = [sys.executable, "-m", "trioha", "console", "-n", nodes.namesrv, "--write"]
    terminal.run(command, environment)
    terminal.wait_for(r"● all well")
    yield Day(nodes, terminal)
    terminal.send("q")
    terminal.wait_for(r"^\$ ?$")
    consumer.stop()


def _consumer(processes: Processes, namesrv: str) -> Process:
    command = trioha_command("consume", "-n", namesrv, "-t", TOPIC, "-g", GROUP)
    environment = os.environ | {"PYTHONPATH": str(REPO), "PYTHONUNBUFFERED": "1"}
    log = processes.root / "logs" / "consumer.log"
    consumer = processes.add(Process("consumer", command, log, environment, REPO))
    consumer.start()
    return consumer


def live_a_day(day: Day) -> list[JobDone]:
    """All jobs, one after the other."""
    for step in _STEPS:
        step(day)
    return day.done


def find_the_lagging_slave(day: Day) -> None:
    lagging = day.set.nodes[2]
    lagging.process.signal(signal.SIGSTOP)
    with day.job("find the lagging slave, and why"):
        day.terminal.wait_for(r"2: no heartbeat for")
        day.terminal.wait_for(rf"✖ 2 {lagging.address}")
    assert "all well" not in day.terminal.screen


def read_why_an_alert_fired(day: Day) -> None:
    with day.job("read why an alert fired"):
        day.terminal.wait_for(r"\d alerts?  ")
        day.press("7")
        day.terminal.wait_for(
            r"heartbeat_age: silence on a link|broker_silent: a registered broker does not"
        )
    lagging = day.set.nodes[2]
    lagging.process.signal(signal.SIGCONT)
    day.press("1")
    day.terminal.wait_for(r"2/2 in sync")


def reset_a_live_group(day: Day) -> None:
    with day.job("reset a group by time, its consumer running"):
        day.press("5")
        day.terminal.wait_for(GROUP)
        day.press("R")
        day.terminal.wait_for(rf":reset-offsets {GROUP}")
        day.enter(f"{TOPIC} 1h ago")
        day.terminal.wait_for(r"200 messages consumed again")
        day.terminal.wait_for(r"pushed to 1 connected member")
        day.press("c")
        day.enter(GROUP)
        day.terminal.wait_for(rf"● {GROUP} goes on from there in {TOPIC}")
    day.leave()


def resend_dead_letters(day: Day) -> None:
    with day.job(f"resend {DEAD_LETTERS} dead letters"):
        day.press("5")
        day.terminal.wait_for(GROUP)
        day.press("d")
        day.terminal.wait_for(r"50 messages")
        day.press("R")
        day.terminal.wait_for(rf"{DEAD_LETTERS} would be sent to {GROUP}")
        day.press("c")
        day.enter(GROUP)
        day.terminal.wait_for(rf"{DEAD_LETTERS} sent to {GROUP}, 0 sent before")
    day.leave()


def fail_over_with_a_wrong_name_first(day: Day) -> None:
    day.press("1")
    day.set.nodes[0].kill()
    day.terminal.wait_for(r"no master")
    with day.job("fail over, the name mistyped first"):
        day.press("F")
        day.terminal.wait_for(r"c goes on")
        day.press("c")
        day.terminal.wait_for(rf"type {BROKER} and press enter")
        day.enter("broker-q")
        day.terminal.wait_for(rf"broker-q is not {BROKER}; nothing has been done")
        day.press("BSpace")
        day.enter("a")
        day.terminal.wait_for(r"● done: \d .* is master of broker-a")
    day.leave()
    day.terminal.wait_for(r"1/2 in sync")
    assert len([line for line in day.terminal.screen.splitlines() if " MASTER " in line]) == 1


def drain_a_broker(day: Day) -> None:
    with day.job("drain a broker"):
        day.press("2")
        day.terminal.wait_for(r"name servers")
        day.press("D")
        day.terminal.wait_for(r"becomes master of")
        day.press("c")
        day.enter(BROKER)
        day.terminal.wait_for(r"is safe to stop")
    day.leave()


_STEPS: tuple[Callable[[Day], None], ...] = (
    find_the_lagging_slave,
    read_why_an_alert_fired,
    reset_a_live_group,
    resend_dead_letters,
    fail_over_with_a_wrong_name_first,
    drain_a_broker,
)


def main() -> None:
    print("| job | size | keys | seconds |\n|---|---|--:|--:|")
    for columns, rows in SIZES:
        with (
            tempfile.TemporaryDirectory() as scratch,
            running_processes(Path(scratch)) as processes,
            open_terminal(columns, rows) as terminal,
            open_day(processes, terminal) as day,
        ):
            for one in live_a_day(day):
                print(f"| {one.job} | {columns}x{rows} | {one.keys} | {one.seconds:.1f} |")


if __name__ == "__main__":
    main()
