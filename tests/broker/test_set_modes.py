"""Modes in which a node of a set handles each request, in every role."""

from __future__ import annotations

from collections import Counter

from trioha.broker.set_modes import ACCOUNTS, COPIED, DEMOTED, PAUSED, SERVING, START_OFFSETS, TABLE
from trioha.remoting.mode import Mode
from trioha.wire.codes import SENDS, RequestCode


def test_no_code_has_two_rows() -> None:
    counts = Counter(code for codes in TABLE.values() for code in codes)
    assert set(counts.values()) == {1}
    assert SERVING.keys() == PAUSED.keys() == DEMOTED.keys() == counts.keys()


def test_every_change_that_the_new_master_must_have_is_parked() -> None:
    """Each of these was served once during a switch, and lost with the hand-over.

    Deletions by CLEAN_UNUSED_TOPIC came back, and so did a deleted user.
    """
    parked = {code for code, mode in PAUSED.items() if mode is Mode.PARK}
    assert parked >= {*SENDS, *ACCOUNTS, RequestCode.CLEAN_UNUSED_TOPIC}
    assert not parked & {*COPIED, *START_OFFSETS}


def test_a_demoted_node_sends_changes_of_accounts_to_the_master() -> None:
    """A slave's accounts are a copy: the change that it made itself would be overwritten."""
    assert {DEMOTED[code] for code in ACCOUNTS} == {Mode.FORWARD}


def test_a_role_that_parks_or_forwards_serves_nothing_that_a_master_does_not() -> None:
    for code, mode in SERVING.items():
        assert mode in (Mode.SERVE, Mode.CONFIRM)
        if mode is Mode.CONFIRM:
            assert PAUSED[code] is Mode.CONFIRM
            assert DEMOTED[code] in (Mode.CONFIRM, Mode.FORWARD)
