"""Lines through growth: how fast a store fills, and when a limit is reached.

A line is fitted by least squares to the bytes stored up to the end of each hour. The log's bytes
stand for the whole store: consume queues and index grow with it in the proportion they have now.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from trioha.analysis.reports.words import DAY_MS, HOUR_MS

LAST_MS = 7 * DAY_MS
HOURS_MIN = 3
"""Points that make a line worth drawing."""


@attrs.frozen
class Trend:
    """Bytes per day, over a span of time."""

    bytes_per_day: float
    span_ms: int


def cumulative(hours: Mapping[int, int]) -> list[tuple[int, int]]:
    """(End of hour, bytes stored so far) of counts by beginning of hour; gaps are filled."""
    points: list[tuple[int, int]] = []
    total = 0
    if hours:
        for begin_ms in range(min(hours), max(hours) + 1, HOUR_MS):
            total += hours.get(begin_ms, 0)
            points.append((begin_ms + HOUR_MS, total))
    return points


def trend(points: list[tuple[int, int]], since_ms: int | None = None) -> Trend | None:
    """The line through the points from `since_ms` on; None when they are too few."""
    kept = [point for point in points if since_ms is None or point[0] >= since_ms]
    if len(kept) < HOURS_MIN:
        return None
    mean_x = sum(x for x, _ in kept) / len(kept)
    mean_y = sum(y for _, y in kept) / len(kept)
    above = sum((x - mean_x) * (y - mean_y) for x, y in kept)
    below = sum((x - mean_x) ** 2 for x, _ in kept)
    return Trend(above / below * DAY_MS, kept[-1][0] - kept[0][0])


def last_trend(points: list[tuple[int, int]]) -> Trend | None:
    """The line through the last seven days; None when there are no more than those."""
    if not points or points[-1][0] - points[0][0] <= LAST_MS:
        return None
    return trend(points, points[-1][0] - LAST_MS)


def days_until(limit_bytes: float, used_bytes: float, bytes_per_day: float) -> float | None:
    """Days until a limit is reached: 0 when it is already; None when it never is."""
    if used_bytes >= limit_bytes:
        return 0.0
    return (limit_bytes - used_bytes) / bytes_per_day if bytes_per_day > 0 else None
