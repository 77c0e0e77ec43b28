from __future__ import annotations

import pytest

from trioha.failover.ranking import LossWindow

NOTHING = LossWindow(0, exact=True, acknowledged=False)
UNACKNOWLEDGED = LossWindow(146, exact=False, acknowledged=False)
SOME = LossWindow(100, exact=False, acknowledged=True)
MORE = LossWindow(101, exact=False, acknowledged=True)
UNKNOWN = LossWindow(None, exact=False, acknowledged=True)


@pytest.mark.parametrize(
    ("now", "agreed", "exceeds"),
    [
        (UNACKNOWLEDGED, NOTHING, False),
        (NOTHING, MORE, False),
        (SOME, NOTHING, True),
        (UNKNOWN, UNACKNOWLEDGED, True),
        (MORE, SOME, True),
        (SOME, MORE, False),
        (SOME, SOME, False),
        (UNKNOWN, MORE, True),
        (MORE, UNKNOWN, False),
        (UNKNOWN, UNKNOWN, False),
    ],
)
def test_a_loss_exceeds_what_was_agreed_to_only_if_somebody_relies_on_more(
    now: LossWindow, agreed: LossWindow, exceeds: bool
) -> None:
    assert now.exceeds(agreed) is exceeds
