"""Times of steps, folders and tests, beside those of last time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gate.junit import Case, Totals
from gate.plan import Sample

SLOWEST = 30
KEPT_FROM_S = 1.0
"""Tests that take less are only in the sum of their folder."""


@dataclass
class StepTimes:
    """One step of a run."""

    wall_s: float
    cpu_s: float
    passed: int = 0
    skipped: int = 0
    folders: dict[str, float] = field(default_factory=dict)
    tests: dict[str, float] = field(default_factory=dict)
    estimated_from: str = ""
    """The sample that the times were estimated from; empty for times that were measured."""
    failed: bool = False
    """Whether the step failed, so that it may have ended early."""

    @property
    def is_whole(self) -> bool:
        """Whether all of the step was run."""
        return not self.failed and not self.estimated_from


Run = dict[str, StepTimes]
"""Steps by name."""


def step_times(
    wall_s: float,
    cpu_s: float,
    cases: Sequence[Case] = (),
    totals: Totals | None = None,
    *,
    failed: bool = False,
) -> StepTimes:
    """Return what is worth keeping of a step."""
    totals = totals or Totals()
    folders: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for case in cases:
        folders[case.folder] += case.seconds  # type: ignore[assignment]
        tests[case.name] += case.seconds  # type: ignore[assignment]
    return StepTimes(
        round(wall_s, 1),
        round(cpu_s, 1),
        totals.passed,
        totals.skipped,
        {name: round(seconds, 1) for name, seconds in sorted(folders.items())},
        {
            name: round(seconds, 1)
            for name, seconds in sorted(tests.items())
            if seconds >= KEPT_FROM_S
        },
        failed=failed,
    )


def estimated(times: StepTimes, sample: Sample, cases: Sequence[Case] = ()) -> StepTimes:
    """Return what the whole step would take, of the times of a sample of it.

    A script grows as a whole. Of tests, only those grow that the sample names, and as many run at
    once as in the sample.
    """
    more = sample.whole / sample.taken - 1
    all_s = sum(case.seconds for case in cases)
    if all_s:
        grown_s = sum(case.seconds for case in cases if _is_of(case, sample))
        more *= grown_s / all_s
    return StepTimes(
        round(times.wall_s * (1 + more), 1),
        round(times.cpu_s * (1 + more), 1),
        times.passed,
        times.skipped,
        estimated_from=str(sample),
        failed=times.failed,
    )


def _is_of(case: Case, sample: Sample) -> bool:
    """Whether a test, with whatever parameters, is one that grows with the campaign."""
    name = case.name.partition("[")[0]
    return any(
        name == nodeid.removeprefix("tests/").replace(".py::", "::") for nodeid in sample.tests
    )


def load(path: Path) -> Run:
    """Return a kept run; an empty one when there is none."""
    try:
        kept: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return {name: StepTimes(**times) for name, times in kept.items()}


def save(path: Path, run: Run) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({name: asdict(times) for name, times in run.items()}, indent=1)
    path.write_text(text + "\n")


def merged(last: Run, now: Run) -> Run:
    """Return `last` with the steps that were run now in place of theirs.

    An estimate, and the time of a step that failed, take the place of such a time only.
    """
    return last | {
        name: times
        for name, times in now.items()
        if times.is_whole or name not in last or not last[name].is_whole
    }


def slowest_table(now: Run, last: Run) -> list[str]:
    """Return the tests that took longest."""
    rows = [
        (seconds, f"{step}: {name}", last.get(step, StepTimes(0, 0)).tests.get(name))
        for step, times in now.items()
        for name, seconds in times.tests.items()
    ]
    rows.sort(key=lambda row: (-row[0], row[1]))
    return _table(f"slowest {SLOWEST} tests", rows[:SLOWEST])


def folder_table(now: Run, last: Run) -> list[str]:
    """Return the sum of each folder, over the steps that were run now."""
    sums = _folders(now.values())
    before = _folders(last[step] for step in now if step in last)
    rows = [(seconds, name, before.get(name)) for name, seconds in sums.items()]
    rows.sort(key=lambda row: -row[0])
    return _table("sum of each folder", rows)


def step_table(now: Run, last: Run) -> list[str]:
    """Return each step: wall clock and processor time."""
    lines = [f"{'step':<14}{'tests':>7}{'wall s':>9}{'CPU s':>9}{'last wall':>11}{'last CPU':>10}"]
    for name, times in now.items():
        old = last.get(name)
        tests = str(times.passed) if times.passed else "-"
        was = (f"{old.wall_s:.1f}", f"{old.cpu_s:.1f}") if old is not None else ("-", "-")
        mark = "  failed" if times.failed else ""
        cells = f"{times.wall_s:>9.1f}{times.cpu_s:>9.1f}{was[0]:>11}{was[1]:>10}{mark}"
        lines.append(f"{name:<14}{tests:>7}{cells}")
    return lines


def _folders(steps: Iterable[StepTimes]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for times in steps:
        for name, seconds in times.folders.items():
            sums[name] = sums.get(name, 0.0) + seconds
    return sums


def _table(title: str, rows: Sequence[tuple[float, str, float | None]]) -> list[str]:
    lines = [f"{'s':>8}{'last':>8}  {title}"]
    for seconds, name, old in rows:
        was = f"{old:.1f}" if old is not None else "-"
        lines.append(f"{seconds:>8.1f}{was:>8}  {name}")
    return lines
