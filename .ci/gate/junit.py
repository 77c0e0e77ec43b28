"""Read pytest's reports, which are JUnit's XML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as tree
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Outcome = Literal["passed", "failed", "skipped"]

_GROUP = re.compile(r"@[^\]@]*$")
"""pytest-xdist writes a test's group behind its name."""


class NoReport(Exception):
    """pytest left no report, or half of one."""


@dataclass(frozen=True)
class Case:
    """One test."""

    name: str
    """`folder/test_file::test_name[parameters]`, below tests/."""
    seconds: float
    """Set-up, call and tear-down."""
    outcome: Outcome
    reason: str = ""
    noted: tuple[str, ...] = ()
    """Sentences for the report, from a test that passed. They are its properties called "noted"."""

    @property
    def folder(self) -> str:
        """The folder below tests/, or "." for a file that lies there."""
        path = self.name.partition("::")[0]
        return path.partition("/")[0] if "/" in path else "."


def read_report(path: Path) -> list[Case]:
    """Return the tests of a report. Errors: NoReport."""
    try:
        root = tree.parse(path).getroot()
    except (OSError, tree.ParseError) as error:
        raise NoReport(f"pytest left no report: {error}") from None
    return [_case(element) for element in root.iter("testcase")]


def _case(element: tree.Element) -> Case:
    seconds = float(element.get("time") or 0)
    name = _name(element.get("classname") or "", element.get("name") or "")
    noted = tuple(
        one.get("value") or "" for one in element.iter("property") if one.get("name") == "noted"
    )
    for tag in ("error", "failure"):
        found = element.find(tag)
        if found is not None:
            return Case(name, seconds, "failed", found.get("message") or "")
    found = element.find("skipped")
    if found is not None:
        return Case(name, seconds, "skipped", found.get("message") or "")
    return Case(name, seconds, "passed", noted=noted)


def _name(module: str, test: str) -> str:
    """`tests.wire.test_route`, `test_x@group` as `wire/test_route::test_x`."""
    words = module.removeprefix("tests.").split(".")
    file = next((i for i, word in enumerate(words) if word.startswith("test_")), len(words) - 1)
    path = "/".join(words[: file + 1])
    return "::".join([path, *words[file + 1 :], _GROUP.sub("", test)])


@dataclass(frozen=True)
class Totals:
    """Numbers of tests that passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def totals(cases: list[Case]) -> Totals:
    """Return the sums. A test that fails in its call and its tear-down has failed once."""
    worst: dict[str, Outcome] = {}
    for case in cases:
        if worst.get(case.name) != "failed":
            worst[case.name] = case.outcome
    outcomes = list(worst.values())
    return Totals(outcomes.count("passed"), outcomes.count("failed"), outcomes.count("skipped"))
