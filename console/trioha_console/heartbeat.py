"""The age of the last sign of life as a bar: how far it is to the limit, and past the interval."""

from __future__ import annotations

from trioha.watch.condition import LATE_INTERVALS, QUIET_INTERVALS
from trioha_console.cells import NOTHING, Cell
from trioha_console.marks import bar

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
