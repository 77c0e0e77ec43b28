from __future__ import annotations

import attrs

from trioha.ha.candidacy import Candidacy
from trioha.ha.epochs import EpochHistory
from trioha.ha.events import Term
from trioha.ha.hello import HelloAnswer, LogExtent
from trioha.ha.mastership import Mastership, Standing

NONCES = (b"mine....", b"second..")


def candidacy() -> tuple[Candidacy, Mastership]:
    """A node of a set of four that was master of epoch 1, died, and is back."""
    disk: list[bytes | None] = [None]
    for _ in range(2):
        mastership = Mastership(0, disk.append, disk[-1])
        mastership.start(configured_master=True, log_end=0, nonce=b"first...", sync=True, wall_ms=0)
        mastership.meet_members({number: f"{number}:1" for number in (1, 2, 3)})
    nonces = iter(NONCES)
    return Candidacy(mastership, lambda: next(nonces)), mastership


def answer(home_id: int, promised: Term) -> HelloAnswer:
    return HelloAnswer(
        broker_name="broker-a",
        home_id=home_id,
        address=f"{home_id}:1",
        log=LogExtent(EpochHistory(()), 0, 0),
        known_epoch=1,
        standing=Standing.SLAVE,
        promised_epoch=promised.epoch,
        promised_nonce=promised.nonce,
    )


def test_only_promises_of_this_term_count() -> None:
    node, _ = candidacy()
    term = node.wish(2)
    assert term is not None
    twin, newer = Term(2, b"theirs.."), Term(3, b"newer...")
    ours = {number: answer(number, term) for number in (1, 2)}
    assert node.has_promises(term, {**ours, 3: None})
    for other in (twin, newer):
        assert not node.has_promises(term, {**ours, 2: answer(2, other), 3: None})


def test_an_attempt_is_repeated_as_the_same_term_until_a_newer_one_is_told_of() -> None:
    node, mastership = candidacy()
    first = node.wish(2)
    assert first == Term(2, NONCES[0])
    assert mastership.promise_given == attrs.astuple(first)
    assert node.wish(2) == first
    assert node.returning("broker-a", 0).promised == (0, b"")
    assert node.wish(4) == Term(4, NONCES[1])


def test_a_term_that_was_promised_to_another_node_meanwhile_is_not_asked_for() -> None:
    node, mastership = candidacy()
    assert node.wish(2) is not None
    mastership.promise(5, b"theirs..")
    assert node.wish(2) is None
    assert node.returning("broker-a", 0).promised == (5, b"theirs..")
