"""Moments as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d|w)[a-z]*\s+ago", re.IGNORECASE)
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_MS_MIN = 100_000_000_000
"""Below it a bare number is no time in milliseconds: 1973; seconds of today are smaller."""


def parse_moment(text: str, now_ms: int) -> int | None:
    """Milliseconds since 1970; a time without a zone is UTC. None when it is none."""
    text = text.strip()
    if text.lower() == "now":
        return now_ms
    if text.isdecimal() and len(text) > 8:
        milliseconds = int(text)
        return milliseconds if milliseconds >= _MS_MIN else None
    match = _AGO.fullmatch(text)
    if match is not None:
        return now_ms - round(float(match[1]) * _UNITS_MS[match[2][0].lower()])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def moment_in_words(wall_ms: int) -> str:
    """``2026-11-20 09:31:05.250``, in UTC as the journals have it."""
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
