"""`trioha analyze --compare` as its user meets it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.stores.journals import Diary, at
from support.stores.told import ToldStore
from support.suite.sizes import drawn_cases
from support.suite.skips import importable, skip_unless

from trioha.cli import analyze, run
from trioha.cli.failures import ExitCode

Say = Callable[..., tuple[int, str, str]]
SPLIT = "2025-11-20T12:01:40"
"""Time between the two kills of `journal`."""


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = run(["analyze", *map(str, arguments)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def journal(root: Path, *gaps_s: float) -> Path:
    """A master that is killed 50 s after each start; the next start comes that much later."""
    diary, now_s = Diary(root, "broker-a:0"), 0.0
    for gap_s in (*gaps_s, 0.0):
        diary.start(now_s, "ASYNC_MASTER")
        diary.alive(now_s + 50, "ASYNC_MASTER")
        now_s += 50 + gap_s
    diary.close()
    return diary.directory


def figures(out: Path) -> dict[str, dict[str, Any]]:
    document = json.loads((out / "compare" / "report.json").read_text())
    (table,) = document["tables"]
    return {row["figure"]: row for row in table["rows"]}


def test_a_run_of_before_is_beside_this_one(say: Say, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    say("--journal", journal(tmp_path / "a", 10), "--out", before)
    code, shown, errors = say(
        *("--journal", journal(tmp_path / "b", 10, 40), "--out", after),
        *("--compare", before, "--report", "failovers"),
    )
    assert code == ExitCode.OK, errors
    made = figures(after)
    outages = made["unplanned outages"]
    assert (outages["before_value"], outages["after_value"], outages["verdict"]) == (1, 2, "worse")
    lost = made["time without a writable master"]
    assert (lost["before_value"], lost["after_value"]) == (11_000, 52_000)
    assert "! Unplanned outages of broker-a rose from 1 to 2: worse" in shown
    with (after / "compare" / "figures.csv").open() as file:
        rows = {row["figure"]: row for row in csv.DictReader(file)}
    assert rows["unplanned outages"]["difference"] == "1 more"
    page = (after / "report.html").read_text()
    assert '<section id="compare">' in page
    assert "Unplanned outages of broker-a rose" in page.partition("</header>")[0]
    manifest = json.loads((after / "manifest.json").read_text())
    assert manifest["compared_with"] == str(before)
    assert [entry["name"] for entry in manifest["reports"]] == ["failovers", "compare"]


def test_another_window_of_the_same_input_is_beside_this_one(say: Say, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, shown, errors = say(
        *("--journal", journal(tmp_path / "a", 10, 70), "--out", out, "-o", "json"),
        *("--from", SPLIT, "--compare", f"..{SPLIT}"),
    )
    assert code == ExitCode.OK, errors
    made = figures(out)
    assert made["time without a writable master"]["before_value"] == 11_000
    assert "compare" in json.loads(shown)["reports"]
    assert not (out / ".scratch").exists()


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ("nowhere", "nowhere is neither a directory nor a window"),
        ("..", "holds no results of `trioha analyze`"),
        ("2026-01-02..2026-01-01", "ends before it begins"),
        ("2026-01-02..soon", "soon is no time"),
    ],
)
def test_a_wrong_other_is_one_sentence_and_makes_nothing(
    say: Say, tmp_path: Path, other: str, sentence: str
) -> None:
    out = tmp_path / "out"
    code, _, errors = say("--journal", journal(tmp_path / "a"), "--out", out, "--compare", other)
    assert code == ExitCode.USAGE
    assert sentence in errors
    assert not out.exists()


def test_results_that_cannot_be_read_are_told(say: Say, tmp_path: Path) -> None:
    before, out = tmp_path / "before", tmp_path / "out"
    say("--journal", journal(tmp_path / "a"), "--out", before)
    (before / "failovers" / "report.json").write_text("{}")
    code, _, errors = say("--journal", journal(tmp_path / "b"), "--out", out, "--compare", before)
    assert code == ExitCode.USAGE
    assert "cannot be read" in errors
    assert not out.exists()


@pytest.mark.spark
@pytest.mark.parametrize("shares_out", drawn_cases("shares out", (True, False), 1))
def test_a_window_is_compared_on_spark_as_it_is_locally(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares_out: bool
) -> None:
    skip_unless(importable("pyspark"), "needs the extra spark")
    if not shares_out:  # as on a cluster whose workers do not see it
        on_spark: Any = analyze._on_spark
        monkeypatch.setattr(
            analyze, "_on_spark", lambda *arguments: on_spark(*arguments[:-1], False)
        )
    with ToldStore(tmp_path / "a") as store:
        for i in range(8):
            store.put("orders", at_ms=at(50 + 20 * i), body=bytes(10 * i), unique_key=f"{i:032X}")
    made = []
    for engine in (["local"], ["spark", "--master", "local[1]"]):
        out = tmp_path / engine[0]
        code, _, errors = say(
            *(store.root, "--out", out, "--engine", *engine, "--report", "throughput"),
            *("--from", SPLIT, "--compare", f"..{SPLIT}"),
        )
        assert code == ExitCode.OK, errors
        found = figures(out)
        assert found
        assert any(row["before_value"] for row in found.values())
        made.append(found)
    assert made[0] == made[1]
