from __future__ import annotations

import attrs
import pytest

from trioha.ha.confirmation import (
    Judgement,
    MemberWord,
    Returning,
    Ruling,
    TermId,
    judge,
    objection_to,
)
from trioha.ha.epochs import EpochHistory, EpochRecord
from trioha.ha.mastership import Standing
from trioha.ha.quorum import EPOCH_ROOM


def term(epoch: int, start_offset: int = 0, *, nonce: int | None = None) -> EpochRecord:
    number = epoch if nonce is None else nonce
    return EpochRecord(epoch, start_offset, 0, number.to_bytes(8, "big"), True)


def known(record: EpochRecord) -> TermId:
    return record.epoch, record.nonce


FIRST_TERM, SECOND_TERM, THIRD_TERM = term(1), term(2, 300), term(3, 600)
OTHER_THIRD = term(3, 600, nonce=33)
FOURTH_TERM = term(4, 1000)
NODE = Returning(
    broker_name="broker-a",
    home_id=0,
    history=EpochHistory((FIRST_TERM, SECOND_TERM, THIRD_TERM)),
    end=1000,
    promised=(0, b""),
    may_have_lost=False,
    sync=True,
)
ASYNC = attrs.evolve(NODE, sync=False)
LOST = attrs.evolve(NODE, may_have_lost=True)
LOST_ASYNC = attrs.evolve(LOST, sync=False)
FIRST = attrs.evolve(NODE, history=EpochHistory((FIRST_TERM,)))


def word(
    log_term: EpochRecord,
    end: int,
    *,
    knows: EpochRecord | None = None,
    promised: TermId = (0, b""),
    standing: Standing = Standing.SLAVE,
    is_whole: bool = True,
) -> MemberWord:
    return MemberWord(known(knows or log_term), promised, log_term, end, standing, is_whole)


BEHIND = word(THIRD_TERM, 900)
LEVEL = word(THIRD_TERM, 1000)
AHEAD = word(THIRD_TERM, 1200)
ADDRESSES = {1: "b:10911", 2: "c:10911", 3: "d:10911"}


def asked(
    node: Returning,
    *words: MemberWord | None,
    remembered: bool = False,
    moment_over: bool = False,
    patience_over: bool = False,
) -> Judgement:
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
    assert asked(NODE, *words).ruling is Ruling.CONFIRMED
    assert asked(LOST, *words).ruling is Ruling.CONFIRMED


def test_one_member_that_knows_a_newer_epoch_is_enough_whoever_else_is_silent() -> None:
    newer = word(THIRD_TERM, 10, knows=FOURTH_TERM)
    found = asked(LOST, None, newer, remembered=True, patience_over=True)
    assert (found.ruling, found.known) == (Ruling.NEWER, known(FOURTH_TERM))
    assert "2 (c:10911)" in found.words


def test_the_same_number_with_another_nonce_is_another_term() -> None:
    serves = word(OTHER_THIRD, 900, standing=Standing.MASTER)
    found = asked(NODE, serves, remembered=True)
    assert (found.ruling, found.known) == (Ruling.NEWER, known(OTHER_THIRD))
    # Neither of the two serves: an operator decides, whatever a third node says.
    found = asked(NODE, word(OTHER_THIRD, 900), LEVEL, remembered=True, patience_over=True)
    assert found.ruling is Ruling.WAIT
    assert "1 (b:10911) knows another epoch 3" in found.words
    assert "trioha failover broker-a --to 1" in found.words


def test_a_longer_log_of_an_older_term_that_never_counted_is_no_objection() -> None:
    """In a pair a node began a term alone, and nothing that it wrote there was acknowledged."""
    assert asked(NODE, word(term(2, 300, nonce=22), 2000, knows=THIRD_TERM)).ruling is (
        Ruling.CONFIRMED
    )


def test_a_name_servers_memory_stands_in_for_the_slave_of_a_pair_alone() -> None:
    assert asked(NODE, None, remembered=True).ruling is Ruling.CONFIRMED
    assert asked(LOST, None, remembered=True).ruling is Ruling.WAIT
    # In a set of three the promoted node may have stopped before it registered.
    assert asked(NODE, None, None, remembered=True, patience_over=True).ruling is Ruling.WAIT
    assert asked(NODE, LEVEL, None, remembered=True).ruling is Ruling.WAIT


def test_with_one_silent_member_of_three_a_new_term_begins_never_the_old_one() -> None:
    assert asked(NODE, LEVEL, None).ruling is Ruling.WAIT
    found = asked(NODE, LEVEL, None, remembered=True, moment_over=True)
    assert (found.ruling, found.epoch) == (Ruling.ANEW, 3 + EPOCH_ROOM)
    # Two silent members may have acknowledged messages to each other.
    assert asked(NODE, LEVEL, None, None, remembered=True, patience_over=True).ruling is Ruling.WAIT


def test_a_new_term_is_beyond_every_promise_that_is_told() -> None:
    promised = word(THIRD_TERM, 1000, promised=(7, b"another."))
    assert asked(NODE, promised, LEVEL).epoch == 8
    assert asked(NODE, promised, LEVEL).ruling is Ruling.ANEW
    assert asked(NODE, promised, None, moment_over=True).epoch == 7 + EPOCH_ROOM
    ours = attrs.evolve(NODE, promised=(9, b"another."))
    assert (asked(ours, LEVEL, LEVEL).ruling, asked(ours, LEVEL, LEVEL).epoch) == (Ruling.ANEW, 10)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_promise_to_a_silent_candidate_ends_the_old_term_of_a_pair_too(is_ours: bool) -> None:
    """Its slave has promised, so nothing that this node wrote would ever be acknowledged."""
    if is_ours:
        node = attrs.evolve(FIRST, promised=(2, b"another."))
        found = asked(node, None, remembered=True, patience_over=True)
        assert found.ruling is Ruling.WAIT
    else:
        found = asked(FIRST, word(FIRST_TERM, 1000, promised=(2, b"another.")))
        assert (found.ruling, found.epoch) == (Ruling.ANEW, 3)


def test_a_returning_node_waits_while_an_operator_fails_the_broker_over() -> None:
    """The operator saw it silent, gave it up, and is about to promote another node."""
    ticketed = attrs.evolve(LEVEL, ticket_holder="anna@ops-1")
    found = asked(NODE, ticketed, LEVEL, remembered=True, patience_over=True)
    assert found.ruling is Ruling.WAIT
    assert "anna@ops-1 is failing this broker over, says 1 (b:10911)" in found.words


def test_a_member_that_lost_power_is_no_evidence_beside_a_silent_one() -> None:
    lost = attrs.evolve(LEVEL, is_whole=False)
    assert asked(NODE, lost, None, patience_over=True).ruling is Ruling.WAIT
    assert asked(LOST, LEVEL, None, patience_over=True).ruling is Ruling.WAIT
    assert asked(NODE, lost, LEVEL).ruling is Ruling.CONFIRMED


def test_silent_members_are_named_and_the_way_out_told() -> None:
    found = asked(NODE, LEVEL, None, None, patience_over=True)
    assert found.ruling is Ruling.WAIT
    assert "2 (c:10911), 3 (d:10911), silent so far" in found.words
    assert "trioha failover broker-a --to 0 --force" in found.words


def test_after_power_loss_the_member_that_holds_more_is_the_better_master() -> None:
    found = asked(LOST, BEHIND, AHEAD)
    assert (found.ruling, found.member) == (Ruling.AHEAD, 2)
    assert "200 bytes of epoch 3 that this node lost" in found.words
    assert "trioha failover broker-a --to 2" in found.words


def test_a_log_that_lost_its_whole_term_is_behind_one_that_holds_a_byte_of_it() -> None:
    found = asked(attrs.evolve(LOST, end=500), word(THIRD_TERM, 1200))
    assert found.ruling is Ruling.AHEAD
    assert "log of epoch 3, and this node's ends in epoch 2" in found.words


def test_a_member_ahead_stands_against_a_node_that_was_stopped_in_order_as_well() -> None:
    """A master holds all that it ever sent, unless files of its log are gone."""
    assert asked(NODE, AHEAD).ruling is Ruling.AHEAD


def test_an_asynchronous_master_goes_on_in_a_new_term_when_nobody_speaks() -> None:
    assert asked(LOST_ASYNC, None, remembered=True).ruling is Ruling.WAIT
    assert asked(LOST_ASYNC, None, remembered=True, patience_over=True).ruling is Ruling.ANEW
    assert asked(LOST_ASYNC, None, patience_over=True).ruling is Ruling.WAIT


def test_an_asynchronous_master_of_a_larger_set_waits_for_all_members_but_one() -> None:
    """Such a master acknowledges alone, but a silent node may have been promoted in its place."""
    assert asked(ASYNC, None, remembered=True).ruling is Ruling.CONFIRMED
    assert asked(ASYNC, None, None, remembered=True, patience_over=True).ruling is Ruling.WAIT
    assert asked(ASYNC, LEVEL, None, remembered=True, moment_over=True).ruling is Ruling.ANEW


def test_a_synchronous_master_waits_for_the_member_that_may_hold_the_only_copy() -> None:
    found = asked(LOST, None, remembered=True, patience_over=True)
    assert found.ruling is Ruling.WAIT
    assert "may be acknowledged and held by 1 (b:10911)" in found.words


def test_a_pair_that_was_never_failed_over_comes_back_after_a_moment_without_a_word() -> None:
    assert asked(FIRST, None).ruling is Ruling.WAIT
    assert asked(FIRST, None, moment_over=True).ruling is Ruling.CONFIRMED
    assert asked(FIRST, None, remembered=True).ruling is Ruling.CONFIRMED
    assert asked(NODE, None, moment_over=True).ruling is Ruling.WAIT
    lost = attrs.evolve(FIRST, may_have_lost=True)
    assert asked(lost, None, moment_over=True).ruling is Ruling.WAIT


def test_a_larger_set_that_was_never_failed_over_does_not() -> None:
    """Issue: the name server was wiped, and the promoted node came back later."""
    assert asked(FIRST, None, None, patience_over=True).ruling is Ruling.WAIT
    behind = word(FIRST_TERM, 900)
    assert asked(FIRST, behind, None, moment_over=True).ruling is Ruling.ANEW


def test_a_promotion_that_was_begun_is_heard_of_by_the_member_that_promised_it() -> None:
    """The promoted node stopped; the member that promised its term has not seen it begin."""
    promised = word(FIRST_TERM, 1000, promised=(2, b"promoted"))
    found = asked(FIRST, None, promised, remembered=True, moment_over=True)
    assert (found.ruling, found.epoch) == (Ruling.ANEW, 2 + EPOCH_ROOM)


def test_a_member_promises_only_to_a_candidate_that_holds_its_log() -> None:
    def objection(
        records: tuple[EpochRecord, ...],
        end: int,
        *,
        standing: Standing = Standing.SLAVE,
        ticket_holder: str = "",
    ) -> str:
        return objection_to(
            NODE,
            history=EpochHistory(records),
            end=end,
            standing=standing,
            ticket_holder=ticket_holder,
        )

    ours = NODE.history.records
    assert objection(ours, 1000) == ""
    assert objection((), 700) == ""
    assert "epoch 3 at 1001" in objection(ours, 1001)
    assert "epoch 4 at 1000" in objection((*ours, FOURTH_TERM), 1000)
    assert "does not hold" in objection((*ours[:2], OTHER_THIRD), 700)
    assert objection((ours[0], term(2, 300, nonce=22)), 2000) == ""
    assert objection(ours, 900, standing=Standing.MASTER) == "this node is master"
    assert "anna@ops-1" in objection(ours, 900, ticket_holder="anna@ops-1")
