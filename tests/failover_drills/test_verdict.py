"""The judge notices what it is there for, and accepts what is allowed."""

from __future__ import annotations

import pytest
from failover_drills.probes import Commit, Told
from failover_drills.rounds import draw_round
from failover_drills.verdict import Ack, overlapping_terms, regressions

A, B = "10.0.0.1:1", "10.0.0.2:1"


def ack(began_s: float, ended_s: float, epoch: int, stored_at: str = "") -> Ack:
    return Ack(f"m-{began_s:g}", began_s, ended_s, epoch, stored_at)


def told(began_s: float, offset: int, *, epoch: int | None = None) -> Told:
    return Told(0, 0, offset, began_s, epoch)


def test_terms_one_after_the_other_do_not_overlap() -> None:
    acks = [ack(0, 1, 1, A), ack(1, 2, 1, A), ack(3, 4, 2, B), ack(5, 6, 3, A)]
    assert not list(overlapping_terms(acks))


def test_a_send_of_the_old_term_may_be_answered_late() -> None:
    """It was stored before the new term began: a follower had confirmed it."""
    assert not list(overlapping_terms([ack(0, 9, 1, A), ack(3, 4, 2, B)]))


@pytest.mark.parametrize("newer", [2, 3])
def test_a_send_of_an_older_term_after_an_ack_of_a_newer_one_is_found(newer: int) -> None:
    acks = [ack(0, 1, 1, A), ack(3, 4, newer, B), ack(5, 6, 1, A)]
    (found,) = overlapping_terms(acks)
    assert "m-5 of epoch 1" in found


def test_the_earliest_ack_of_every_newer_term_counts() -> None:
    acks = [ack(3, 4, 2, B), ack(8, 9, 3, A), ack(5, 6, 1, A)]
    assert len(list(overlapping_terms(acks))) == 1


def test_two_members_in_one_epoch_are_found() -> None:
    (found,) = overlapping_terms([ack(0, 1, 2, A), ack(3, 4, 2, B)])
    assert "epoch 2" in found


def test_a_forwarded_send_counts_for_the_member_that_stored_it() -> None:
    """The client was told no member, or the new master's address."""
    assert not list(overlapping_terms([ack(0, 1, 2, B), ack(2, 3, 2), ack(4, 5, 2, B)]))


def test_a_master_that_tells_less_than_was_acknowledged_is_found() -> None:
    commits = [Commit(0, 40, 1.0)]
    assert list(regressions(commits, [told(2.0, 10, epoch=2)]))
    assert not list(regressions(commits, [told(0.5, 10, epoch=2), told(2.0, 40, epoch=2)]))


def test_a_slave_may_be_behind_and_never_goes_back() -> None:
    commits = [Commit(0, 40, 1.0)]
    assert not list(regressions(commits, [told(2.0, 10), told(3.0, 40)]))
    assert list(regressions(commits, [told(2.0, 40), told(3.0, 10)]))


def test_a_commit_that_no_slave_confirmed_may_be_taken_back() -> None:
    commits = [Commit(0, 40, 1.0)]
    assert not list(regressions(commits, [told(2.0, 50, epoch=1), told(3.0, 40, epoch=2)]))


def test_a_round_is_drawn_by_its_seed_and_number_alone() -> None:
    assert draw_round(7, 3, cuts=True) == draw_round(7, 3, cuts=True)
    assert len({draw_round(7, number, cuts=True) for number in range(50)}) > 40
