"""The rule that says which member answers what."""

from __future__ import annotations

from itertools import product

import pytest

from trioha.dledger.answering import WAYS, Kind, Place, Way, place_of


def test_only_a_serving_leader_answers_about_the_present_and_only_with_leave() -> None:
    answering = {place: way for place, way in WAYS[Kind.PRESENT].items() if way in _ANSWERS}
    assert answering == {Place.SERVING: Way.READ}


def test_only_a_serving_leader_takes_changes() -> None:
    taking = {place for place, way in WAYS[Kind.CHANGE].items() if way in _ANSWERS}
    assert taking == {Place.SERVING}


def test_every_kind_has_its_way_at_every_place() -> None:
    for kind, place in product(Kind, Place):
        assert isinstance(WAYS[kind][place], Way)


_ANSWERS = {Way.OWN, Way.READ}


@pytest.mark.parametrize(
    ("is_serving", "is_paused", "leader_id", "is_parking", "place"),
    [
        (True, False, "", False, Place.SERVING),
        (True, False, "", True, Place.SERVING),
        (True, True, "", True, Place.PARKING),
        (True, True, "", False, Place.LEADERLESS),
        (False, False, "n1", False, Place.FOLLOWING),
        (False, False, "n1", True, Place.FOLLOWING),
        (False, False, "", True, Place.PARKING),
        (False, False, "", False, Place.LEADERLESS),
    ],
)
def test_the_place_of_a_member(
    is_serving: bool, is_paused: bool, leader_id: str, is_parking: bool, place: Place
) -> None:
    assert place is place_of(
        is_serving=is_serving, is_paused=is_paused, leader_id=leader_id, is_parking=is_parking
    )
