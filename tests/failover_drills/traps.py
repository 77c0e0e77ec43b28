"""Kills or stops a member the next time that it comes to a step (see `strikable`)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import attrs
from failover_drills.strikable_steps import STRUCK_SUFFIX
from support.processes.rig import Node
from support.processes.status import wait_until

STRUCK_S = 30.0


def make_strikable(node: Node) -> None:
    """Let a node that is not started yet run under `strikable.py`."""
    command = list(node.process.command)
    at = command.index("-m")
    assert command[at + 1] == "trioha", command
    command[at : at + 2] = [str(Path(__file__).with_name("strikable.py"))]
    node.process.command = command
    assert node.process.env is not None
    node.process.env = {**node.process.env, "STRIKE_FILE": str(_armed_file(node))}


@attrs.frozen
class Trap:
    """One strike at one step of one member. The step is one of `strikable_steps`."""

    node: Node
    step: str
    number: signal.Signals = signal.SIGKILL

    def arm(self) -> Trap:
        file = _armed_file(self.node)
        _struck_file(self.node).unlink(missing_ok=True)
        fresh = file.with_name(file.name + ".new")
        fresh.write_text(json.dumps({"step": self.step, "signal": int(self.number)}))
        fresh.rename(file)
        return self

    @property
    def struck(self) -> bool:
        return _struck_file(self.node).exists()

    def wait_struck(self, within_s: float = STRUCK_S) -> None:
        wait_until(f"struck {self.step} at {self.node.name}", lambda: self.struck, within_s)
        if self.number is signal.SIGKILL:
            self.node.process.wait()
        else:
            wait_until(f"{self.node.name} stopped", self._is_stopped)

    def disarm(self) -> bool:
        """Take an unused trap away; True if it has struck."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_armed_file(self.node))
        return self.struck

    def _is_stopped(self) -> bool:
        stat = Path(f"/proc/{self.node.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"


def _armed_file(node: Node) -> Path:
    assert node.store is not None, f"{node.name} has no store"
    return node.store.with_name("strike.json")


def _struck_file(node: Node) -> Path:
    file = _armed_file(node)
    return file.with_name(file.name + STRUCK_SUFFIX)
