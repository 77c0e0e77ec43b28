from __future__ import annotations

from random import Random

import pytest

from trioha.sim.disk import Crashed, LogFile, SavedBytes


def no_crash(where: str) -> None:
    pass


def crash_at(wanted: str) -> LogFile:
    def crash(where: str) -> None:
        if where == wanted:
            raise Crashed(where)

    return LogFile(crash)


def test_power_takes_any_tail_that_was_not_flushed_and_nothing_else() -> None:
    kept = set()
    for seed in range(200):
        file = LogFile(no_crash)
        file.append(b"flushed.")
        file.flush()
        file.append(b"in the cache")
        lost = file.lose_power(Random(seed))
        assert bytes(file.data) == b"flushed.in the cache"[: 20 - lost]
        assert file.flushed_offset == len(file.data)
        kept.add(len(file.data))
    assert kept == set(range(8, 21)), "torn at every byte"


def test_a_crash_before_the_flush_has_flushed_nothing() -> None:
    file = crash_at("before flush")
    file.append(b"abc")
    with pytest.raises(Crashed):
        file.flush()
    assert file.flushed_offset == 0


def test_a_truncation_that_returned_is_durable() -> None:
    file = LogFile(no_crash)
    file.append(b"abcdef")
    file.truncate(4)
    file.append(b"xy")
    while file.lose_power(Random(1)):
        pass
    assert bytes(file.data)[:4] == b"abcd"


@pytest.mark.parametrize(("where", "kept"), [("before save", b"old"), ("after save", b"new")])
def test_a_crash_within_a_save_leaves_the_old_or_the_new(where: str, kept: bytes) -> None:
    saves = 0

    def crash(at: str) -> None:
        if saves and at == where:
            raise Crashed(at)

    saved = SavedBytes(crash)
    saved.save(b"old")
    saves += 1
    with pytest.raises(Crashed):
        saved.save(b"new")
    assert saved.payload == kept
