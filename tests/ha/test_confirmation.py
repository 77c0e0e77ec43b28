from __future__ import annotations

import attrs
import pytest

from trioha.ha.confirmation import Answer, Finding, MemberWord, Returning, judge

NODE = Returning(
    broker_name="broker-a",
    home_id=0,
    epoch=3,
    log_epoch=3,
    end=1000,
    may_have_lost=False,
    sync=True,
)
LOST = attrs.evolve(NODE, may_have_lost=True)
LOST_ASYNC = attrs.evolve(LOST, sync=False)
BEHIND = MemberWord(3, 3, 900)
LEVEL = MemberWord(3, 3, 1000)
AHEAD = MemberWord(3, 3, 1200)
ADDRESSES = {1: "b:10911", 2: "c:10911"}


def asked(
    node: Returning,
    *words: MemberWord | None,
    remembered: bool = False,
    moment_over: bool = False,
    patience_over: bool = False,
) -> Finding:
    return judge(
        node,
        {number: word for number, word in enumerate(words, 1)},
        ADDRESSES,
        remembered=remembered,
        moment_over=moment_over or patience_over,
        patience_over=patience_over,
    )


@pytest.mark.parametrize("words", [(), (BEHIND,), (LEVEL, BEHIND)])
def test_a_set_that_was_stopped_and_started_comes_back_by_its_members_word(
    words: tuple[MemberWord, ...],
) -> None:
    assert asked(NODE, *words).answer is Answer.CONFIRMED
    assert asked(LOST, *words).answer is Answer.CONFIRMED


def test_one_who_knows_a_newer_epoch_is_enough_whoever_else_is_silent() -> None:
    found = asked(LOST, None, MemberWord(4, 3, 10), remembered=True, patience_over=True)
    assert (found.answer, found.known_epoch) == (Answer.NEWER, 4)
    assert "2 (c:10911)" in found.words


def test_a_name_servers_memory_stands_in_for_members_while_nothing_can_be_lost() -> None:
    assert asked(NODE, None, remembered=True).answer is Answer.CONFIRMED
    assert asked(LOST, None, remembered=True).answer is Answer.WAIT


def test_a_silent_member_is_named_and_the_way_out_told() -> None:
    found = asked(NODE, BEHIND, None, patience_over=True)
    assert found.answer is Answer.WAIT
    assert "2 (c:10911), silent so far" in found.words
    assert "trioha failover broker-a --to 0 --force" in found.words


def test_after_power_loss_whoever_holds_more_is_the_better_master() -> None:
    found = asked(LOST, BEHIND, AHEAD)
    assert (found.answer, found.member) == (Answer.AHEAD, 2)
    assert "200 bytes of epoch 3 that this node lost" in found.words
    assert "trioha failover broker-a --to 2" in found.words


def test_a_log_that_lost_its_whole_term_is_behind_one_that_holds_a_byte_of_it() -> None:
    found = asked(attrs.evolve(LOST, log_epoch=2, end=1500), MemberWord(3, 3, 1200))
    assert found.answer is Answer.AHEAD
    assert "log of epoch 3, and this node's ends in epoch 2" in found.words


def test_a_member_ahead_after_an_orderly_stop_is_no_reason_to_stay_away() -> None:
    """It cannot be: a clean master holds all it ever sent. What it has is from elsewhere."""
    assert asked(NODE, AHEAD).answer is Answer.CONFIRMED


def test_an_asynchronous_master_goes_on_in_a_new_term_when_nobody_speaks() -> None:
    assert asked(LOST_ASYNC, None, remembered=True).answer is Answer.WAIT
    assert asked(LOST_ASYNC, None, remembered=True, patience_over=True).answer is Answer.ANEW
    assert asked(LOST_ASYNC, None, patience_over=True).answer is Answer.WAIT


def test_a_synchronous_master_waits_for_who_may_hold_the_only_copy() -> None:
    found = asked(LOST, None, remembered=True, patience_over=True)
    assert found.answer is Answer.WAIT
    assert "may be acknowledged and held by 1 (b:10911)" in found.words


FIRST = attrs.evolve(NODE, epoch=1, log_epoch=1)


def test_a_set_that_was_never_failed_over_comes_back_after_a_moment_without_a_word() -> None:
    assert asked(FIRST, None).answer is Answer.WAIT
    assert asked(FIRST, None, moment_over=True).answer is Answer.CONFIRMED
    assert asked(FIRST, None, remembered=True).answer is Answer.CONFIRMED
    assert asked(NODE, None, moment_over=True).answer is Answer.WAIT
    lost = attrs.evolve(FIRST, may_have_lost=True)
    assert asked(lost, None, moment_over=True).answer is Answer.WAIT


def test_the_window_of_the_first_failover_is_closed_by_whoever_answers_first() -> None:
    assert asked(FIRST, MemberWord(2, 1, 900), moment_over=True).answer is Answer.NEWER
