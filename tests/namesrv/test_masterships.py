from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from trioha.namesrv.masterships import Claim, Masterships

A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def claim(address: str, epoch: int = 0, nonce: str = "") -> Claim:
    return Claim(address, address.replace("10911", "10912"), epoch, nonce)


def test_the_newest_epoch_stands_whoever_speaks_last() -> None:
    """Fault D5: two registrations in the other order."""
    masters = Masterships()
    assert masters.judge("a", claim(A, 1, "x")) is None
    assert masters.judge("a", claim(B, 2, "y")) is None
    assert masters.judge("a", claim(A, 1, "x")) == claim(B, 2, "y")
    assert masters.judge("a", claim(A, 3, "z")) is None
    assert masters.newest("a") == claim(A, 3, "z")


def test_a_master_may_move_within_its_term() -> None:
    masters = Masterships()
    masters.judge("a", claim(A, 4, "x"))
    assert masters.judge("a", claim(B, 4, "x")) is None
    assert masters.newest("a") == claim(B, 4, "x")


def test_of_two_terms_under_one_number_the_first_stands() -> None:
    masters = Masterships()
    masters.judge("a", claim(A, 4, "x"))
    assert masters.judge("a", claim(B, 4, "y")) == claim(A, 4, "x")


def test_a_set_that_was_never_failed_over_is_as_ever() -> None:
    masters = Masterships()
    for one in (claim(A), claim(B, 1, "x"), claim(A, 1, "y"), claim(B)):
        assert masters.judge("a", one) is None


def test_a_java_broker_cannot_take_a_set_that_was_failed_over() -> None:
    masters = Masterships()
    masters.judge("a", claim(A, 2, "x"))
    assert masters.judge("a", claim(B)) == claim(A, 2, "x")


def test_sets_know_nothing_of_each_other() -> None:
    masters = Masterships()
    masters.judge("a", claim(A, 9, "x"))
    assert masters.judge("b", claim(B, 1, "y")) is None


def test_the_name_claimed_longest_ago_makes_room() -> None:
    masters = Masterships(names_max=2)
    for name in ("a", "b", "a", "c"):
        masters.judge(name, claim(A, 5, "x"))
    assert masters.newest("b") is None
    assert masters.newest("a") is not None


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 4), st.sampled_from("xy"))))
def test_an_accepted_epoch_never_falls_once_there_was_a_failover(
    claims: list[tuple[str, int, str]],
) -> None:
    masters, newest = Masterships(), 0
    for address, epoch, nonce in claims:
        if masters.judge("a", claim(address, epoch, nonce)) is None:
            assert epoch >= newest or newest <= 1
            newest = max(newest, epoch)


def test_a_claim_in_doubt_is_judged_and_not_remembered() -> None:
    """Else a master that comes back twice would be confirmed by its own question."""
    masters = Masterships()
    doubtful = attrs.evolve(claim("a:10911", 2, "aa"), in_doubt=True)
    assert masters.judge("broker-a", doubtful, 100) is None
    assert masters.held_ms("broker-a", doubtful, 5000) is None
    sure = attrs.evolve(doubtful, in_doubt=False)
    assert masters.judge("broker-a", sure, 6000) is None
    assert masters.judge("broker-a", doubtful, 7000) is None
    assert masters.judge("broker-a", sure, 8000) is None
    assert masters.held_ms("broker-a", doubtful, 9000) == 3000
    newer = claim("b:10911", 3, "bb")
    assert masters.judge("broker-a", newer, 9500) is None
    assert masters.judge("broker-a", doubtful, 9600) == newer
    assert masters.held_ms("broker-a", doubtful, 9700) is None
    assert masters.held_ms("broker-a", newer, 9700) == 200
