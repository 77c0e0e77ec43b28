"""Two runs side by side: every figure is found, and judged by its bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.journals import BEGIN_MS
from support.stores.oracle import make_timeline, make_world
from support.stores.told import DAY_MS, rows_of, texts_of

from trioha.analysis.comparison import Difference, Run, comparison
from trioha.analysis.figures import FIGURES, ROWS, Better, Bound, Figure
from trioha.analysis.inputs import open_inputs
from trioha.analysis.local_engine import LocalEngine
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.tables import table
from trioha.analysis.results import Report, ReportOptions

SEEDS = (3, 4)
"""Their stores and journals have every table that a figure stands in."""
OPTIONS = ReportOptions(now_ms=BEGIN_MS + 10 * DAY_MS)


def report(name: str, table_name: str, columns: str, *rows: dict[str, Any]) -> Report:
    made = table(table_name, "", columns, rows)
    return Report(name=name, title="", question="", tables=[made])


def brokers(availability: float, mttr_ms: int | None) -> Report:
    columns = "broker availability:share mttr_ms:duration"
    row = {"broker": "broker-a", "availability": availability, "mttr_ms": mttr_ms}
    return report("failovers", "brokers", columns, row)


def logs(store: str, size: int) -> Report:
    row = {"store": store, "log_bytes": size, "disk_used": 0.5}
    return report("retention", "stores", "store log_bytes:bytes disk_used:share", row)


def compared(before: Report, after: Report, *stores: str) -> Report:
    earlier, later = stores or ("s", "s")
    return comparison(Run("old", [earlier], [before]), Run("new", [later], [after]))


def test_both_figures_their_difference_and_the_bound_stand_in_a_row() -> None:
    made = compared(brokers(0.9999, 1000), brokers(0.95, 2500))
    rows = {row["figure"]: row for row in rows_of(made, "figures")}
    available, mttr = rows["availability"], rows["mean unplanned outage"]
    assert (available["before"], available["after"]) == ("99.99 %", "95 %")
    assert (available["difference"], available["bound"]) == ("4.99 points less", "0.01 points")
    assert available["verdict"] == "worse"
    assert mttr["difference"] == "1.5 s more"
    assert (mttr["before_value"], mttr["after_value"]) == (1000, 2500)
    assert (mttr["difference_value"], mttr["bound_value"]) == (1500, 1000)
    assert texts_of(made, "warning") == [
        "Availability of broker-a fell from 99.99 % to 95 %: worse by more than its bound of "
        "0.01 points (failovers).",
        "Mean unplanned outage of broker-a rose from 1 s to 2.5 s: worse by more than its bound "
        "of 1 s (failovers).",
    ]


def test_what_a_run_does_not_know_is_not_judged() -> None:
    rows = rows_of(compared(brokers(1.0, None), brokers(1.0, 9000)), "figures")
    assert {row["figure"]: row["verdict"] for row in rows} == {
        "availability": "same",
        "mean unplanned outage": "not judged",
    }


def test_stores_of_other_names_are_matched_in_their_order() -> None:
    made = compared(logs("a/store", 10), logs("b/store", 30), "a/store", "b/store")
    size, _ = sorted(rows_of(made, "figures"), key=lambda row: row["figure"], reverse=True)
    assert (size["of"], size["before_value"], size["after_value"]) == ("b/store", 10, 30)
    assert any("a/store with b/store" in text for text in texts_of(made, "info"))


def test_a_count_without_a_row_is_zero_and_rows_of_a_key_are_added() -> None:
    columns = "store phy_offset:integer"
    found = [{"store": "s", "phy_offset": place} for place in (1, 2)]
    before = Report(name="integrity", title="", question="")
    made = compared(before, report("integrity", "damage", columns, *found))
    (row,) = rows_of(made, "figures")
    assert (row["before_value"], row["after_value"], row["verdict"]) == (0, 2, "worse")


def test_findings_are_few_and_the_others_are_counted() -> None:
    columns = "node what count:integer"
    rows = [{"node": f"n{at}", "what": "sends refused", "count": 1} for at in range(9)]
    before = Report(name="failovers", title="", question="")
    warnings = texts_of(
        compared(before, report("failovers", "refusals", columns, *rows)), "warning"
    )
    assert len(warnings) == 5
    assert warnings[4].startswith("5 more figures got worse by more than their bounds")


def test_reports_of_one_run_only_are_told() -> None:
    made = comparison(Run("old", [], [brokers(1.0, 1)]), Run("new", [], [logs("s", 1)]))
    assert "Not compared, for old has none: retention." in texts_of(made, "info")
    assert "Not compared, for new has none: failovers." in texts_of(made, "info")


@given(
    before=st.integers(0, 10**9),
    change=st.integers(-(10**9), 10**9),
    share=st.sampled_from([0.0, 0.2, 1.0]),
    amount=st.integers(0, 10**6),
    better=st.sampled_from(["lower", "higher"]),
)
def test_a_figure_is_worse_beyond_its_bound_alone(
    before: int, change: int, share: float, amount: int, better: Better
) -> None:
    figure = Figure("f", "r", "t", ("k",), "c", better, Bound(share, amount))
    verdict = Difference(figure, "k", "integer", before, before + change).verdict
    loss = change if better == "lower" else -change
    if loss <= 0:
        assert verdict == ("same" if loss == 0 else "better")
    elif abs(loss - max(share * before, amount)) > 1:
        assert verdict == ("worse" if loss > max(share * before, amount) else "within its bound")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """Reports of generated stores and journals that have every table there is."""
    reports, names = [], dict.fromkeys(figure.report for figure in FIGURES)
    for seed in SEEDS:
        root = tmp_path_factory.mktemp("made")
        world, timeline = make_world(root / "world", seed), make_timeline(root / "timeline", seed)
        for diary in [world.journal, *timeline.diaries]:
            diary.close()
        journals = [str(diary.directory) for diary in timeline.diaries]
        for store in (world.master.root, world.broken):
            with LocalEngine(open_inputs([str(store), str(world.slave)], journals)) as engine:
                reports += [REPORTS[name].load().run(engine, OPTIONS) for name in names]
    return reports


def test_every_figure_is_a_column_of_a_table(made: list[Report]) -> None:
    tables = {(each.name, table.name): table for each in made for table in each.tables}
    for figure in FIGURES:
        found = tables.get((figure.report, figure.table))
        assert found is not None, figure
        columns = {column.name for column in found.columns}
        assert {*figure.keys, figure.column} - {ROWS} <= columns, figure


def test_a_run_is_the_same_as_itself(made: list[Report], tmp_path: Path) -> None:
    for each in made:
        run = Run("it", [], [each])
        rows = rows_of(comparison(run, run), "figures")
        assert {row["verdict"] for row in rows} <= {"same", "not judged"}
        assert all(not row["difference_value"] for row in rows)
