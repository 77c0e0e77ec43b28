"""The story of docs/console.md: a real set of processes, a real terminal, an operator.

A slave stands still; its heartbeat ages past the limit and the link drops. The master dies. The
wizard promotes the other slave. The old master comes back and rejoins. All of it is recorded, and
then read again from the recording.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from support.clusters.replica_set import BROKER, SETTINGS, ReplicaSet
from support.processes.admin import create_topic
from support.processes.rig import REPO, Process, Processes, trioha_command
from support.processes.status import run_trioha, wait_until
from support.screens.terminal import Terminal
from trioha.watch.recording import open_recording

TOPIC = "orders"
HEARTBEAT_S, LIMIT_S = 1, 12
ROUND_MS = 1000  # of `trioha record`
_AGE = re.compile(rf"(\d+(?:\.\d)?)/{LIMIT_S}s")

Scene = Callable[[str], None]
"""Called with a name while the screen shows that scene."""


@attrs.define(eq=False)
class Drill:
    """The cast: a set of three, a recorder, a terminal."""

    set: ReplicaSet
    recorder: Process
    recording: Path
    terminal: Terminal
    scene: Scene

    def open_console(self, *arguments: str) -> None:
        python_path = os.pathsep.join([str(REPO), str(REPO / "console")])
        environment = {"PYTHONPATH": python_path, "XDG_STATE_HOME": str(self.recording.parent)}
        environment |= {"COLORTERM": "truecolor", "PYTHONWARNINGS": "error"}
        self.terminal.run([sys.executable, "-m", "trioha", "console", *arguments], environment)

    def leave_console(self) -> None:
        """Back in the shell, which is as it was: it echoes what is typed and shows the cursor."""
        self.terminal.send("q")
        self.terminal.wait_for(r"^\$ ?$")
        check_restored(self.terminal)

    def age_of(self, address: str) -> float | None:
        """Return the age of the last heartbeat that the console shows for this replica."""
        for line in self.terminal.screen.splitlines():
            if address in line and (match := _AGE.search(line)):
                return float(match[1])
        return None


@contextmanager
def open_drill(
    processes: Processes, terminal: Terminal, scene: Scene = lambda name: None
) -> Iterator[Drill]:
    """Three nodes, level, with messages; a recorder that watches them."""
    settings = dict(SETTINGS) | {
        "haSendHeartbeatInterval": HEARTBEAT_S * 1000,
        "haHousekeepingInterval": LIMIT_S * 1000,
    }
    replica_set = ReplicaSet(processes, slave_count=2, settings=settings).start()
    create_topic(replica_set.master.address, replica_set.namesrv, TOPIC)
    sent = run_trioha(
        *(
            "bench",
            "produce",
            "-n",
            replica_set.namesrv,
            "-t",
            TOPIC,
            "--rate",
            "500",
            "--seconds",
            "2",
        ),
    )
    assert sent.code == 0, sent.err
    recording = processes.root / "monday.trr"
    command = trioha_command("record", "-n", replica_set.namesrv, "--out", str(recording))
    environment = os.environ | {"PYTHONPATH": str(REPO), "PYTHONUNBUFFERED": "1"}
    recorder = processes.add(
        Process("recorder", command, processes.root / "logs" / "recorder.log", environment, REPO)
    )
    recorder.start()
    recorder.wait_for_line(r"trioha record: ")
    yield Drill(replica_set, recorder, recording, terminal, scene)


def check_restored(terminal: Terminal) -> None:
    """The shell is as it was: it shows what is typed, and carries it out."""
    terminal.type("clear; echo $((40 + 2)) back; stty -a | grep -o ' echo '")
    terminal.send("Enter")
    terminal.wait_for(r"^42 back")
    terminal.wait_for(r"^ ?echo ?$")


def live_through(drill: Drill) -> None:
    """From the first look to the returned master, in the console."""
    terminal, replica_set = drill.terminal, drill.set
    master, healthy, lagging = replica_set.nodes
    drill.open_console("-n", replica_set.namesrv, "--write")
    terminal.wait_for(r"2/2 in sync")
    drill.scene("well")

    lagging.process.signal(signal.SIGSTOP)
    terminal.wait_for(rf"{lagging.address} .*(no heartbeat|unreachable)")
    _go_to(terminal, lagging.address)
    ages = [age for _ in range(3) if (age := _next_age(drill, lagging.address)) is not None]
    assert ages == sorted(ages), f"the age of the last heartbeat falls: {ages}"
    drill.scene("late")
    terminal.wait_for(r"It has no link to this slave")
    terminal.wait_for(r"1/2 in sync")
    drill.scene("link-lost")
    _wait_until_recorded(drill)

    master.kill()
    terminal.wait_for(r"no master")
    _wait_until_recorded(drill)
    terminal.send("F")
    terminal.wait_for(r"forced: the master is out")
    terminal.wait_for(r"does not answer and may hold more")
    drill.scene("risk")
    terminal.send("f")
    terminal.wait_for(r"the risk is accepted")
    terminal.send("c")
    terminal.wait_for(rf"type {BROKER} and press enter")
    drill.scene("plan")
    terminal.type(BROKER)
    terminal.send("Enter")
    terminal.wait_for(r"● done: 1 .* is master of broker-a since epoch 2")
    terminal.wait_for(r"audit +done")
    terminal.wait_for(rf"master +1 +{healthy.address}")
    drill.scene("done")
    terminal.send("Escape")
    terminal.wait_for(rf"{healthy.address} +writable +MASTER +2")

    lagging.process.signal(signal.SIGCONT)
    master.start()
    terminal.wait_for(r"2/2 in sync")
    terminal.wait_for(rf"{master.address} +in sync +SLAVE +2")
    drill.scene("rejoined")
    drill.leave_console()
    _wait_until_recorded(drill)
    drill.recorder.stop()


def _wait_until_recorded(drill: Drill) -> None:
    """The recorder asks on its own account: it may not have seen yet what the console shows."""
    seen_ms = time.time() * 1000 + ROUND_MS
    wait_until("recorded", lambda: open_recording(drill.recording).end_wall_ms > seen_ms)


def read_again(drill: Drill) -> None:
    """The same from the recording."""
    terminal = drill.terminal
    master, healthy, lagging = drill.set.nodes
    drill.open_console("--replay", str(drill.recording))
    terminal.wait_for(r"2/2 in sync")
    terminal.wait_for(r"marks; \] goes to the next")
    _next_mark_until(terminal, rf"{lagging.address} +(no heartbeat|unreachable)")
    _next_mark_until(terminal, r"1/2 in sync")
    drill.scene("replay")
    _next_mark_until(terminal, r"no master")
    _next_mark_until(terminal, rf"{healthy.address} +writable +MASTER +2")
    # In one burst, as a script sends it: nothing waits for the prompt.
    terminal.send(":jump +1h", "Enter")
    terminal.wait_for(rf"{master.address} +in sync +SLAVE +2")
    drill.leave_console()


def _go_to(terminal: Terminal, address: str) -> None:
    """Move the cursor until the lower panel tells of this replica."""
    terminal.send("g")
    for _ in range(8):
        terminal.send("Down")
        if re.search(rf"slave's end +{address}", terminal.screen):
            return
    terminal.wait_for(rf"slave's end +{address}", 5.0)


def _next_age(drill: Drill, address: str) -> float | None:
    """A later age than the one on the screen, or None when the link is gone meanwhile."""
    before = drill.age_of(address)
    for _ in range(100):
        age = drill.age_of(address)
        if age is None or "no link" in drill.terminal.screen:
            return None
        if before is None or age > before:
            return age
        drill.terminal.wait_for(".", 1.0)
    return None


def _next_mark_until(terminal: Terminal, pattern: str) -> None:
    """Jump from mark to mark until the screen shows this.

    The next key is sent when the screen of the one before is painted: of keys that come together
    only the last one's screen is.
    """
    screen = terminal.screen
    while not re.search(pattern, screen):
        assert "no mark any further" not in screen, f"no mark shows {pattern!r}\n{screen}"
        terminal.send("]")
        screen = terminal.wait_steady(screen)
