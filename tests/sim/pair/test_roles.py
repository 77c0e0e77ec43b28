"""Rules of the role machine that protect acknowledged messages, each as a script of a whole set."""

from __future__ import annotations

from collections.abc import Callable

from sim.pair.test_promotions import acknowledged
from sim.scripts import Set

from trioha.errors import CommandError
from trioha.ha.promotion import Peer, Promotion
from trioha.ha.role_states import State
from trioha.sim.pair.messages import PutAnswer

NONCE = b"promised"


def refusal(step: Callable[[], object]) -> str:
    """Return why a node refuses a step; "" if it does it."""
    try:
        step()
    except CommandError as error:
        return error.remark
    return ""


def promotion(epoch: int, *, promised: tuple[int, ...], written_off: tuple[int, ...]) -> Promotion:
    return Promotion(
        epoch=epoch,
        nonce=NONCE,
        sync=True,
        log_offset=0,
        operator="operator-0",
        promised=promised,
        written_off=written_off,
    )


def test_a_fenced_master_appends_nothing_of_what_it_parked() -> None:
    set_ = Set(2)
    acknowledged(set_, "a")
    a = set_.node("a")
    a.roles.pause()
    answers, end = set_.put("a", 3), a.log_end
    a.roles.hear(9, NONCE, "a name server")
    assert (a.roles.state, a.log_end, answers) == (State.FENCED, end, [])
    set_.wait(11_000)
    assert (a.log_end, answers) == (end, [PutAnswer.REFUSED] * 3)


def test_a_master_whose_slave_promised_another_node_a_term_serves_in_it_no_more() -> None:
    set_ = Set(3)
    acknowledged(set_, "a")
    set_.node("b").roles.promise(2, NONCE)
    set_.wait(6000)
    assert set_.masters == ["a"]
    assert set_.node("a").roles.mastership.epoch > 2
    acknowledged(set_, "a")
    set_.check_converged()


def test_a_node_follows_nothing_older_than_what_it_promised() -> None:
    set_ = Set(3)
    c = set_.node("c").roles
    c.promise(3, NONCE)
    b = Peer(home_id=1, address="b")
    assert "is not to be followed" in refusal(lambda: c.follow(b, 2, b"anothers"))
    assert c.follows != "b"
    assert c.mastership.promised == (3, NONCE)


def test_a_term_of_another_node_was_not_begun_here() -> None:
    set_ = Set(3)
    set_.fail_over(to=1)
    set_.wait()
    nonce = set_.node("b").roles.mastership.nonce
    assert {host: set_.node(host).roles.has_begun(nonce) for host in "abc"} == {
        "a": False,
        "b": True,
        "c": False,
    }


def test_only_a_hand_over_is_taken_back() -> None:
    set_ = Set(2)
    roles = set_.node("a").roles
    roles.mastership.doubt("its slave promised another node a term")
    roles.doubted("its slave promised another node a term")
    roles.mastership.fence("b holds 70 bytes that this node lost")
    roles.fenced("b holds 70 bytes that this node lost")
    assert not roles.take_back()
    assert roles.state is State.FENCED


def test_a_target_that_says_it_began_is_not_followed_behind_a_newer_promise() -> None:
    set_ = Set(3)
    acknowledged(set_, "a")
    roles = set_.node("a").roles
    roles.pause()
    roles.hand_over(Peer(home_id=1, address="b"), 2, NONCE.hex())
    roles.promise(12, b"anothers")
    roles.target_said(used=True)
    assert (roles.state, roles.handed_over, roles.follows) == (State.FENCED, None, "")


def test_half_a_record_is_cut_before_a_term_begins() -> None:
    set_ = Set(2)
    acknowledged(set_, "a")
    set_.cut_off("b")
    b = set_.node("b")
    end = b.log_end
    b.log.append_log(end, memoryview(bytes(b.log.read_log(0, 20))))
    set_.promote("b", 2, NONCE)
    assert (set_.node("b").log_end, set_.node("b").roles.state) == (end, State.MASTER)


def test_force_gives_up_no_member_that_answers() -> None:
    """Seed 101892 of generator 2: d answers and promised nothing; a is silent."""
    set_ = Set(4)
    acknowledged(set_, "a")
    set_.kill("a")
    roles = set_.node("b").roles
    asked = promotion(2, promised=(2,), written_off=(0,))
    assert "3 (d) have not promised" in refusal(lambda: roles.promote(asked, lambda reason: None))
    assert set_.masters == []


def test_a_returning_master_waits_while_an_operator_fails_the_broker_over() -> None:
    """Seed 103732 of generator 2: b confirmed it, while a forced switch was in progress there."""
    set_ = Set(3)
    acknowledged(set_, "a")
    set_.kill("a")
    set_.wait(200)
    desk = set_.node("b").failover.desk
    desk.grant(NONCE.hex(), "operator-0", "", 10_000, set_.world.scheduler.now_ms)
    set_.start("a")
    set_.wait(6000)
    assert set_.masters == []
    set_.wait(12_000)
    assert set_.masters == ["a"]
    acknowledged(set_, "a")
    set_.check_converged()


def test_a_node_in_doubt_begins_no_term_that_its_members_did_not_promise() -> None:
    set_ = Set(3)
    acknowledged(set_, "a")
    set_.kill("a")
    set_.kill("c")
    set_.wait(200)
    set_.start("a")
    # b answers, and has not been asked for a promise yet.
    hello = set_.node("a").hello()
    roles = set_.node("a").roles
    answers = {1: set_.node("b").greeting.greet(hello), 2: None}
    term = roles.members_said(answers, remembered=False, moment_over=True, patience_over=True)
    assert term is not None
    assert not roles.has_promises(term, answers)
    assert roles.state is State.UNCONFIRMED
