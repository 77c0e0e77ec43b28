from __future__ import annotations

import pytest

from trioha.wire.epoch_numbers import EPOCH_MAX, Word, disbelief


@pytest.mark.parametrize("word", Word)
def test_a_number_is_believed_up_to_the_bound_of_who_says_it(word: Word) -> None:
    for recorded in (0, 1, 5000):
        assert disbelief(recorded + word, recorded, word) == ""
        assert "no set comes so far" in disbelief(recorded + word + 1, recorded, word)


@pytest.mark.parametrize("epoch", [-1, EPOCH_MAX + 1, 2**63])
def test_no_number_beyond_the_range_is_believed_from_anybody(epoch: int) -> None:
    assert "not within 1 to" in disbelief(epoch, EPOCH_MAX, Word.ORDERED)


def test_a_failover_reaches_a_number_that_is_new_to_every_member_that_believed_a_lie() -> None:
    lie = 7 + Word.ASKED
    assert disbelief(lie, 7, Word.ASKED) == ""
    # A member that was told of nothing is at 6, and hears of the repairing term from the operator.
    assert disbelief(lie + 10, 6, Word.ORDERED) == ""
