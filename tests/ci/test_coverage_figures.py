"""The tables of coverage, from what coverage.py reports."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import coverage_figures
import pytest
from coverage_figures import (
    BEGIN,
    END,
    PARTS,
    Covered,
    Measured,
    below,
    covered_by,
    package_of,
    replaced,
    section,
    union,
)
from gate.junit import Totals

HA, CLI = "trioha/ha/replicas.py", "trioha/cli/main.py"


def file(
    lines: list[int], branches: list[tuple[int, int]], of: tuple[int, int]
) -> dict[str, object]:
    return {
        "executed_lines": lines,
        "executed_branches": branches,
        "summary": {"num_statements": of[0], "num_branches": of[1]},
    }


def measured(files: dict[str, dict[str, object]], passed: int, failed: int = 0) -> Measured:
    return Measured(covered_by(files), Totals(passed, failed), 1.5)


GATE = {
    "quick": measured(
        {
            HA: file([1, 2], [(2, 3)], (4, 4)),
            CLI: file([], [], (2, 2)),
            "/tmp/copy/trioha/ha/replicas.py": file([1], [(2, 9)], (4, 4)),
        },
        1200,
    ),
    "simulations": measured(
        {HA: file([2, 3], [(2, 3), (2, 4)], (4, 4)), CLI: file([], [], (2, 2))}, 7
    ),
}
RELEASE = {
    "simulations": measured(
        {HA: file([2, 3], [(2, 4), (3, -1)], (4, 4)), CLI: file([1], [(1, 2)], (2, 2))}, 7, 1
    )
}


def test_what_any_part_takes_is_taken_and_copies_of_the_sources_do_not_count() -> None:
    both = union(GATE.values())
    assert both.branches == {(HA, 2, 3), (HA, 2, 4)}
    assert both.lines == {(HA, 1), (HA, 2), (HA, 3)}
    assert sum(both.branch_counts.values()) == 6
    assert union([]) == Covered()


def test_packages_are_folders_of_the_product() -> None:
    assert package_of("trioha/ha/replicas.py") == "trioha.ha"
    assert package_of("trioha/services/ha/link.py") == "trioha.services"
    assert package_of("trioha/ha/__init__.py") == "trioha.ha"
    assert package_of("trioha/errors.py") == "trioha"
    assert package_of("console/trioha_console/screens/main.py") == "trioha_console.screens"


def test_the_page_shows_packages_and_parts_and_what_only_a_release_takes() -> None:
    rows = section(GATE, RELEASE, "abc1234", ["quick", "simulations"]).splitlines()
    assert rows[0].startswith("Measured at commit abc1234, in plain Python")
    assert "Not measured with the sizes of a release: quick." in rows
    tables = [row for row in rows if row.startswith("|")]
    assert tables[2:5] == [
        "| trioha.cli | 0.0% | 0.0% | 1 |",
        "| trioha.ha | 75.0% | 50.0% | 1 |",
        "| all | 50.0% | 33.3% | 2 |",
    ]
    assert tables[7:] == [
        "| quick | 1,200 passed | 1 | not measured | - | - | - |",
        "| simulations | 7 passed | 2"
        " | 7 passed, 1 failed (2,000 of 100,000 seeds of replica sets) | 3 | 2 | 2 |",
    ]
    assert rows[-1] == f"Branches that only a release takes, by file: {CLI} 1, {HA} 1."


def test_where_no_release_was_measured_the_page_does_not_say_that_it_takes_nothing_more() -> None:
    rows = section(GATE, {}, "abc1234", ["quick", "simulations"]).splitlines()
    assert "| trioha.ha | 75.0% | 50.0% | - |" in rows
    assert "| all | 50.0% | 33.3% | - |" in rows


def test_the_files_with_the_fewest_branches_come_first() -> None:
    assert below(union(GATE.values()), 0.7) == [
        f"  0.0%  {CLI}  (0 of 2 branches)",
        f" 50.0%  {HA}  (2 of 4 branches)",
    ]
    assert below(union(GATE.values()), 0.5) == [f"  0.0%  {CLI}  (0 of 2 branches)"]


def keep(place: Path, sources: str) -> None:
    """Write what a part leaves that was measured."""
    place.mkdir(exist_ok=True)
    (place / "junit.xml").write_text(
        '<testsuite><testcase classname="tests.test_a" name="b"/></testsuite>'
    )
    (place / "coverage.json").write_text(json.dumps({"files": {HA: file([1], [(1, 2)], (4, 4))}}))
    (place / "facts.json").write_text(json.dumps({"sources": sources, "minutes": 2}))


def test_what_was_measured_of_other_sources_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage_figures, "KEPT", tmp_path)
    assert coverage_figures.kept("gate", "quick") is None
    keep(tmp_path / "gate-quick", coverage_figures.state_of_sources())
    found = coverage_figures.kept("gate", "quick")
    assert found is not None
    assert found.covered.branches == {(HA, 1, 2)}
    assert found.totals.passed == 1
    keep(tmp_path / "gate-quick", "older")
    assert coverage_figures.kept("gate", "quick") is None


def test_measuring_goes_on_where_it_was_and_a_part_without_data_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "testing.md"
    page.write_text(f"{BEGIN}\nold\n{END}\n")
    sources = coverage_figures.state_of_sources()
    parts = {name: PARTS[name] for name in ("quick", "simulations", "members")}
    measured_now: list[tuple[str, str]] = []

    def measure(tier: str, part: str) -> None:
        # The page shows each part before the next one is measured.
        rows = [row for row in page.read_text().splitlines() if row.startswith("| members |")]
        assert bool(rows) == (("gate", "members") in measured_now)
        measured_now.append((tier, part))
        if part == "simulations":
            raise subprocess.CalledProcessError(1, "coverage combine")
        keep(tmp_path / f"{tier}-{part}", sources)

    for name, value in {"KEPT": tmp_path, "PAGE": page, "PARTS": parts, "measure": measure}.items():
        monkeypatch.setattr(coverage_figures, name, value)
    keep(tmp_path / "gate-quick", sources)
    assert coverage_figures.main(["--tier", "gate"]) == 1
    assert measured_now == [("gate", "simulations"), ("gate", "members")]
    assert "no data: simulations with the sizes of gate: " in capsys.readouterr().err
    assert "| members | 1 passed |" in page.read_text()
    # A part that is named is measured again.
    measured_now.clear()
    measured_now.append(("gate", "members"))
    assert coverage_figures.main(["--tier", "gate", "--only", "quick"]) == 0
    assert measured_now[1:] == [("gate", "quick")]


def test_a_report_of_nothing_leaves_the_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "testing.md"
    page.write_text(f"{BEGIN}\nmeasured once\n{END}\n")
    monkeypatch.setattr(coverage_figures, "KEPT", tmp_path)
    monkeypatch.setattr(coverage_figures, "PAGE", page)
    assert coverage_figures.main(["--report"]) == 1
    assert "nothing is measured of these sources; testing.md stays" in capsys.readouterr().err
    assert "measured once" in page.read_text()


def test_every_part_of_a_release_with_tests_can_be_measured() -> None:
    assert {"quick", "simulations", "members", "switches", "groups", "interop"} <= set(PARTS)


def test_the_table_replaces_the_one_before() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = replaced(page, "new")
    assert once == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replaced(once, "new") == once
