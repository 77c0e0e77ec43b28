"""Buckets of time that fit a window: round widths, never so many that a chart is a comb."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trioha.analysis.reports.words import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

BUCKETS_MAX = 240
"""Points of a line; about three pixels each on the page."""
STATS_BUCKET_MS = MINUTE_MS
"""Width of the buckets of `commitlog_stats`: narrower buckets need the records."""

_WIDTHS_MS = (
    SECOND_MS,
    5 * SECOND_MS,
    10 * SECOND_MS,
    30 * SECOND_MS,
    MINUTE_MS,
    5 * MINUTE_MS,
    10 * MINUTE_MS,
    30 * MINUTE_MS,
    HOUR_MS,
    3 * HOUR_MS,
    6 * HOUR_MS,
    DAY_MS,
    7 * DAY_MS,
    28 * DAY_MS,
)


def bucket_width_ms(first_ms: int, last_ms: int) -> int:
    """The narrowest width with which the window has at most `BUCKETS_MAX` buckets."""
    span_ms = max(0, last_ms - first_ms)
    for width_ms in _WIDTHS_MS:
        if span_ms // width_ms + 2 <= BUCKETS_MAX:
            return width_ms
    return _WIDTHS_MS[-1] * (span_ms // (_WIDTHS_MS[-1] * (BUCKETS_MAX - 2)) + 1)


def buckets(first_ms: int, last_ms: int, width_ms: int) -> Iterable[int]:
    """Lower bounds from the bucket of `first_ms` to that of `last_ms`."""
    return range(first_ms - first_ms % width_ms, last_ms + 1, width_ms)


def per_second(
    counts: Mapping[int, int], first_ms: int, last_ms: int, width_ms: int
) -> list[tuple[int, float]]:
    """Points of a line: empty buckets count 0, the ends count for the part that was seen."""
    points = []
    for begin_ms in buckets(first_ms, last_ms, width_ms):
        seen_ms = min(begin_ms + width_ms, last_ms + 1) - max(begin_ms, first_ms)
        # A lone message in the last millisecond is not a thousand per second.
        seen_ms = max(seen_ms, min(width_ms, SECOND_MS))
        points.append((begin_ms, counts.get(begin_ms, 0) * 1000 / seen_ms))
    return points
