"""Results of RocketMQ's own tests, recorded once, and their table in docs/compatibility.md.

`tests/interop/record_rocketmq_tests.py` records them; a test compares every run with Java's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import attrs

from support.clusters.rocketmq_tests import Layout, TestResult
from support.processes.rig import REPO

RECORDED = REPO / "tests" / "interop" / "testdata" / "rocketmq_tests.jsonl"
PAGE = REPO / "docs" / "compatibility.md"
BEGIN = "<!-- begin of the results, made by tests/interop/record_rocketmq_tests.py -->"
END = "<!-- end of the results -->"
HEADS: Mapping[Layout, str] = {
    "java": "Java 4.9.7",
    "single": "masters",
    "pair": "pairs",
    "three": "sets of three",
    "dledger": "DLEDGER groups",
}
TIMED = "client.consumer.cluster."
"""Tests that send until a time is over: how much is a matter of speed."""
Recorded = Mapping[Layout, Mapping[str, TestResult]]


def read_recorded() -> Recorded:
    """Return results by layout and test, `java` among the layouts."""
    found: dict[Layout, dict[str, TestResult]] = {layout: {} for layout in HEADS}
    for line in RECORDED.read_text().splitlines():
        fields = json.loads(line)
        layout: Layout = fields.pop("layout")
        result = TestResult(**fields)
        found[layout][result.name] = result
    return found


def write_recorded(recorded: Recorded) -> None:
    lines = [
        json.dumps({"layout": layout, **attrs.asdict(results[name])})
        for layout, results in recorded.items()
        for name in sorted(results)
    ]
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("\n".join(lines) + "\n")


def worse_than_java(
    java: Mapping[str, TestResult], class_name: str, found: Iterable[TestResult]
) -> list[str]:
    """Return a line for each test that passes on Java's broker and did not run here, failed, or
    passed with fewer messages stored."""
    by_name = {result.name: result for result in found}
    lines = []
    for name, theirs in java.items():
        if theirs.class_name != class_name or theirs.result != "passed":
            continue
        ours = by_name.get(name)
        if ours is None:
            lines.append(f"{name} did not run")
        elif ours.result != "passed":
            lines.append(f"{name} {ours.result} after {ours.seconds} s: {ours.why}")
        elif ours.stored < (min(1, theirs.stored) if name.startswith(TIMED) else theirs.stored):
            lines.append(
                f"{name} passed, but the brokers stored {ours.stored} messages, "
                f"Java's {theirs.stored}"
            )
    return lines


def results_table(recorded: Recorded) -> str:
    """A line a test: messages that the brokers held at its end, and for each layout its seconds."""
    heads = ["test", "messages", *HEADS.values()]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name in sorted({name for results in recorded.values() for name in results}):
        java = recorded["java"].get(name)
        cells = [_cell(recorded[layout].get(name)) for layout in HEADS]
        stored = str(java.stored) if java is not None else "-"
        lines.append(f"| `{name}` | {stored} | {' | '.join(cells)} |")
    counts = []
    for layout in HEADS:
        ran = [one.result for one in recorded[layout].values() if one.result != "ignored"]
        counts.append(f"{ran.count('passed')} of {len(ran)}")
    lines.append(f"| passed | | {' | '.join(counts)} |")
    return "\n".join(lines)


def _cell(result: TestResult | None) -> str:
    if result is None:
        return "not run"
    if result.result == "ignored":
        return "ignored"
    seconds = f"{result.seconds:.1f} s"
    return seconds if result.result == "passed" else f"**{result.result}**, {seconds}"


def page_with(table: str) -> str:
    """The page with this table. Errors: AssertionError when the page has no place for it."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, BEGIN
    assert end, END
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"
