"""The rule that says which member answers what."""

from __future__ import annotations

from itertools import product

import pytest

from trioha.dledger.answering import MODES, RequestKind, ServingState, serving_state_of
from trioha.remoting.mode import Mode


def test_only_a_serving_leader_answers_about_the_present_and_only_with_leave() -> None:
    answering = {place: way for place, way in MODES[RequestKind.PRESENT].items() if way in _ANSWERS}
    assert answering == {ServingState.SERVING: Mode.CONFIRM}


def test_only_a_serving_leader_takes_changes() -> None:
    taking = {place for place, way in MODES[RequestKind.CHANGE].items() if way in _ANSWERS}
    assert taking == {ServingState.SERVING}


def test_every_kind_has_its_way_at_every_place() -> None:
    for kind, place in product(RequestKind, ServingState):
        assert isinstance(MODES[kind][place], Mode)


_ANSWERS = {Mode.SERVE, Mode.CONFIRM}


@pytest.mark.parametrize(
    ("is_serving", "is_paused", "leader_id", "is_parking", "place"),
    [
        (True, False, "", False, ServingState.SERVING),
        (True, False, "", True, ServingState.SERVING),
        (True, True, "", True, ServingState.PARKING),
        (True, True, "", False, ServingState.LEADERLESS),
        (False, False, "n1", False, ServingState.FOLLOWING),
        (False, False, "n1", True, ServingState.FOLLOWING),
        (False, False, "", True, ServingState.PARKING),
        (False, False, "", False, ServingState.LEADERLESS),
    ],
)
def test_the_place_of_a_member(
    is_serving: bool, is_paused: bool, leader_id: str, is_parking: bool, place: ServingState
) -> None:
    assert place is serving_state_of(
        is_serving=is_serving, is_paused=is_paused, leader_id=leader_id, is_parking=is_parking
    )
