"""From samples to medians, ratios and verdicts.

A ratio is that of the medians, trioha to Java. Its range comes from the rounds taken one by one,
each of which is one of ours beside one of theirs in the same minutes: it shows the noise that a
median hides.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs
from bench.peer.results import SIDES, Results, Sample
from bench.peer.rows import Goal, Metric, Row


@attrs.frozen
class MetricSummary:
    """One metric of one row over all rounds. What could not be measured is None."""

    metric: Metric
    goal: Goal | None
    java: float | None
    trioha: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None

    @property
    def reached(self) -> bool | None:
        """Whether the goal is met; None without a goal. Not measured is not met."""
        if self.goal is None:
            return None
        value = self.ratio if self.goal.of_ratio else self.trioha
        if value is None:
            return False
        if self.metric.higher_is_better:
            return value >= self.goal.limit
        return value <= self.goal.limit

    @property
    def advantage(self) -> float | None:
        """The ratio turned so that more than 1 is better for trioha."""
        if not self.ratio:
            return None
        return self.ratio if self.metric.higher_is_better else 1 / self.ratio


@attrs.frozen
class SideSummary:
    """Summary of one side's samples of a row."""

    rounds: int
    failed: tuple[str, ...]
    count: int
    errors: Counter[str]
    disturbed: int
    """Rounds in which other processes took more processor time than the figures can bear."""

    @property
    def measured(self) -> int:
        return self.rounds - len(self.failed)


@attrs.frozen
class RowSummary:
    """All that the report says about a row."""

    row: Row
    metrics: tuple[MetricSummary, ...]
    java: SideSummary
    trioha: SideSummary

    @property
    def failed(self) -> bool:
        """A side has nothing to show at all."""
        return not (self.java.measured and self.trioha.measured)

    @property
    def short(self) -> tuple[MetricSummary, ...]:
        """The metrics whose goals were not reached."""
        return tuple(metric for metric in self.metrics if metric.reached is False)


def summarize(rows: Iterable[Row], results: Results) -> list[RowSummary]:
    """The rows that have samples, in their order."""
    summaries = []
    for row in rows:
        java, trioha = (results.of_row(row.name, side) for side in SIDES)
        if java or trioha:
            summaries.append(
                RowSummary(
                    row,
                    tuple(summarize_metric(metric, row, java, trioha) for metric in row.metrics),
                    summarize_side(java),
                    summarize_side(trioha),
                )
            )
    return summaries


def summarize_metric(
    metric: Metric, row: Row, java: Sequence[Sample], trioha: Sequence[Sample]
) -> MetricSummary:
    theirs, ours = _by_round(metric, java), _by_round(metric, trioha)
    their_median, our_median = _median(theirs.values()), _median(ours.values())
    pairs = [_ratio(ours[number], theirs[number]) for number in ours.keys() & theirs.keys()]
    ratios = [ratio for ratio in pairs if ratio is not None]
    return MetricSummary(
        metric,
        row.goals.get(metric.key),
        their_median,
        our_median,
        _ratio(our_median, their_median),
        min(ratios, default=None),
        max(ratios, default=None),
    )


def summarize_side(samples: Sequence[Sample]) -> SideSummary:
    errors: Counter[str] = Counter()
    for sample in samples:
        errors.update(sample.errors)
    return SideSummary(
        rounds=len(samples),
        failed=tuple(sample.failed for sample in samples if sample.failed is not None),
        count=sum(sample.count for sample in samples),
        errors=errors,
        disturbed=sum(sample.disturbed for sample in samples),
    )


def _by_round(metric: Metric, samples: Sequence[Sample]) -> dict[int, float]:
    return {
        sample.round: sample.figures[metric.key]
        for sample in samples
        if sample.failed is None and metric.key in sample.figures
    }


def _median(values: Iterable[float]) -> float | None:
    values = list(values)
    return statistics.median(values) if values else None


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    if ours is None or theirs is None or theirs == 0:
        return None
    return ours / theirs
