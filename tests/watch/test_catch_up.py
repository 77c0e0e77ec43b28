from __future__ import annotations

import pytest

from trioha.watch.catch_up import catch_up_s


@pytest.mark.parametrize(
    ("behind", "gain_per_s", "expected"),
    [
        (0, None, 0.0),
        (0, -5.0, 0.0),
        (-1, 5.0, 0.0),
        (300, 5.0, 60.0),
        (300, 0.5, 600.0),
        (300, 0.0, None),
        (300, -5.0, None),
        (300, None, None),
    ],
)
def test_what_is_behind_by_what_it_gains(
    behind: float, gain_per_s: float | None, expected: float | None
) -> None:
    assert catch_up_s(behind, gain_per_s) == expected
