"""Made-up samples of a comparison: what was measured does not matter, only what becomes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench.peer.results import Results, Sample, Side
from bench.peer.rows import Goal, Metric, Row, Topology

RATE = Metric("per_s", "messages/s", higher_is_better=True, digits=0)
DELAY = Metric("p50_ms", "p50 ms")
MakeRow = Callable[..., Row]
MakeSamples = Callable[..., list[Sample]]


@pytest.fixture
def make_row() -> MakeRow:
    """A row of one rate and one delay. Options: goals by metric, group, block."""

    def make(name: str = "java/send/alone/128/1", **options: Goal | str) -> Row:
        goals = {key: goal for key, goal in options.items() if isinstance(goal, Goal)}
        return Row(
            name=name,
            group=str(options.get("group", "sends")),
            block=str(options.get("block", "sends")),
            scenario="send",
            topology=Topology.ALONE,
            metrics=(RATE, DELAY),
            goals=goals,
        )

    return make


@pytest.fixture
def make_samples() -> MakeSamples:
    """One sample for each rate, in rounds of their own. A rate of None: the round failed."""

    def make(row: Row, side: Side, *rates: float | None, errors: int = 0) -> list[Sample]:
        return [
            Sample(row=row.name, side=side, round=number, failed="the broker fell over\nlog…")
            if rate is None
            else Sample(
                row=row.name,
                side=side,
                round=number,
                figures={"per_s": rate, "p50_ms": 1000 / rate},
                count=int(rate),
                errors={"TIMEOUT": errors} if errors else {},
                elapsed_s=10.0,
            )
            for number, rate in enumerate(rates, 1)
        ]

    return make


@pytest.fixture
def make_results(make_samples: MakeSamples) -> Callable[..., Results]:
    def make(row: Row, java: list[float | None], trioha: list[float | None]) -> Results:
        samples = make_samples(row, "java", *java) + make_samples(row, "trioha", *trioha)
        return Results(setup={"machine": "two abaci", "scale": {}}, samples=samples)

    return make
