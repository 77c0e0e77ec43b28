"""Metric families whose samples all carry the labels of the node that tells them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Sample = tuple[tuple[str, ...], float]
HistogramSample = tuple[tuple[str, ...], Sequence[tuple[str, float]], float]
"""Labels; upper bound and count so far of each bucket; the sum."""
_SERIES_MAX = 20_000
"""Samples of one family: the page has a few megabytes at most, however many topics exist."""


class Families:
    """Makes metric families whose samples all carry the node's own labels."""

    def __init__(self, **constants: str) -> None:
        self._names = tuple(constants)
        self._values = tuple(constants.values())

    def gauge(self, name: str, text: str, samples: Iterable[Sample], *labels: str) -> Metric:
        from prometheus_client.metrics_core import GaugeMetricFamily

        family = GaugeMetricFamily(name, text, labels=(*self._names, *labels))
        return self._fill(family, samples)

    def counter(self, name: str, text: str, samples: Iterable[Sample], *labels: str) -> Metric:
        from prometheus_client.metrics_core import CounterMetricFamily

        family = CounterMetricFamily(name, text, labels=(*self._names, *labels))
        return self._fill(family, samples)

    def histogram(
        self, name: str, text: str, samples: Iterable[HistogramSample], *labels: str
    ) -> Metric:
        from prometheus_client.metrics_core import HistogramMetricFamily

        family = HistogramMetricFamily(name, text, labels=(*self._names, *labels))
        for count, (values, buckets, total) in enumerate(samples):
            if count == _SERIES_MAX:
                break
            family.add_metric((*self._values, *values), buckets, total)
        return family

    def _fill(self, family: Metric, samples: Iterable[Sample]) -> Metric:
        for count, (labels, value) in enumerate(samples):
            if count == _SERIES_MAX:
                break
            family.add_metric((*self._values, *labels), value)  # type: ignore[attr-defined]
        return family


def one(value: float) -> tuple[Sample, ...]:
    """The samples of a family without labels of its own."""
    return (((), value),)
