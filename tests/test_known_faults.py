"""Every fault that the tree cites is explained in docs/known-faults.md, and nothing else is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.processes.rig import REPO

KNOWN_FAULTS = REPO / "docs" / "known-faults.md"
FOLDERS = ("tests", "trioha", "console", "docs", ".ci")
SUFFIXES = {".py", ".md", ".js", ".go", ".java"}

CODE = r"[A-EPS][1-9][0-9]?"
CITATION = re.compile(rf"\b[Ff]aults?((?:,? (?:and )?{CODE}\b)+)")
"""Cites as in "faults C1, C2 and D4": a code without the word may be anything."""
ROW = re.compile(rf"^\| ({CODE}) \|.*\|([^|]*)\|$", re.MULTILINE)
ISSUE = re.compile(r"\b(?:rocketmq|dledger)#[0-9]+")
RIDDLE = re.compile(rf'^ *(?:#.*\b|"""(?:Row )?)({CODE})\b', re.MULTILINE)
"""A code at the start of a docstring, or in a comment, without the word."""
NAME = re.compile(r"def (test_(?:[a-es][0-9]{1,2}_)+\w*)")


def cited(text: str) -> set[str]:
    """Return the codes of the faults that `text` cites."""
    return {code for match in CITATION.finditer(text) for code in re.findall(CODE, match[1])}


def riddles(text: str) -> list[str]:
    """Return codes that only an insider could look up: bare ones, and those in tests' names."""
    return [*RIDDLE.findall(CITATION.sub("", text)), *NAME.findall(text)]


@pytest.fixture(scope="module")
def texts() -> Mapping[Path, str]:
    """The tree's sources and pages, apart from the page about the faults and this file."""
    return {path: path.read_text() for path in _paths() if path not in (KNOWN_FAULTS, _SELF)}


_SELF = Path(__file__).resolve()


def _paths() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *FOLDERS],
        cwd=REPO,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (REPO / name).suffix in SUFFIXES and (REPO / name).is_file():
            yield REPO / name


def test_what_is_cited_is_what_is_explained(texts: Mapping[Path, str]) -> None:
    explained = {code for code, _ in ROW.findall(KNOWN_FAULTS.read_text())}
    where = {code: path for path, text in texts.items() for code in cited(text)}
    unexplained = {code: path for code, path in where.items() if code not in explained}
    assert not unexplained, f"docs/known-faults.md has no row for {unexplained}"
    assert not explained - where.keys(), "nobody cites these rows of docs/known-faults.md"


def test_tests_that_a_row_names_cite_it(texts: Mapping[Path, str]) -> None:
    for code, cell in ROW.findall(KNOWN_FAULTS.read_text()):
        names = re.findall(r"`([^`]+)`", cell)
        assert names, f"no test covers fault {code}"
        for name in names:
            assert code in cited(texts.get(REPO / name, "")), f"{name} does not cite fault {code}"


def test_issues_that_are_cited_are_explained(texts: Mapping[Path, str]) -> None:
    explained = set(ISSUE.findall(KNOWN_FAULTS.read_text()))
    for path, text in texts.items():
        assert not set(ISSUE.findall(text)) - explained, f"{path} cites issues that no row has"


def test_no_code_stands_alone(texts: Mapping[Path, str]) -> None:
    found = {str(path): riddles(text) for path, text in texts.items() if path.suffix == ".py"}
    assert not {path: codes for path, codes in found.items() if codes}, 'cite them as "fault C8"'


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("Fault C8: its disk is full.", {"C8"}),
        ("(faults A11 and B5)", {"A11", "B5"}),
        ("faults C3, C4, C5 and C7 are there", {"C3", "C4", "C5", "C7"}),
        ("a fault At least", set()),
        ("fault C100, default P99, faults 12", set()),
        ("default C1", set()),
        ("C8 alone, 0xC8, D7 'TRF'", set()),
    ],
)
def test_citations_are_told_from_other_words(text: str, codes: set[str]) -> None:
    assert cited(text) == codes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('    """C8: its disk is full."""', ["C8"]),
        ('    """Row E2: a file."""', ["E2"]),
        ("    # as in A5", ["A5"]),
        ("    # as in fault A5", []),
        ("def test_c8_a_slave() -> None:", ["test_c8_a_slave"]),
        ("def test_ipv6_hosts_of_v1() -> None:", []),
    ],
)
def test_codes_that_stand_alone_are_found(text: str, found: list[str]) -> None:
    assert riddles(text) == found
