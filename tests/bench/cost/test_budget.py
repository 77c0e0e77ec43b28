"""What a message may cost each node: `budget.json`, by rows of `bench.cost.rows`.

The numbers are counts that repeat exactly, so no load of the machine moves them. The budget may
only fall: `TRIOHA_REWRITE=1` takes over what has become less, and leaves alone what has become
more. Who wants more writes it into the file, and says why in the commit.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from bench.cost.rows import ROWS, Row, cost_of

from trioha.compiled import this_build
from trioha.services.remoting.link import RemotingLink

BUDGET = Path(__file__).with_name("budget.json")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SLACK = 1.02
"""The order of sets of texts differs from process to process, and a Raft group's timers with it."""
LEFT_MAX = 1.10
"""A budget that is further above what a row costs is no budget any more."""
ROUNDED = 0.02
"""Costs have two decimals: a small one may be off by that much."""


def budget() -> dict[str, dict[str, float]]:
    by_python: dict[str, dict[str, dict[str, float]]] = json.loads(BUDGET.read_text())
    assert PYTHON in by_python, f"no budget for Python {PYTHON}: TRIOHA_REWRITE=1, plain Python"
    return by_python[PYTHON]


def exceeded(allowed: dict[str, float], costs: dict[str, float]) -> list[str]:
    return [
        f"{what}: {cost} a message, {allowed[what]} allowed"
        for what, cost in costs.items()
        if cost > allowed[what] * SLACK + ROUNDED
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_message_costs_each_node_no_more_than_its_budget(row: Row) -> None:
    costs = cost_of(row)
    if os.environ.get("TRIOHA_REWRITE"):
        _rewrite(row, costs)
    allowed = budget()[row.name]
    assert not exceeded(allowed, costs)
    # Compiled modules execute no bytecode.
    if not this_build().compiled:
        left = {what: (allowed[what], cost) for what, cost in costs.items()}
        stale = [what for what, (most, cost) in left.items() if most > cost * LEFT_MAX + ROUNDED]
        assert not stale, f"it costs less now: lower the budget with TRIOHA_REWRITE=1: {stale}"


def test_a_tenth_more_work_for_each_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("SYNC", 1)
    before = cost_of(row)
    flush_nowait = RemotingLink.flush_nowait

    def slower(link: RemotingLink) -> None:
        for _ in range(int(before["master/instructions"] * 0.1 / 3)):  # three instructions a turn
            pass
        flush_nowait(link)

    monkeypatch.setattr(RemotingLink, "flush_nowait", slower)
    assert exceeded(before, cost_of(row)) != []


def _rewrite(row: Row, costs: dict[str, float]) -> None:
    assert not this_build().compiled, "`just pure` first: compiled modules execute no bytecode"
    by_python = json.loads(BUDGET.read_text()) if BUDGET.exists() else {}
    kept = by_python.setdefault(PYTHON, {}).setdefault(row.name, {})
    for what, cost in costs.items():
        kept[what] = min(kept.get(what, cost), cost)
    BUDGET.write_text(json.dumps(by_python, indent=1, sort_keys=True) + "\n")
