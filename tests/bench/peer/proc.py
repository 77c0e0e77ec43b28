"""Processor seconds and resident memory of processes, as Linux tells them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KIB_PER_MIB = 1024


@attrs.frozen
class CpuReading:
    """Processor seconds since the start: of named processes, and of all there are."""

    by_name: Mapping[str, float]
    all_processes: float

    def until(self, later: CpuReading) -> CpuReading:
        """Return the processor seconds between this reading and a later one."""
        used = {name: later.by_name[name] - self.by_name[name] for name in self.by_name}
        return CpuReading(used, later.all_processes - self.all_processes)

    @property
    def others(self) -> float:
        """Processor seconds of unnamed processes; 0 if clock ticks make them negative."""
        return max(0.0, self.all_processes - sum(self.by_name.values()))


@attrs.frozen
class MemoryReading:
    """Resident memory in MiB."""

    rss: float
    private: float
    """Anonymous: no file can give it back."""
    beyond_log: float
    """All but the mapped files of the store."""


def read_cpu(pids: Mapping[str, int]) -> CpuReading:
    """Errors: FileNotFoundError when one of the processes is gone."""
    by_name = {
        name: cpu_seconds(Path(f"/proc/{pid}/stat").read_text()) for name, pid in pids.items()
    }
    with Path("/proc/stat").open() as stat:
        return CpuReading(by_name, all_cpu_seconds(stat.readline()))


def read_memory(pid: int, store: Path) -> MemoryReading:
    with Path(f"/proc/{pid}/smaps").open() as smaps:
        return memory_of(smaps, store)


def cpu_seconds(stat: str) -> float:
    """User and system time of /proc/<pid>/stat; the name in it may hold blanks and brackets."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def all_cpu_seconds(line: str) -> float:
    """User, nice and system time of the first line of /proc/stat.

    Interrupts are left out: they are no process's, and under load mostly our own packets.
    """
    label, *fields = line.split()
    assert label == "cpu", line
    return sum(map(int, fields[:3])) / _TICKS_PER_S


def memory_of(smaps: Iterable[str], store: Path) -> MemoryReading:
    """Sum up /proc/<pid>/smaps."""
    rss = anonymous = of_store = 0
    inside = False
    below = f"{store}{os.sep}"
    for line in smaps:
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            # A mapping's own line: range, rights, offset, device, inode and perhaps a path.
            parts = rest.split(None, 4)
            inside = len(parts) == 5 and parts[4].startswith(below)
        elif name == "Rss:":
            size = int(rest.split()[0])
            rss += size
            of_store += size if inside else 0
        elif name == "Anonymous:":
            anonymous += int(rest.split()[0])
    return MemoryReading(
        rss / _KIB_PER_MIB, anonymous / _KIB_PER_MIB, (rss - of_store) / _KIB_PER_MIB
    )
