"""Members that stop inside a promotion, step by step as real processes lived through it."""

from __future__ import annotations

import pytest
from sim.scripts import Set

from trioha.failover.outcome import Result
from trioha.ha.quorum import EPOCH_ROOM
from trioha.sim.pair.messages import PutAnswer


def acknowledged(set_: Set, host: str, count: int = 5) -> None:
    """Put messages at a node, which answers SEND_OK to all of them."""
    answers = set_.put(host, count)
    set_.wait()
    assert answers == [PutAnswer.OK] * count, answers


def promoted_and_stopped(*, switches: int = 0) -> Set:
    """Stop b right after its store holds the new term; the command does not know how it went."""
    set_ = Set(3)
    acknowledged(set_, "a")
    for target in [1, 0] * switches:
        assert set_.fail_over(to=target).result is Result.DONE
        set_.wait()
    set_.kill("a")
    set_.wait(200)
    set_.world.crashes_at = ("b", "after save")
    outcome = set_.fail_over(to=1)
    assert outcome.result is Result.UNKNOWN, outcome.message
    return set_


@pytest.mark.parametrize("wiped", [False, True], ids=["remembered", "wiped"])
@pytest.mark.parametrize("switches", [0, 1])
def test_a_returning_master_begins_a_term_that_nobody_can_depose(
    switches: int, wiped: bool
) -> None:
    set_ = promoted_and_stopped(switches=switches)
    if wiped:
        set_.forget()
    set_.start("a")
    set_.wait(4000)
    assert set_.masters == ["a"]
    acknowledged(set_, "a", 20)
    set_.start("b")
    set_.wait(6000)
    assert set_.masters == ["a"]
    acknowledged(set_, "a")
    set_.wait()
    set_.check_converged()


def test_the_promoted_node_may_be_back_first_and_is_master() -> None:
    set_ = promoted_and_stopped()
    set_.start("b")
    set_.wait()
    set_.start("a")
    set_.wait(6000)
    assert set_.masters == ["b"]
    acknowledged(set_, "b")
    set_.check_converged()


@pytest.mark.parametrize("wiped", [False, True], ids=["remembered", "wiped"])
def test_while_a_promoted_node_stands_still_nobody_else_is_master_in_an_older_term(
    wiped: bool,
) -> None:
    set_ = Set(3)
    acknowledged(set_, "a")
    set_.kill("a")
    set_.wait(200)
    set_.world.on_step = lambda: set_.stop("b") if set_.masters == ["b"] else None
    outcome = set_.fail_over(to=1)
    assert outcome.result is Result.UNKNOWN, outcome.message
    set_.world.on_step = lambda: None
    if wiped:
        set_.forget()
    set_.start("a")
    set_.wait(4000)
    others = [host for host in set_.masters if host != "b"]
    if others:
        assert set_.node("a").roles.mastership.epoch > set_.node("b").roles.mastership.epoch
        acknowledged(set_, "a", 20)
    set_.node("b").go_on()
    set_.wait(6000)
    (master,) = set_.masters
    acknowledged(set_, master)
    set_.wait()
    set_.check_converged()


def test_no_epoch_is_given_out_twice_by_the_documented_next_step() -> None:
    set_ = promoted_and_stopped()
    outcome = set_.fail_over(to=2, force=True)
    assert outcome.result is Result.DONE, outcome.message
    assert outcome.plan.epoch > 1 + EPOCH_ROOM, "c has promised the term that b began"
    set_.start("a")
    set_.wait(6000)
    assert set_.masters == ["c"]
    acknowledged(set_, "c", 20)
    set_.world.namesrv.die()
    set_.start("b")
    set_.wait(8000)
    assert set_.masters == ["c"]
    set_.world.namesrv.start()
    set_.wait(6000)
    assert set_.masters == ["c"]
    acknowledged(set_, "c")
    set_.wait()
    set_.check_converged()


def test_a_node_that_was_promoted_by_force_alone_yields_to_the_quorum_that_did_not_know_of_it() -> (
    None
):
    """b began a term that c never promised; a and c go on, and b must not depose them."""
    set_ = Set(3)
    acknowledged(set_, "a")
    set_.kill("a")
    set_.cut_off("c")
    set_.wait(200)
    set_.world.crashes_at = ("b", "after save")
    outcome = set_.fail_over(to=1, force=True)
    assert outcome.result is Result.UNKNOWN, outcome.message
    set_.world.network.heal()
    set_.start("a")
    set_.wait(4000)
    assert set_.masters == ["a"]
    acknowledged(set_, "a", 20)
    set_.start("b")
    set_.wait(6000)
    assert set_.masters == ["a"]
    acknowledged(set_, "a")
    set_.wait()
    set_.check_converged()


def test_a_master_whose_slaves_promised_a_term_that_never_began_takes_the_next_one() -> None:
    """The operator cannot reach the master, which serves all the time; the target stops."""
    set_ = Set(3)
    acknowledged(set_, "a")
    set_.cut("a", "operator-0")

    def stop_before_it_begins() -> None:
        if set_.node("c").roles.mastership.promise_given[0]:
            set_.world.crashes_at = ("b", "before save")
            set_.world.on_step = lambda: None

    set_.world.on_step = stop_before_it_begins
    outcome = set_.fail_over(to=1)
    assert outcome.result is Result.UNKNOWN, outcome.message
    set_.world.network.heal()
    set_.start("b")
    set_.wait(40_000)
    assert set_.masters == ["a"]
    acknowledged(set_, "a")
    set_.wait()
    set_.check_converged()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_slave_that_promised_a_term_acknowledges_nothing_to_the_old_master(
    restarts: bool,
) -> None:
    """The old master serves on; only the operator hears of the promoted node."""
    set_ = Set(3)
    acknowledged(set_, "a")
    set_.cut("b", "a", "namesrv")
    set_.cut("operator-0", "a")

    def vanish() -> None:
        if set_.node("b").roles.master is not None:
            set_.cut("b", "c")
            set_.cut("operator-0", "c")

    set_.world.on_step = vanish
    outcome = set_.fail_over(to=1, force=True)
    assert outcome.result is Result.UNKNOWN, outcome.message
    if restarts:
        set_.kill("c")
        set_.start("c")
    set_.put("a", 20)
    set_.wait(40_000)
    assert set_.node("a").roles.mastership.epoch > set_.node("b").roles.mastership.epoch
    acknowledged(set_, "a", 20)
    set_.world.network.heal()
    set_.wait(6000)
    assert set_.masters == ["a"]
    set_.check_converged()


def test_a_slave_that_lost_power_is_no_evidence_that_nothing_is_lost() -> None:
    set_ = Set(3)
    set_.wait(20)
    set_.put("a", 10)
    set_.wait(80)
    set_.cut("a", "b")
    answers = set_.put("a", 10)
    set_.wait(60)
    assert answers[0] is PutAnswer.OK
    set_.lose_power("c")
    set_.kill("a")
    set_.start("c")
    outcome = set_.fail_over(to=1)
    assert outcome.result is Result.REFUSED
    assert "2 (c) lost power since it was last up to date" in outcome.message
    set_.world.network.heal()
    set_.start("a")
    set_.wait(6000)
    assert set_.masters == ["a"]
    set_.check_converged()


def test_two_nodes_of_a_pair_that_were_promoted_alone_have_two_numbers() -> None:
    set_ = Set(2)
    acknowledged(set_, "a")
    for killed, host, home_id in (("b", "a", 0), ("a", "b", 1)):
        set_.kill("a")
        set_.kill("b")
        set_.start(host)
        outcome = set_.fail_over(to=home_id, force=True)
        assert outcome.result is Result.DONE, (killed, outcome.message)
    set_.start("a")
    set_.wait(6000)
    assert set_.masters == ["b"]
    acknowledged(set_, "b")
    set_.check_converged()
