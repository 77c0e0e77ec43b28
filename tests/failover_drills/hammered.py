"""A process that hammers one address, and what it was told."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from pathlib import Path

import attrs
from support.processes.rig import REPO, Process, Processes

from trioha.wire.codes import ResponseCode


@attrs.frozen
class Told:
    """One answer."""

    name: str
    code: int
    began: float
    ended: float


class Hammer:
    """Runs `hammer.py`, perhaps in a namespace."""

    def __init__(
        self, processes: Processes, address: str, topic: str, prefix: tuple[str, ...] = ()
    ) -> None:
        self.told: list[Told] = []
        self._changed = threading.Condition()
        script = Path(__file__).with_name("hammer.py")
        self._process = Process(
            "hammer",
            [*prefix, sys.executable, str(script), address, topic],
            processes.root / "logs" / "hammer.log",
            {"PYTHONPATH": str(REPO), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            processes.root,
            on_line=self._hear,
            merge_stderr=False,
        )
        processes.add(self._process)
        self._process.start()

    def wait_for_more(self, count: int = 50, within_s: float = 60.0) -> None:
        """Wait for so many answers from now on, whatever they say."""
        with self._changed:
            wanted = len(self.told) + count
            done = self._changed.wait_for(lambda: len(self.told) >= wanted, within_s)
        assert done, f"{len(self.told)} of {wanted} answers\n{self._process.tail()}"

    def acknowledged_since(self, moment_s: float) -> list[Told]:
        """SEND_OK to a send that began after that."""
        return [
            one for one in self.told if one.began > moment_s and one.code == ResponseCode.SUCCESS
        ]

    def acknowledged(self) -> list[Told]:
        return self.acknowledged_since(0.0)

    @property
    def codes(self) -> Counter[int]:
        return Counter(one.code for one in self.told)

    def stop(self) -> None:
        self._process.kill()

    def _hear(self, line: str) -> None:
        with self._changed:
            self.told.append(Told(**json.loads(line)))
            self._changed.notify_all()
