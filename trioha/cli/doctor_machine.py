"""Checks of the machine for `trioha doctor`: a broker that waits for it looks slow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

Verdict = Literal["ok", "warn", "fail"]

_STEAL_WARN = 0.02
_THROTTLED_WARN = 0.01
_QUICK_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen")
"""Clocks that are read without a system call. A node reads its clock several times a message."""
_READ_AHEAD_KB, _READ_AHEAD_WARN_KB = 128, 1024
"""The kernel's own setting, and the one above which a broker stands still for milliseconds."""


@attrs.frozen
class Check:
    """One line."""

    name: str
    verdict: Verdict
    says: str
    cure: str = ""


def machine_checks(here: Path, root: Path = Path("/")) -> Iterator[Check]:
    """Every line that this machine has the facts for.

    `here` lies on the disk of the stores; `root` holds the machine's `proc` and `sys`.
    """
    for check in (_steal(root), _throttling(root), _clock(root), _read_ahead(here, root)):
        if check is not None:
            yield check


def _steal(root: Path) -> Check | None:
    """Time since the start in which the hypervisor ran another machine, proc(5)."""
    try:
        fields = (root / "proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ticks = [int(field) for field in fields]
        steal, total = ticks[7], sum(ticks)
    except (OSError, ValueError, IndexError):
        return None
    busy = total - ticks[3] - ticks[4]
    share = steal / busy if busy else 0.0
    says = f"the hypervisor took {share:.1%} of the time that programs wanted"
    if share < _STEAL_WARN:
        return Check("steal time", "ok", says)
    return Check(
        "steal time",
        "warn",
        says,
        "move to a host with fewer machines on it",
    )


def _throttling(root: Path) -> Check | None:
    """Periods in which this cgroup had used up its quota (cgroup v2, cpu.stat)."""
    try:
        group = (root / "proc/self/cgroup").read_text().strip().rpartition("::")[2]
        folder = root / "sys/fs/cgroup" / group.lstrip("/")
        rows = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
        periods, throttled = int(rows["nr_periods"]), int(rows["nr_throttled"])
    except (OSError, ValueError, KeyError):
        return None
    share = throttled / periods if periods else 0.0
    if share < _THROTTLED_WARN:
        return Check("processor quota", "ok", "none, or it was enough so far")
    return Check(
        "processor quota",
        "warn",
        f"used up in {share:.0%} of the periods: every task stands still until the next",
        "raise CPUQuota, or the container's limit of processors, or remove it",
    )


def _clock(root: Path) -> Check | None:
    folder = root / "sys/devices/system/clocksource/clocksource0"
    try:
        clock = (folder / "current_clocksource").read_text().strip()
        others = (folder / "available_clocksource").read_text().split()
    except OSError:
        return None
    if clock in _QUICK_CLOCKS:
        return Check("clock source", "ok", clock)
    better = [one for one in others if one in _QUICK_CLOCKS]
    cure = (
        f"echo {better[0]} > /{(folder / 'current_clocksource').relative_to(root)} as root"
        if better
        else "the machine offers no quicker one"
    )
    return Check("clock source", "warn", f"{clock}: each look at it is a system call", cure)


def _read_ahead(here: Path, root: Path) -> Check | None:
    """Bytes that the kernel reads ahead on the disk: of the log's writer, too.

    A put into a page that is not in memory looks to it like a read. So the broker waits until as
    much of the empty file is in memory: 19 ms for 8 MiB on a virtual machine, every 8 MiB.
    """
    try:
        device = here.stat().st_dev
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    block = (root / "sys/dev/block" / number).resolve()
    for path in (
        root / "sys/class/bdi" / number / "read_ahead_kb",
        block.parent / "queue/read_ahead_kb",  # of the disk that holds this partition
    ):
        try:
            size_kb = int(path.read_text())
        except (OSError, ValueError):
            continue
        if size_kb <= _READ_AHEAD_WARN_KB:
            return Check("read-ahead", "ok", f"{size_kb} KiB on the disk here")
        return Check(
            "read-ahead",
            "warn",
            f"{size_kb} KiB on the disk here: a broker under load stands still again and again"
            " while the kernel makes room for as much of its log",
            f"echo {_READ_AHEAD_KB} > /{path.relative_to(root.resolve())} as root",
        )
    return None
