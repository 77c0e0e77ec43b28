"""An account of switches proves nothing unless the drill did enough."""

from __future__ import annotations

from typing import Any

import pytest
from failover_drills.drill import demand_enough

ENOUGH = {
    "sends": {"SEND_OK": 1101},
    "acknowledged_by_client": {"own": 900, "js": 200, "cpp": 4},
    "offset_looks": 61,
}


def test_an_account_of_enough_is_taken() -> None:
    demand_enough(ENOUGH, 3, 3)


@pytest.mark.parametrize(
    "less",
    [
        {"sends": {"SEND_OK": 1100}},
        {"sends": {"unknown": 5000}},
        {"acknowledged_by_client": {"own": 900, "js": 200, "cpp": 3}},
        {"offset_looks": 60},
    ],
)
def test_an_account_of_too_little_is_an_error(less: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        demand_enough({**ENOUGH, **less}, 3, 3)


def test_an_account_without_a_switch_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no switch"):
        demand_enough(ENOUGH, 0, 0)
