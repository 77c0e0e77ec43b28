"""The load clients as processes: told one run after the other, watched at the ends of each window.

The Java client lives as long as the brokers it loads, so that its compiler is done with it once.
The C++ client leaves after a run, since its library does not end cleanly: what it does after its
result does not count.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import attrs
from bench.peer.proc import CpuReading, read_cpu
from support.peers.java import class_path, java_command, java_environment
from support.processes.rig import Process, Processes, ProcessFailed

HERE = Path(__file__).resolve().parent
CLASSES = HERE / "target" / "classes"
CLIENT_HEAP = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC")
COMPILE_S = 120.0
SLACK_S = 60.0
ClientKind = Literal["java", "cpp"]
_groups = itertools.count(1)
_homes = itertools.count(1)


class LoadFailed(Exception):
    """A load client could not do its work; the text is its own."""


class LoadClientEnded(LoadFailed):
    """The client's process is gone; its brokers may be well."""


@attrs.frozen
class Outcome:
    """Report of a load client, and the cost of its window."""

    figures: Mapping[str, Any]
    errors: Mapping[str, int]
    first_error: str | None
    stored: int
    cpu: CpuReading | None
    elapsed_s: float


@functools.cache
def load_client_classes() -> str:
    """Directory of the compiled Java load client.

    Errors: subprocess.CalledProcessError when javac refuses.
    """
    CLASSES.mkdir(parents=True, exist_ok=True)
    sources = map(str, sorted((HERE / "java").glob("*.java")))
    subprocess.run(
        ["javac", "-nowarn", "-cp", class_path(), "-d", str(CLASSES), *sources],
        check=True,
        timeout=COMPILE_S,
    )
    return str(CLASSES)


@attrs.define(eq=False)
class LoadClient:
    """One client process and the run it is at. `watched` names whose processor time counts."""

    process: Process
    watched: Callable[[], Mapping[str, int]]
    _changed: threading.Condition = attrs.Factory(threading.Condition)
    _readings: list[CpuReading] = attrs.Factory(list)
    _times_s: list[float] = attrs.Factory(list)
    _result: dict[str, Any] | None = None
    _failure: str | None = None
    _ended: bool = False

    def begin(self, mode: str, options: Mapping[str, object]) -> None:
        """Start one run; of each the outcome is asked for before the next.

        Errors: LoadClientEnded.
        """
        with self._changed:
            self._readings, self._times_s = [], []
            self._result = self._failure = None
        if not self.process.running:
            self.process.on_line, self.process.on_end = self._hear, self._hear_end
            self._ended = False
            self.process.start()
        # No two runs are of one group: a broker keeps what it knows of a group for a while.
        options = {"group": f"bench_{next(_groups)}", **options}
        try:
            self.process.write_line(json.dumps({"mode": mode, "options": options}))
        except ProcessFailed as error:
            raise LoadClientEnded(str(error)) from None

    def finish(self) -> None:
        """End a run that goes on until it is told to stop."""
        self.process.write_line("")

    def wait_until_measuring(self, within_s: float = SLACK_S) -> None:
        self._wait(1, within_s)

    def outcome(self, within_s: float) -> Outcome:
        """Wait for the report. Errors: LoadFailed."""
        self._wait(3, within_s)
        assert self._result is not None
        first, last = (*self._readings, None, None)[:2]
        return Outcome(
            figures=self._result["figures"],
            errors=self._result["errors"],
            first_error=self._result.get("first_error"),
            stored=self._result.get("stored", 0),
            cpu=first.until(last) if first is not None and last is not None else None,
            elapsed_s=self._times_s[-1] - self._times_s[0],
        )

    def _wait(self, stage: int, within_s: float) -> None:
        """Stages: 1 measuring, 2 measured, 3 reported."""
        deadline = time.monotonic() + within_s

        def arrived() -> bool:
            return len(self._times_s) + (self._result is not None) >= stage

        with self._changed:
            self._changed.wait_for(
                lambda: arrived() or self._ended or self._failure is not None,
                max(0.0, deadline - time.monotonic()),
            )
            if arrived():
                return
        why = self._failure or ("it ended" if self._ended else f"silent for {within_s:.0f} s")
        kind = LoadClientEnded if self._ended and self._failure is None else LoadFailed
        raise kind(f"{self.process.name}: {why}\n{self.process.tail()}")

    def _hear(self, line: str) -> None:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            return
        kind = event.get("event")
        with self._changed:
            if kind in ("measuring", "measured"):
                self._times_s.append(time.monotonic())
                try:
                    self._readings.append(read_cpu(self._watched()))
                except OSError as error:
                    self._failure = f"a node has ended: {error}"
            elif kind == "result":
                self._result = event
            elif kind == "broken":
                self._failure = event["error"]
            self._changed.notify_all()

    def _hear_end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _watched(self) -> dict[str, int]:
        return {**self.watched(), "client": self.process.pid, "harness": os.getpid()}


def open_load_client(
    kind: ClientKind,
    header: str,
    processes: Processes,
    namesrv: str,
    watched: Callable[[], Mapping[str, int]],
    properties: Mapping[str, str] = MappingProxyType({}),
) -> LoadClient:
    """A client of brokers under this name server, started by its first run.

    `properties`: system properties of the Java client.
    """
    home = processes.root / "clients" / f"{kind}-{next(_homes)}"
    home.mkdir(parents=True)
    if kind == "java":
        command = java_command(
            "LoadClient",
            home,
            [namesrv],
            heap=CLIENT_HEAP,
            properties={"rocketmq.serialize.type": header, **properties},
            classes=load_client_classes(),
        )
        environment = java_environment(home)
    else:
        command = [sys.executable, str(HERE / "cpp_load.py"), namesrv]
        # The C++ library logs below HOME.
        environment = {**os.environ, "HOME": str(home)}
    process = Process(
        home.name, command, home / "client.log", environment, home, merge_stderr=False
    )
    return LoadClient(processes.add(process), watched)
