"""Samples as they were measured, and how busy other processes kept the machine meanwhile."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from bench.peer.proc import cpu_seconds, read_cpu
from support.processes.rig import Processes

FORMAT = 1


@attrs.frozen(kw_only=True)
class Sample:
    """One measurement of one side."""

    row: str
    side: str
    round: int
    figures: Mapping[str, float]
    errors: Mapping[str, int] = attrs.field(factory=dict)
    failed: str | None = None
    strangers: float = 0.0
    """Processors that other processes took on average."""
    at: str = ""


@attrs.define
class Strangers:
    """Processor time of all processes but this one and those it has started."""

    processes: Processes
    average: float = 0.0

    def total_s(self) -> float:
        live_s = sum(os.times()[:4])
        for process in self.processes.members:
            if process.running:
                with contextlib.suppress(OSError):
                    live_s += cpu_seconds(Path(f"/proc/{process.pid}/stat").read_text())
        return read_cpu({}).all_processes - live_s

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Sets `average` to the processors they took within the block."""
        began_s, before_s = time.monotonic(), self.total_s()
        yield
        self.average = max(0.0, self.total_s() - before_s) / (time.monotonic() - began_s)


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def save(path: Path, setup: Mapping[str, Any], samples: Sequence[Sample]) -> None:
    """Write all of it; what was there before stays until the new file is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "format": FORMAT,
        "setup": dict(setup),
        "samples": [attrs.asdict(sample) for sample in samples],
    }
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    fresh.replace(path)


def load(path: Path) -> tuple[dict[str, Any], list[Sample]]:
    """Errors: ValueError for a file of another format."""
    document = json.loads(path.read_text())
    if document.get("format") != FORMAT:
        raise ValueError(f"{path}: format {document.get('format')}, not {FORMAT}")
    return document["setup"], [Sample(**sample) for sample in document["samples"]]
