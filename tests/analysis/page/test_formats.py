from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioha.analysis.page.formats import format_bytes, format_duration, format_value
from trioha.analysis.page.scales import Scale, linear, over_time
from trioha.analysis.results import AxisKind

KINDS: tuple[AxisKind, ...] = ("time", "number", "bytes", "duration")


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (None, "integer", "\u2013"),
        (True, "flag", "yes"),
        (1_234_567, "integer", "1\u202f234\u202f567"),
        (1.23456, "number", "1.235"),
        (0, "bytes", "0 B"),
        (1536, "bytes", "1.5 KiB"),
        (3 << 40, "bytes", "3 TiB"),
        (999, "duration", "999 ms"),
        (1500, "duration", "1.5 s"),
        (61_000, "duration", "1 min 1 s"),
        (-90_000, "duration", "-1 min 30 s"),
        (90_000_000, "duration", "1 d 1 h"),
        (0.5, "share", "50 %"),
        (0.99999, "share", "99.999 %"),
        (0.99999999, "share", "99.9999 %"),
        (1.0, "share", "100 %"),
        (1_700_000_000_000, "time", "2023-11-14 22:13:20"),
        (1_700_000_000_042, "time", "2023-11-14 22:13:20.042"),
        (-5, "time", "-5 ms"),
        ("<b>", "text", "<b>"),
    ],
)
def test_values_are_shown_as_people_read_them(value: object, kind: str, shown: str) -> None:
    assert format_value(value, kind) == shown


@given(st.integers(0, 1 << 60))
def test_sizes_and_durations_stay_short(value: int) -> None:
    assert len(format_bytes(value)) <= 12
    assert len(format_duration(min(value, 10**12))) <= 14


@given(
    st.sampled_from(KINDS),
    st.floats(-1e15, 1e15, allow_nan=False),
    st.floats(1e-3, 1e14),
)
@example("time", 1e-09, 0.0625)
@example("number", 450359962738.0, 0.001)
def test_an_axis_has_a_handful_of_ticks_within_it(kind: AxisKind, low: float, span: float) -> None:
    scale = Scale(kind, low, low + span, 0, 100)
    ticks = scale.ticks(6)
    assert len(ticks) <= 8
    assert all(-1e-6 <= scale.at(value) <= 100 + 1e-6 for value, _ in ticks)


@given(st.lists(st.floats(-1e12, 1e12), max_size=5), st.sampled_from(KINDS))
def test_an_axis_of_amounts_holds_zero_and_every_value(values: list[float], kind: AxisKind) -> None:
    scale = linear(kind, values, 0, 100)
    assert scale.low <= 0 <= scale.high
    assert all(-1e-6 <= scale.at(value) <= 100 + 1e-6 for value in values)


def test_times_are_labelled_as_fine_as_their_steps() -> None:
    day = 1_700_006_400_000  # midnight
    labels = [label for _, label in over_time([day - 7_200_000, day + 7_200_000], 0, 1).ticks(8)]
    assert labels == [
        "22:00",
        "22:30",
        "23:00",
        "23:30",
        "11-15",
        "00:30",
        "01:00",
        "01:30",
        "02:00",
    ]
    assert over_time([day, day + 4_000], 0, 1).ticks(4)[1][1] == "00:00:01"
    assert over_time([day, day + 40], 0, 1).ticks(4)[1][1] == "00:00:00.010"
    assert over_time([day, day + 86_400_000 * 8], 0, 1).ticks(4)[1][1] == "2023-11-17"
