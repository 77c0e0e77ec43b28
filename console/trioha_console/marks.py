"""Bars, sparklines, charts and heartbeats out of characters.

What is not known leaves a hole, never a zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from trioha.watch.condition import LATE_INTERVALS, QUIET_INTERVALS
from trioha_console.cells import NOTHING, Cell

_SPARKS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BRAILLE = 0x2800
# Dots of one braille cell, by row from the top, left column and right column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_DOT_ROWS = 4

Values = Sequence[float | None]


def sparkline(values: Values, *, top: float | None = None) -> str:
    """One character a value; a zero is a low bar, an unknown one a blank.

    `top` is the value of a full bar; the largest of `values` if it is not given.
    """
    most = top if top is not None else max((one for one in values if one is not None), default=0.0)
    return "".join(" " if one is None else _spark(one, most) for one in values)


def _spark(value: float, most: float) -> str:
    if value <= 0 or most <= 0:
        return _SPARKS[0]
    return _SPARKS[min(7, 1 + int(value / most * 6.999))]


def bar(value: float | None, limit: float | None, width: int) -> str:
    """Eighths of a cell filled from the left, `width` wide; dots when nothing is known."""
    if value is None or not limit:
        return "·" * width
    eighths = max(0, min(width * 8, round(value / limit * width * 8)))
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[part] if part else "")).ljust(width)


def line_chart(values: Values, width: int, height: int, top: float) -> list[str]:
    """A line of braille dots, `width` x `height` cells; two values fit side by side in a cell.

    `top` is the value of the upper edge. The newest value is at the right.
    """
    cells = [[0] * width for _ in range(height)]
    rows = height * _DOT_ROWS
    points = list(values)[-2 * width :]
    offset = 2 * width - len(points)
    before: int | None = None
    for index, value in enumerate(points, offset):
        if value is None:
            before = None
            continue
        level = min(1.0, max(0.0, value / top if top > 0 else 0.0))
        row = rows - 1 - round(level * (rows - 1))
        # A jump is drawn as an upright line: single dots far apart say nothing.
        first, last = (row, row) if before is None else sorted((row, before))
        if before is not None and last > first:
            first, last = (first, last - 1) if row == first else (first + 1, last)
        for dot in range(first, last + 1):
            cells[dot // _DOT_ROWS][index // 2] |= _DOTS[dot % _DOT_ROWS][index % 2]
        before = row
    return ["".join(chr(_BRAILLE + cell) if cell else " " for cell in line) for line in cells]


_NUMBERS_WIDTH = 8


def heartbeat_role(age_s: float | None, interval_s: float | None) -> str:
    if age_s is None or not interval_s:
        return "dim"
    if age_s > QUIET_INTERVALS * interval_s:
        return "bad"
    return "warn" if age_s > LATE_INTERVALS * interval_s else "good"


def heartbeat_cell(
    age_s: float | None, interval_s: float | None, limit_s: float | None, width: int
) -> Cell:
    """``███┊────  3.1/20s``: filled to the age, a tick at the interval, full at the limit."""
    if age_s is None:
        return NOTHING
    age = f"{age_s:.1f}" if age_s < 100 else f"{age_s:.0f}"
    numbers = f"{age}/{limit_s:.0f}s" if limit_s else f"{age}s"
    role = heartbeat_role(age_s, interval_s)
    room = width - _NUMBERS_WIDTH - 1
    if room < 3 or not limit_s:
        return ((numbers, role),)
    filled = bar(age_s, limit_s, room).rstrip()
    rest = ["─"] * (room - len(filled))
    if interval_s:
        tick = min(room - 1, int(room * interval_s / limit_s))
        if tick >= len(filled):
            rest[tick - len(filled)] = "┊"
    return ((filled, role), ("".join(rest), "dim"), (f"{numbers:>{_NUMBERS_WIDTH + 1}}", role))
