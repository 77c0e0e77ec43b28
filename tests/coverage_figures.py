"""Measure which branches the gate's tests take, and which a release's: into docs/testing.md.

    python tests/coverage_figures.py [--only PART ...] [--tier gate|release]    (`just coverage`)
    python tests/coverage_figures.py --report                   only the page, of what is measured

Parts are those of a release (`.ci/run release --list`). Each is run in plain Python, with the
gate's sizes and with a release's; of the longest campaigns of a release, the part's sample. What
was measured is kept in .ci/out/coverage until the sources of the product change: a run that was
stopped goes on where it was, and the page is written after each part. A part that is named is
measured again. Processes that tests start are measured too, unless they are killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
from gate import plan
from gate.junit import NoReport, Totals, read_report, totals
from gate.running import OUT
from support.processes.rig import REPO

PAGE = REPO / "docs" / "testing.md"
KEPT = OUT / "coverage"
BEGIN, END = "<!-- coverage: begin. Made by `just coverage`. -->", "<!-- coverage: end -->"
PARTS = {
    step.name: step
    for step in plan.RELEASE
    if isinstance(step, plan.Tests) and step.name != "compiled"  # the same tests as quick
}
TIERS = ("gate", "release")
SHOWN_FILES = 15

Branch = tuple[str, int, int]
"""File, line, and the line that is next; below zero for the end of a function."""


@attrs.frozen
class Share:
    """The taken ones among statements or branches."""

    taken: int = 0
    of: int = 0

    def __add__(self, other: Share) -> Share:
        return Share(self.taken + other.taken, self.of + other.of)

    def __str__(self) -> str:
        return f"{self.taken / self.of:.1%}" if self.of else "-"


@attrs.frozen
class Covered:
    """Statements and branches that were taken, of those that there are."""

    lines: frozenset[tuple[str, int]] = frozenset()
    branches: frozenset[Branch] = frozenset()
    line_counts: Mapping[str, int] = attrs.field(factory=dict)
    """Count of lines, by file."""
    branch_counts: Mapping[str, int] = attrs.field(factory=dict)

    def __or__(self, other: Covered) -> Covered:
        """Return what either took."""
        return Covered(
            self.lines | other.lines,
            self.branches | other.branches,
            {**self.line_counts, **other.line_counts},
            {**self.branch_counts, **other.branch_counts},
        )


@attrs.frozen
class Measured:
    """One part with the sizes of one tier."""

    covered: Covered
    totals: Totals
    minutes: float


def measure(tier: str, part: str) -> None:
    """Run the tests of a part and keep what they covered. Errors: CalledProcessError."""
    step = PARTS[part]
    place = _place(tier, part)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    sample = step.sample
    env = {
        **os.environ,
        "TEST_TIER": tier,
        "TEST_SHARE": f"{sample.taken}/{sample.whole}" if sample else "1",
        "COVERAGE_FILE": f"{place}/data",
        "COVERAGE_RCFILE": str(REPO / "pyproject.toml"),
    }
    coverage = [sys.executable, "-m", "coverage"]
    command = ["run", "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
    command += ["-m", step.marker, *step.limits]
    began_s = time.monotonic()
    # Some tests measure time, and measuring takes time: a failure is no news here.
    subprocess.run(
        [*coverage, *command, f"--junitxml={place}/junit.xml", *step.paths],
        env=env,
        cwd=REPO,
        check=False,
    )
    minutes = (time.monotonic() - began_s) / 60
    keep(place, coverage, env, minutes)


def keep(place: Path, coverage: Sequence[str], env: Mapping[str, str], minutes: float) -> None:
    """Turn the data that the processes left into one report."""
    subprocess.run([*coverage, "combine", "-q"], env=env, cwd=REPO, check=True)
    # -i: some tests run a copy of the sources, which is gone.
    report = ["json", "-q", "-i", "-o", f"{place}/coverage.json"]
    subprocess.run([*coverage, *report], env=env, cwd=REPO, check=True)
    facts = {"sources": state_of_sources(), "minutes": round(minutes, 1)}
    (place / "facts.json").write_text(json.dumps(facts))


def kept(tier: str, part: str) -> Measured | None:
    """Return what was measured of the sources as they are, if it was."""
    place = _place(tier, part)
    try:
        facts = json.loads((place / "facts.json").read_text())
        if facts["sources"] != state_of_sources():
            return None
        found = totals(read_report(place / "junit.xml"))
        files = json.loads((place / "coverage.json").read_text())["files"]
    except (FileNotFoundError, NoReport):
        return None
    return Measured(covered_by(files), found, facts["minutes"])


def covered_by(files: Mapping[str, Mapping[str, Any]]) -> Covered:
    """Return what a report of coverage.py tells of the product's files."""
    ours = {name: file for name, file in files.items() if name.startswith(("trioha/", "console/"))}
    return Covered(
        frozenset((name, line) for name, file in ours.items() for line in file["executed_lines"]),
        frozenset(
            (name, line, then)
            for name, file in ours.items()
            for line, then in file["executed_branches"]
        ),
        {name: file["summary"]["num_statements"] for name, file in ours.items()},
        {name: file["summary"]["num_branches"] for name, file in ours.items()},
    )


def state_of_sources() -> str:
    """Return a name for the sources of the product as they are."""
    digest = sha256()
    for path in sorted([*REPO.glob("trioha/**/*.py"), *REPO.glob("console/**/*.py")]):
        digest.update(str(path.relative_to(REPO)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def package_of(file: str) -> str:
    """Return the package in which a file lies."""
    parts = Path(file.removeprefix("console/")).parent.parts
    return ".".join(parts[:2])


def commit_of_sources() -> str:
    """Return the last commit that changed the product."""
    command = ["git", "log", "-1", "--format=%h", "--", "trioha", "console"]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def section(
    gate: Mapping[str, Measured],
    release: Mapping[str, Measured],
    commit: str,
    parts: Iterable[str] = PARTS,
) -> str:
    """Return the page's part: each package, each part, and what only a release takes."""
    in_gate = union(gate.values())
    only_release = union(release.values()).branches - in_gate.branches
    unmeasured = [
        f"Not measured with the sizes of {tier}: {', '.join(missing)}."
        for tier, measured in (("the gate", gate), ("a release", release))
        if (missing := [part for part in parts if part not in measured])
    ]
    lines = [
        f"Measured at commit {commit}, in plain Python, by coverage.py: the share of statements,"
        " and of branches, that the gate's tests take. Processes that a test kills leave no"
        " figures, so the true shares"
        " are higher.",
        "",
        " ".join(unmeasured or ["All parts are measured."]),
        "",
        *package_table(in_gate, only_release if release else None),
        "",
        "The last two columns compare the sizes: branches that the part takes with those of a"
        " release and not with those of the gate, and branches among them that no part of the gate"
        " takes. Where the last one is 0, the smaller gate takes all the code that a release"
        " takes. Parts of the gate that were not measured may take some of them, too.",
        "",
        *part_table(gate, release, in_gate),
    ]
    if only_release:
        found = Counter(file for file, _, _ in sorted(only_release))
        shown = ", ".join(f"{file} {count}" for file, count in found.most_common(SHOWN_FILES))
        rest = sum(found.values()) - sum(count for _, count in found.most_common(SHOWN_FILES))
        more = f", others {rest}" if rest else ""
        lines += ["", f"Branches that only a release takes, by file: {shown}{more}."]
    return "\n".join(lines)


def union(measured: Iterable[Measured]) -> Covered:
    """Return what any of them took."""
    found = Covered()
    for one in measured:
        found |= one.covered
    return found


def package_table(in_gate: Covered, only_release: Iterable[Branch] | None) -> list[str]:
    """Return a row for each package, and one for their sum; None: no release was measured."""
    statements: dict[str, Share] = {}
    branches: dict[str, Share] = {}
    taken_lines = Counter(file for file, _ in in_gate.lines)
    taken_branches = Counter(file for file, _, _ in in_gate.branches)
    for file, count in in_gate.line_counts.items():
        package = package_of(file)
        lines = Share(taken_lines[file], count)
        arcs = Share(taken_branches[file], in_gate.branch_counts[file])
        statements[package] = statements.get(package, Share()) + lines
        branches[package] = branches.get(package, Share()) + arcs
    beyond = Counter(package_of(file) for file, _, _ in only_release or ())

    def told(count: int) -> str:
        return "-" if only_release is None else str(count)

    rows = [
        (name, statements[name], branches[name], told(beyond[name])) for name in sorted(statements)
    ]
    sums = (sum(statements.values(), Share()), sum(branches.values(), Share()))
    return [
        "| package | statements | branches | branches that only a release takes |",
        "|---|---|---|---|",
        *(f"| {name} | {of} | {arcs} | {more} |" for name, of, arcs, more in rows),
        f"| all | {sums[0]} | {sums[1]} | {told(beyond.total())} |",
    ]


def part_table(
    gate: Mapping[str, Measured], release: Mapping[str, Measured], in_gate: Covered
) -> list[str]:
    """Return a row for each part that was measured in any tier."""
    lines = [
        "| part | gate: tests | branches taken | release: tests | branches taken | not in its gate"
        " | nowhere in the gate |",
        "|---|---|---|---|---|---|---|",
    ]
    for part in [name for name in PARTS if name in gate or name in release]:
        small, large = gate.get(part), release.get(part)
        sample = PARTS[part].sample
        cells = [part, *_cells(small), *_cells(large)]
        if large is not None and sample is not None:
            cells[3] += f" ({sample})"
        more = large.covered.branches if large is not None else frozenset()
        cells.append(str(len(more - small.covered.branches)) if small and large else "-")
        cells.append(str(len(more - in_gate.branches)) if large else "-")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cells(measured: Measured | None) -> tuple[str, str]:
    if measured is None:
        return "not measured", "-"
    failed = f", {measured.totals.failed} failed" if measured.totals.failed else ""
    return f"{measured.totals.passed:,} passed{failed}", f"{len(measured.covered.branches):,}"


def replaced(page: str, text: str) -> str:
    """Return the page with `text` between the two markers."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert begin, f"{PAGE.name} lacks {BEGIN}"
    assert end, f"{PAGE.name} lacks {END}"
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def below(covered: Covered, share: float) -> list[str]:
    """Return a line for each file of which less than this share of branches is taken."""
    taken = Counter(file for file, _, _ in covered.branches)
    found = [
        (taken[file] / count, file, f"{taken[file]} of {count}")
        for file, count in covered.branch_counts.items()
        if count and taken[file] / count < share
    ]
    return [f"{part:6.1%}  {file}  ({counts} branches)" for part, file, counts in sorted(found)]


def _place(tier: str, part: str) -> Path:
    return KEPT / f"{tier}-{part}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=list(PARTS), nargs="+", help="these parts (all)")
    parser.add_argument("--tier", choices=TIERS, action="append", help="in this size (both)")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument(
        "--below", type=float, default=70, help="print files below this percentage (70)"
    )
    options = parser.parse_args(words)
    without_data = []
    for tier in options.tier or TIERS:
        for part in options.only or PARTS:
            if options.report or (not options.only and kept(tier, part) is not None):
                continue
            try:
                measure(tier, part)
            except subprocess.CalledProcessError as error:
                without_data.append(f"{part} with the sizes of {tier}: {error}")
            else:
                write_page()
    in_gate = write_page()
    if in_gate is None:
        print(f"nothing is measured of these sources; {PAGE.name} stays as it is", file=sys.stderr)
        return 1
    print("\n".join(below(in_gate, options.below / 100)))
    for what in without_data:
        print(f"no data: {what}", file=sys.stderr)
    return 1 if without_data else 0


def write_page() -> Covered | None:
    """Write what is measured into the page; return what the gate takes, None if nothing is."""
    gate, release = (
        {part: found for part in PARTS if (found := kept(tier, part)) is not None} for tier in TIERS
    )
    if not gate and not release:
        return None
    PAGE.write_text(replaced(PAGE.read_text(), section(gate, release, commit_of_sources())))
    return union(gate.values())


if __name__ == "__main__":
    sys.exit(main())
