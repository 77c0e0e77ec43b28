"""Figures as people say them, for findings."""

from __future__ import annotations

from datetime import UTC, datetime

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_BYTES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIMES = (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS), ("s", SECOND_MS))


def say_bytes(count: float) -> str:
    """``1536`` -> ``1.5 KiB``."""
    for unit, size in _BYTES:
        if abs(count) >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def say_ms(duration_ms: float) -> str:
    """``90000`` -> ``1.5 min``."""
    for unit, size in _TIMES:
        if abs(duration_ms) >= size:
            return f"{duration_ms / size:.1f} {unit}"
    return f"{duration_ms:.0f} ms"


def say_time(wall_ms: int) -> str:
    """Milliseconds since 1970 as UTC, to the second."""
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms"  # no calendar has it: a damaged or invented clock


def say_clock(wall_ms: int) -> str:
    """The time of day (UTC) of milliseconds since 1970: ``00:43:54``."""
    return say_time(wall_ms)[11:-1]


def say_span(figure_ms: float, least_ms: float, most_ms: float) -> str:
    """A duration with its bounds, where rounding does not hide them."""
    figure, least, most = say_ms(figure_ms), say_ms(least_ms), say_ms(most_ms)
    return figure if least == most else f"{figure} (between {least} and {most})"


def say_share(part: float, whole: float) -> str:
    """``1, 4`` -> ``25 %``; small shares keep their digits."""
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


def count_of(number: int, noun: str) -> str:
    """``2, "entry"`` -> ``2 entries``."""
    plural = noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeo" else noun + "s"
    plural = noun + "es" if noun.endswith("ch") else plural
    return f"{number:,} {noun if number == 1 else plural}"
