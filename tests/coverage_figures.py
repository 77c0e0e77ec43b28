"""Measure which branches the gate's tests take, and which a release's: into docs/testing.md.

    python tests/coverage_figures.py [--only quick|simulations|real]      (`just coverage`)

Runs the tests twice, once with the gate's sizes and once with a release's, in plain Python, and
writes a row for each package. Processes that tests start are measured too, unless they are killed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from support.processes.rig import REPO

PAGE = REPO / "docs" / "testing.md"
BEGIN, END = "<!-- coverage: begin. Made by `just coverage`. -->", "<!-- coverage: end -->"
MARKERS = {
    "quick": "not slow and not interop",
    "simulations": "slow",
    "real": "slow or interop",
}
PATHS = {"quick": ["tests"], "simulations": ["tests/sim"], "real": ["tests", "--ignore=tests/sim"]}
TIERS = ("gate", "release")
_HOURS_S = 6 * 3600


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
    """One package."""

    statements: Share = Share()
    branches: Share = Share()

    def __add__(self, other: Covered) -> Covered:
        return Covered(self.statements + other.statements, self.branches + other.branches)


def measure(tier: str, kinds: list[str]) -> dict[str, Covered]:
    """Run the tests of these kinds and return what they covered. Errors: CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="trioha-coverage-") as place:
        env = {
            **os.environ,
            "TEST_TIER": tier,
            "COVERAGE_FILE": f"{place}/data",
            "COVERAGE_RCFILE": str(REPO / "pyproject.toml"),
        }
        coverage = [sys.executable, "-m", "coverage"]
        for kind in kinds:
            command = ["run", "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup"]
            options = ["-m", MARKERS[kind], "--timeout", str(_HOURS_S), *PATHS[kind]]
            # Some tests measure time, and measuring takes time: a failure is no news here.
            subprocess.run([*coverage, *command, *options], env=env, cwd=REPO, check=False)
        subprocess.run([*coverage, "combine", "-q"], env=env, cwd=REPO, check=True)
        report = Path(place) / "report.json"
        subprocess.run([*coverage, "json", "-q", "-o", report], env=env, cwd=REPO, check=True)
        return by_package(json.loads(report.read_text())["files"])


def by_package(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Covered]:
    """Return the sums of each package of trioha; a module beside them counts as one of its own."""
    found: dict[str, Covered] = {}
    for name, file in sorted(files.items()):
        parts = Path(name).with_suffix("").parts
        place = max((i for i, part in enumerate(parts) if part.startswith("trioha")), default=0)
        package = ".".join(parts[place : place + 2]).removesuffix(".__init__")
        summary = file["summary"]
        found[package] = found.get(package, Covered()) + Covered(
            Share(summary["covered_lines"], summary["num_statements"]),
            Share(summary["covered_branches"], summary["num_branches"]),
        )
    return found


def section(kinds: list[str], measured: Mapping[str, Mapping[str, Covered]]) -> str:
    """Return the table, a row for each package."""
    packages = sorted({name for rows in measured.values() for name in rows})
    lines = [
        f"Measured with {', '.join(kinds)} tests in plain Python, by coverage.py: the share of"
        " statements, and of branches, that were taken.",
        "",
        "| package | gate: statements | branches | release: statements | branches |",
        "|---|---|---|---|---|",
    ]
    sums = {tier: sum(rows.values(), Covered()) for tier, rows in measured.items()}
    for name in [*packages, "all"]:
        cells = [name]
        for tier in TIERS:
            rows = {**measured.get(tier, {}), "all": sums.get(tier, Covered())}
            covered = rows.get(name, Covered())
            cells += [str(covered.statements), str(covered.branches)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def replaced(page: str, text: str) -> str:
    """Return the page with `text` between the two markers."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert begin, f"{PAGE.name} lacks {BEGIN}"
    assert end, f"{PAGE.name} lacks {END}"
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(MARKERS), action="append", help="these tests")
    parser.add_argument("--tier", choices=TIERS, action="append", help="in this size (both)")
    options = parser.parse_args()
    kinds = options.only or list(MARKERS)
    measured = {tier: measure(tier, kinds) for tier in options.tier or TIERS}
    PAGE.write_text(replaced(PAGE.read_text(), section(kinds, measured)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
