"""Axes: which numbers to write along them, and where in pixels a value lies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from trioha.analysis.page.formats import format_bytes, format_duration, format_number, utc
from trioha.analysis.results import AxisKind

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_DURATION_STEPS = tuple(
    count * unit
    for unit, counts in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (_SECOND, (1, 2, 5, 10, 15, 30)),
        (_MINUTE, (1, 2, 5, 10, 15, 30)),
        (_HOUR, (1, 2, 3, 6, 12)),
        (_DAY, (1, 2, 7, 14, 28, 91, 182, 365, 1825, 3650, 36500)),
    )
    for count in counts
)


@attrs.frozen
class Scale:
    """Values from `low` to `high` on pixels from `start` to `end`; `end` may lie before it."""

    kind: AxisKind
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 6) -> list[tuple[float, str]]:
        """About `count` round values, each with what is written at it."""
        span = self.high - self.low
        if not span > 0 or not math.isfinite(span):
            return [(self.low, self._label(self.low, 1))]
        step = _step(span / max(1, count), self.kind)
        slack = 1e-9 * min(1.0, span / step)
        first = math.ceil(self.low / step - slack)
        last = math.floor(self.high / step + slack)
        # A multiple of the step may be rounded to a float beyond an end.
        values = [min(max(index * step, self.low), self.high) for index in range(first, last + 1)]
        return [(value, self._label(value, step)) for value in values]

    def _label(self, value: float, step: float) -> str:
        if self.kind == "bytes":
            return format_bytes(value)
        if self.kind == "duration":
            return format_duration(value) if value else "0"
        if self.kind == "time":
            return _clock_label(value, step)
        return format_number(round(value, 9))


def linear(kind: AxisKind, values: Sequence[float], start: float, end: float) -> Scale:
    """A scale for amounts: it shows zero, unless that would hide everything."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    low, high = min(low, 0), max(high, 0)
    if low == high:
        high = low + 1
    step = _step((high - low) / 5, kind)
    return Scale(kind, math.floor(low / step) * step, math.ceil(high / step) * step, start, end)


def over_time(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale for moments: from the first to the last."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low == high:
        low, high = low - 500, high + 500
    return Scale("time", low, high, start, end)


def _step(least: float, kind: AxisKind) -> float:
    if kind in ("time", "duration"):
        for step in _DURATION_STEPS:
            if step >= least:
                return step
        return _DURATION_STEPS[-1] * math.ceil(least / _DURATION_STEPS[-1])
    unit = 1.0
    if kind == "bytes":
        while unit * 1024 <= least:
            unit *= 1024
        power = 1.0
        while power * unit < least:
            power *= 2
        return max(1.0, power * unit)
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)


def _clock_label(value: float, step: float) -> str:
    moment = utc(value)
    if moment is None:
        return str(int(value))
    if step >= _DAY:
        return moment.strftime("%Y-%m-%d")
    if step >= _MINUTE:
        # Midnight is where another date begins: say which.
        return moment.strftime("%m-%d" if value % _DAY == 0 else "%H:%M")
    if step >= _SECOND:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%H:%M:%S.") + f"{int(value) % 1000:03d}"
