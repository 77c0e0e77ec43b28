"""docs/compatibility.md shows what is recorded, and a run is held against all of it."""

from __future__ import annotations

import attrs
from support.clusters.rocketmq_results import (
    PAGE,
    TIMED,
    page_with,
    read_recorded,
    results_table,
    worse_than_java,
)
from support.clusters.rocketmq_tests import CLASSES, TestResult


def test_the_page_shows_what_is_recorded() -> None:
    assert PAGE.read_text() == page_with(results_table(read_recorded())), (
        "record_rocketmq_tests.py writes it anew"
    )


def test_java_passes_every_class_that_is_run() -> None:
    java = read_recorded()["java"]
    assert {result.class_name for result in java.values()} == set(CLASSES)


def test_no_layout_is_recorded_as_worse_than_java() -> None:
    recorded = read_recorded()
    for layout, results in recorded.items():
        for name in CLASSES:
            assert worse_than_java(recorded["java"], name, results.values()) == [], layout


def test_a_run_that_is_worse_is_told() -> None:
    passed = TestResult("C", "m", "passed", 1.0, 20)
    java = {passed.name: passed}
    assert worse_than_java(java, "C", [attrs.evolve(passed, stored=40)]) == []
    assert worse_than_java(java, "Other", []) == []
    assert worse_than_java(java, "C", []) == ["C.m did not run"]
    failed = attrs.evolve(passed, result="failed", why="nothing came")
    assert worse_than_java(java, "C", [failed]) == ["C.m failed after 1.0 s: nothing came"]
    (silent,) = worse_than_java(java, "C", [attrs.evolve(passed, stored=0)])
    assert silent == "C.m passed, but the brokers stored 0 messages, Java's 20"
    # A test that sends for a time has to send something.
    timed = {f"{TIMED}C.m": attrs.evolve(passed, class_name=f"{TIMED}C")}
    for stored, count in ((1, 0), (0, 1)):
        found = [attrs.evolve(one, stored=stored) for one in timed.values()]
        assert len(worse_than_java(timed, f"{TIMED}C", found)) == count
    # A test that fails on Java may fail here.
    refused = {passed.name: attrs.evolve(passed, result="failed")}
    assert worse_than_java(refused, "C", []) == []
