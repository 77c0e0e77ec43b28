"""Budget for the cost of a message at each node: `budget.json`, by rows of `bench.cost.rows`.

The numbers are counts that repeat exactly, so no load of the machine moves them. The budget may
only fall: `TRIOHA_REWRITE=1` takes over what has become less, and leaves alone what has become
more. To allow more, write it into the file and say why in the commit.

A compiled build has a budget of its own: the instructions that it still interprets.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

import pytest
from bench.cost.rows import ROWS, Row, cost_of

from trioha.compiled import this_build
from trioha.services.remoting.link_sender import LinkSender

BUDGET = Path(__file__).with_name("budget.json")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BUILD = f"{PYTHON}, compiled" if this_build().compiled else PYTHON
SLACK = 1.02
"""The order of sets of texts differs from process to process, and a Raft group's timers with it."""
LEFT_MAX = 1.10
"""A budget that is further above what a row costs is no budget any more."""
ROUNDED = 0.02
"""Costs have two decimals: a small one may be off by that much."""


def budget() -> dict[str, dict[str, float]]:
    """Row -> what -> count. Instructions differ between Pythons, all else is the same."""
    by_build: dict[str, dict[str, dict[str, float]]] = json.loads(BUDGET.read_text())
    if BUILD in by_build:
        return by_build[BUILD]
    known = next(iter(by_build.values()))
    return {
        row: {what: most for what, most in counts.items() if not what.endswith("/instructions")}
        for row, counts in known.items()
    }


def exceeded(allowed: dict[str, float], costs: dict[str, float]) -> list[str]:
    return [
        f"{what}: {cost} a message, {allowed[what]} allowed"
        for what, cost in costs.items()
        if what in allowed and cost > allowed[what] * SLACK + ROUNDED
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_message_costs_each_node_no_more_than_its_budget(row: Row) -> None:
    costs = cost_of(row)
    if os.environ.get("TRIOHA_REWRITE"):
        _rewrite(row, costs)
    allowed = budget()[row.name]
    assert not exceeded(allowed, costs)
    left = {what: (most, costs[what]) for what, most in allowed.items()}
    stale = [what for what, (most, cost) in left.items() if most > cost * LEFT_MAX + ROUNDED]
    assert not stale, f"it costs less now: lower the budget with TRIOHA_REWRITE=1: {stale}"


def test_a_tenth_more_work_for_each_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("SYNC", 1)
    before = cost_of(row)
    flush_nowait = LinkSender.flush_nowait

    def slower(sender: LinkSender) -> None:
        for _ in range(int(before["master/instructions"] * 0.1 / 3)):  # three instructions a turn
            pass
        flush_nowait(sender)

    monkeypatch.setattr(LinkSender, "flush_nowait", slower)
    assert exceeded(before, cost_of(row)) != []


def test_a_collection_of_garbage_is_not_counted() -> None:
    row = Row("alone", 1)
    before = cost_of(row)

    def slow(phase: str, info: dict[str, int]) -> None:
        for _ in range(1000):
            pass

    thresholds = gc.get_threshold()
    gc.callbacks.append(slow)
    gc.set_threshold(10)
    try:
        costs = cost_of(row)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(slow)
    assert exceeded(before, costs) == []


def _rewrite(row: Row, costs: dict[str, float]) -> None:
    by_build = json.loads(BUDGET.read_text()) if BUDGET.exists() else {}
    kept = by_build.setdefault(BUILD, {}).setdefault(row.name, {})
    for what, cost in costs.items():
        kept[what] = min(kept.get(what, cost), cost)
    BUDGET.write_text(json.dumps(by_build, indent=1, sort_keys=True) + "\n")
