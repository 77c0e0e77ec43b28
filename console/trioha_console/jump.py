"""Where a recording is to be moved: ``+10s``, ``-1m``, ``12:04:31``, a whole time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from trioha.errors import TriohaError
from trioha.times import parse_moment

_STEP = re.compile(r"([+-])\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


def parse_jump(text: str, at_wall_ms: int) -> int:
    """Milliseconds since 1970. A clock time is of the day at the play head, in UTC.

    Errors: TriohaError in a sentence.
    """
    text = text.strip()
    if step := _STEP.fullmatch(text):
        way = 1 if step[1] == "+" else -1
        return at_wall_ms + way * round(float(step[2]) * _UNITS_MS[step[3] or "s"])
    if _CLOCK.fullmatch(text):
        day = datetime.fromtimestamp(at_wall_ms / 1000, UTC)
        text = (
            f"{day:%Y-%m-%d}T{text:0>8}" if text.count(":") == 2 else f"{day:%Y-%m-%d}T{text:0>5}"
        )
    moment = parse_moment(text, at_wall_ms) if text else None
    if moment is None:
        raise TriohaError(f"{text or 'that'} is no time; write +10s, -1m, 12:04:31 or a whole time")
    return moment
