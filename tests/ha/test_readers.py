"""Limit of a node's readers: what a slave holds, in sets of three and more."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from trioha.ha.mastership import Mastership
from trioha.ha.readers import ReadersLimit

OTHERS = {1: "10.0.0.2:10911", 2: "10.0.0.3:10911"}
SLAVE_NONCE = b"another."


def master(
    *, log_end: int = 100, sync: bool = True, others: dict[int, str] | None = None
) -> Mastership:
    """A node that began epoch 1 at `log_end`."""
    mastership = Mastership(0, lambda data: None)
    mastership.start(configured_master=True, log_end=log_end, nonce=b"1" * 8, sync=sync, wall_ms=0)
    mastership.meet_members(MappingProxyType(OTHERS if others is None else others))
    return mastership


def test_readers_see_what_a_slave_holds() -> None:
    limit = ReadersLimit(master())
    assert limit.applies
    assert limit.offset(0) == 100
    assert limit.offset(150) == 150
    assert limit.offset(0) == 150, "after a hand-over that was taken back"


@pytest.mark.parametrize(
    "mastership",
    [
        pytest.param(master(others={1: OTHERS[1]}), id="a pair goes on with one node"),
        pytest.param(master(sync=False), id="an ASYNC_MASTER promises nothing of slaves"),
    ],
)
def test_readers_see_everything_where_no_slave_is_waited_for(mastership: Mastership) -> None:
    limit = ReadersLimit(mastership)
    assert not limit.applies
    assert limit.offset(0) is None


def test_a_deposed_master_shows_no_more_until_it_has_adopted_another_history() -> None:
    mastership = master()
    limit = ReadersLimit(mastership)
    assert limit.offset(150) == 150
    mastership.hear(2, SLAVE_NONCE, "a node")
    assert limit.offset(0) == 150
    successor = Mastership(1, lambda data: None)
    successor.adopt(mastership.history)
    successor.begin_term(2, 160, nonce=SLAVE_NONCE, sync=True, wall_ms=0)
    mastership.adopt(successor.history)
    assert limit.offset(0) is None


def test_a_node_that_follows_a_term_of_its_own_nonce_shows_everything() -> None:
    """A forged ticket promoted both."""
    mastership, successor = master(), Mastership(1, lambda data: None)
    successor.adopt(mastership.history)
    successor.begin_term(2, 100, nonce=mastership.nonce, sync=True, wall_ms=0)
    mastership.adopt(successor.history)
    assert ReadersLimit(mastership).offset(0) is None


def test_what_a_node_wrote_alone_before_its_newest_term_stays_hidden() -> None:
    mastership = master()
    mastership.begin_term(2, 500, nonce=b"2" * 8, sync=True, wall_ms=0)
    assert ReadersLimit(mastership).offset(0) == 100


def test_what_slaves_acknowledged_in_an_own_term_before_still_counts() -> None:
    mastership = master()
    limit = ReadersLimit(mastership)
    assert limit.offset(400) == 400
    mastership.begin_term(2, 500, nonce=b"2" * 8, sync=True, wall_ms=0)
    assert limit.offset(0) == 400


def test_what_a_promoted_slave_had_taken_is_shown() -> None:
    mastership = Mastership(1, lambda data: None)
    mastership.adopt(master(log_end=0).history)
    mastership.meet_members({0: "10.0.0.1:10911", 2: OTHERS[2]})
    limit = ReadersLimit(mastership)
    assert limit.offset(0) is None
    mastership.begin_term(2, 700, nonce=b"2" * 8, sync=True, wall_ms=0)
    assert limit.offset(0) == 700
