from __future__ import annotations

from itertools import combinations

import pytest

from trioha.ha.quorum import EPOCH_ROOM, missing_promises, next_epoch


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_enough_promises_meet_every_two_members_and_in_larger_sets_each_other(size: int) -> None:
    members = range(size)
    enough = [
        set(promised)
        for count in range(size + 1)
        for promised in combinations(members, count)
        if not missing_promises(members, promised)
    ]
    for promised in enough:
        for pair in combinations(members, 2):
            assert promised & set(pair), f"{pair} could acknowledge a message behind {promised}"
    if size > 2:
        for one, other in combinations(enough, 2):
            assert one & other


def test_absent_members_are_named() -> None:
    assert missing_promises([0, 1, 2], [1]) == [0, 2]
    assert missing_promises([0, 1, 2], [1, 2]) == []


def test_beside_members_that_were_written_off_nobody_may_be_missing() -> None:
    assert missing_promises([0, 1, 2, 3], [1], [0, 3]) == [2]
    assert missing_promises([0, 1, 2, 3], [1, 2], [0, 3]) == []
    assert missing_promises([0, 1, 2, 3], [1, 2, 3], []) == []


def test_a_term_with_enough_promises_outnumbers_those_begun_by_force() -> None:
    heard_by_all = next_epoch(3, 1, [0, 2], silent=0)
    by_quorum = next_epoch(3, 1, [0, 2], silent=1)
    by_force = next_epoch(3, 1, [0, 2], silent=2)
    assert (heard_by_all, by_force, by_quorum) == (4, 4, 3 + EPOCH_ROOM)


@pytest.mark.parametrize("ids", [(0, 1), (0, 2), (5, 7)])
def test_two_nodes_of_a_pair_never_give_out_one_number_alone(ids: tuple[int, int]) -> None:
    first, second = ids
    mine = {next_epoch(newest, first, [second], silent=1) for newest in range(50)}
    theirs = {next_epoch(newest, second, [first], silent=1) for newest in range(50)}
    assert not mine & theirs
    assert all(next_epoch(newest, first, [second], silent=1) > newest for newest in range(50))
