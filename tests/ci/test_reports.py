"""Reports of pytest, and the tables that are made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate import timings
from gate.__main__ import listing
from gate.junit import Case, NoReport, Totals, read_report, totals
from gate.plan import Sample, Step
from gate.timings import StepTimes

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" tests="5">
<testcase classname="tests.wire.test_route" name="test_cut[a@b]" time="1.25" />
<testcase classname="tests.raft_drills.test_rounds" name="test_share[cut]@drills" time="60.5">
<properties><property name="noted" value="cpp-consume-4 stood still" />
<property name="other" value="1" /></properties></testcase>
<testcase classname="tests.broker.test_metadata.TestReplication" name="runTest" time="3">
<failure message="assert 1 == 2">...</failure></testcase>
<testcase classname="tests.broker.test_metadata.TestReplication" name="runTest" time="0.5">
<error message="tear-down">...</error></testcase>
<testcase classname="tests.test_suite" name="test_together" time="0.001">
<skipped type="pytest.skip" message="one process" /></testcase>
</testsuite></testsuites>
"""


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    return read_report(path)


def test_a_report_names_tests_by_their_files(cases: list[Case]) -> None:
    assert [case.name for case in cases] == [
        "wire/test_route::test_cut[a@b]",
        "raft_drills/test_rounds::test_share[cut]",
        "broker/test_metadata::TestReplication::runTest",
        "broker/test_metadata::TestReplication::runTest",
        "test_suite::test_together",
    ]
    assert [case.folder for case in cases] == ["wire", "raft_drills", "broker", "broker", "."]
    assert cases[4].reason == "one process"


def test_a_report_has_what_a_test_that_passed_noted(cases: list[Case]) -> None:
    assert [case.noted for case in cases] == [(), ("cpp-consume-4 stood still",), (), (), ()]


def test_a_test_that_fails_twice_has_failed_once(cases: list[Case]) -> None:
    assert str(totals(cases)) == "2 passed, 1 failed, 1 skipped"
    assert totals(cases) + Totals(failed=1) == Totals(2, 2, 1)


@pytest.mark.parametrize("text", ["", REPORT[:300]])
def test_half_a_report_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.xml"
    path.write_text(text)
    with pytest.raises(NoReport, match="pytest left no report"):
        read_report(path)
    with pytest.raises(NoReport, match="pytest left no report"):
        read_report(tmp_path / "none.xml")


def test_tables_show_last_time_beside_this_time(cases: list[Case]) -> None:
    now = {"real": timings.step_times(70, 90, cases, totals(cases))}
    last = {"real": StepTimes(80, 100, 2, 0, {"wire": 4.0}, {"wire/test_route::test_cut[a@b]": 4})}
    assert timings.slowest_table(now, last) == [
        "       s    last  slowest 30 tests",
        "    60.5       -  real: raft_drills/test_rounds::test_share[cut]",
        "     3.5       -  real: broker/test_metadata::TestReplication::runTest",
        "     1.2     4.0  real: wire/test_route::test_cut[a@b]",
    ]
    assert timings.folder_table(now, last) == [
        "       s    last  sum of each folder",
        "    60.5       -  raft_drills",
        "     3.5       -  broker",
        "     1.2     4.0  wire",
        "     0.0       -  .",
    ]
    assert timings.step_table(now, last)[1].split() == [
        "real",
        "2",
        "70.0",
        "90.0",
        "80.0",
        "100.0",
    ]


def test_timings_are_kept_step_by_step(tmp_path: Path, cases: list[Case]) -> None:
    path = tmp_path / "timings" / "gate.json"
    assert timings.load(path) == {}
    real = timings.step_times(70, 90, cases, totals(cases))
    timings.save(path, {"quick": StepTimes(10, 20), "real": StepTimes(1, 2)})
    merged = timings.merged(timings.load(path), {"real": real})
    timings.save(path, merged)
    assert timings.load(path) == {"quick": StepTimes(10, 20), "real": real}
    assert "test_suite::test_together" not in real.tests


def test_the_list_says_how_long_each_part_took() -> None:
    steps = (Step("sim", "seeds", 10), Step("new", "never run", 10))
    assert listing(steps, {"sim": StepTimes(90, 174, passed=12)}) == [
        "part            tests    minutes  of CPU  what",
        "sim                12        1.5     2.9  seeds",
        "new                 -        < 1          never run",
        "                             1.5     2.9  timed or estimated; the others have a limit",
    ]


def test_of_a_sample_only_the_named_tests_grow(cases: list[Case]) -> None:
    sample = Sample(10, 1000, "faults", tests=("tests/raft_drills/test_rounds.py::test_share",))
    whole = timings.estimated(timings.step_times(40, 20, cases, totals(cases)), sample, cases)
    # 60.5 of 65.251 s a hundred times, and two at once as in the sample.
    assert whole.wall_s == pytest.approx(40 + 40 * 99 * 60.5 / 65.251, abs=0.1)
    assert whole.cpu_s == pytest.approx(20 + 20 * 99 * 60.5 / 65.251, abs=0.1)
    assert whole.estimated_from == "10 of 1,000 faults"
    # The next whole run is compared with no estimate.
    assert (whole.passed, whole.folders, whole.tests) == (2, {}, {})


def test_a_sample_of_a_script_grows_as_a_whole() -> None:
    sample = Sample(10, 100, "switches", command=("drill", "10"))
    whole = timings.estimated(timings.step_times(12, 6), sample)
    assert (whole.wall_s, whole.cpu_s) == (120, 60)


def test_an_estimate_is_kept_only_where_nothing_was_measured() -> None:
    guess, better = (StepTimes(n, n, estimated_from="1 of 9 rounds") for n in (10, 11))
    measured = StepTimes(12, 12)
    assert timings.merged({"one": guess}, {"one": better}) == {"one": better}
    assert timings.merged({"one": measured}, {"one": better}) == {"one": measured}
    assert timings.merged({"one": guess}, {"one": measured}) == {"one": measured}
