"""Moments on the command line."""

from __future__ import annotations

import pytest

from trioha.times import parse_moment

NOW_MS = 1_795_186_002_484
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW_MS),
        ("2h ago", NOW_MS - 2 * HOUR_MS),
        ("2 hours ago", NOW_MS - 2 * HOUR_MS),
        ("90 min ago", NOW_MS - 90 * 60_000),
        ("1.5d ago", NOW_MS - 36 * HOUR_MS),
        ("1763510400000", 1_763_510_400_000),
        ("2025-11-19", 1_763_510_400_000),
        ("2025-11-19T00:00", 1_763_510_400_000),
        ("2025-11-19 00:00:00.250", 1_763_510_400_250),
        ("2025-11-19T00:00:00Z", 1_763_510_400_000),
        ("2025-11-19T02:00:00+02:00", 1_763_510_400_000),
        ("20251119", 1_763_510_400_000),
    ],
)
def test_a_moment_is_read(text: str, moment: int) -> None:
    assert parse_moment(text, NOW_MS) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2h", "1763510400", "2025-13-01", "-5h ago"])
def test_no_moment_is_none(text: str) -> None:
    assert parse_moment(text, NOW_MS) is None
