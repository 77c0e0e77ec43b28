"""Run a command within a limit, and leave none of its processes behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gate.plan import GRACE_S

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / ".ci" / "out"
"""Reports, logs and what has passed. Git ignores it."""
VENV = ROOT / ".venv" / "bin"

_PERIOD_S = 0.05
_KILLING_S = 10.0
"""Time for processes that are killed to be gone."""
_MARK = "GATE_COMMANDS"
"""Variable that all processes of a command inherit: its name and the names of those around it."""
_marks: set[str] = set()
_UNSET_NAMES = {"FAILPOINTS", "BREAKAGE", "SYNCED", "NAMESRV_ADDR", "NOTIFY_SOCKET"}
_UNSET_PREFIXES = (
    # Settings of the nodes, and TRIOHA_REWRITE.
    "TRIOHA_",
    # Sizes and seeds of campaigns.
    *("TEST_", "RAFT_", "HA_", "HOSTILE_"),
    # PYTHONOPTIMIZE removes every assertion.
    *("PYTHON", "PYTEST_", "HYPOTHESIS_"),
)


class CommandFailed(Exception):
    """A command failed or did not end in time. The text says which, and why."""


@dataclass
class Budget:
    """The rest of a step's time, and the processor time that its commands took."""

    deadline_s: float
    cpu_s: float = 0.0

    @classmethod
    def of(cls, limit_s: float) -> Budget:
        return cls(time.monotonic() + limit_s)

    @property
    def left_s(self) -> float:
        return max(0.0, self.deadline_s - time.monotonic())


def environment(**changes: str) -> dict[str, str]:
    """Return what every command of a run sees: nothing that would soften or change a test."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _UNSET_NAMES and not name.startswith(_UNSET_PREFIXES)
    }
    path = f"{VENV}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "CI": "1", "PATH": path, **changes}


def run(
    command: Sequence[str | Path],
    budget: Budget,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    output: IO[bytes] | None = None,
) -> int:
    """Run it in a process group of its own; return its exit code.

    Over its limit the group is interrupted, so that pytest still writes its report, and killed
    after a grace. All that it started is killed at its end, also in other groups and sessions.
    Errors: CommandFailed when it was over its limit, or does not exist.
    """
    words = [str(word) for word in command]
    mark = f"<{os.getpid()} {time.monotonic_ns()}>"
    env = dict(env if env is not None else environment())
    env[_MARK] = os.environ.get(_MARK, "") + mark
    sys.stdout.flush()
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise CommandFailed(f"there is no {words[0]}: run `.ci/run setup` first") from error
    _marks.add(mark)
    with _ended(process, mark):
        if _wait(process, budget, budget.left_s):
            return process.returncode
        os.killpg(process.pid, signal.SIGINT)
        _wait(process, budget, GRACE_S)
        raise CommandFailed(f"did not end in time: {' '.join(words)}")


def check(
    command: Sequence[str | Path],
    budget: Budget,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    output: IO[bytes] | None = None,
) -> None:
    """Run it. Errors: CommandFailed unless it succeeds."""
    code = run(command, budget, env=env, cwd=cwd, output=output)
    if code:
        raise CommandFailed(f"exit code {code}: {' '.join(map(str, command))}")


def _wait(process: subprocess.Popen[bytes], budget: Budget, within_s: float) -> bool:
    """Whether it ended; then its processor time, and its dead children's, is added up."""
    deadline_s = time.monotonic() + within_s
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            budget.cpu_s += usage.ru_utime + usage.ru_stime
            return True
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_PERIOD_S)


@contextmanager
def _ended(process: subprocess.Popen[bytes], mark: str) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            process.wait()
        _kill_marked(mark)
        _marks.discard(mark)


def _kill_marked(mark: str) -> None:
    """Kill until none is left: a process may start others while the list is read."""
    deadline_s = time.monotonic() + _KILLING_S
    while pids := list(_marked(mark.encode())):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline_s:
            print(f"processes that cannot be killed: {pids}", flush=True)
            return
        time.sleep(_PERIOD_S)


def _marked(mark: bytes) -> Iterator[int]:
    """The processes that inherited this mark; a dead one that waits for its parent has none."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        # Gone, or another user's.
        with suppress(OSError):
            if mark in path.read_bytes():
                yield int(path.parent.name)


def kill_all() -> None:
    """Kill what still runs: for a run that is stopped."""
    for mark in tuple(_marks):
        _kill_marked(mark)
