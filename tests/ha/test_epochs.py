from __future__ import annotations

import random
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.ha.epochs import RECORDS_MAX, EpochHistory, EpochRecord, Meeting


def record(epoch: int, start: int, home_id: int = 0, nonce: int | None = None) -> EpochRecord:
    made = epoch if nonce is None else nonce
    return EpochRecord(epoch, start, home_id, made.to_bytes(8, "big"), sync=True)


def history(*records: EpochRecord) -> EpochHistory:
    return EpochHistory(records)


@attrs.define(eq=False)
class Replica:
    """A log that holds for each byte its epoch and a random number, and its history."""

    home_id: int
    log: list[tuple[int, int]] = attrs.Factory(list)
    epochs: EpochHistory = attrs.Factory(EpochHistory)

    def promote(self, epoch: int, nonce: int) -> None:
        new = record(epoch, len(self.log), self.home_id, nonce)
        self.epochs = self.epochs.begin(new, len(self.log))

    def write(self, count: int, rng: random.Random) -> None:
        self.log += [(self.epochs.epoch, rng.getrandbits(60)) for _ in range(count)]

    def follow(self, master: Replica, bytes_max: int) -> Meeting:
        """Shake hands, cut back, take over the history, copy some of the log."""
        meeting = self.epochs.meet(len(self.log), master.epochs, len(master.log))
        del self.log[meeting.common_offset :]
        self.epochs = master.epochs
        end = len(self.log)
        self.log += master.log[end : end + bytes_max]
        return meeting


def test_logs_of_one_term_meet_at_the_shorter_end() -> None:
    shared = history(record(1, 0))
    assert shared.meet(700, shared, 900) == Meeting(700, 1)
    assert shared.meet(900, shared, 700) == Meeting(700, 1)


def test_a_deposed_master_meets_its_successor_where_that_one_began() -> None:
    old = history(record(1, 0), record(2, 500, 0))
    new = history(record(1, 0), record(2, 500, 0), record(3, 800, 1))
    assert old.meet(1200, new, 2000) == Meeting(800, 2)


def test_terms_without_a_write_are_told_apart() -> None:
    left = history(record(1, 0), record(2, 100), record(3, 100), record(4, 100))
    right = history(record(1, 0), record(2, 100), record(5, 100, 1))
    assert left.meet(150, right, 170) == Meeting(100, 2)


def test_the_same_number_given_twice_is_two_terms() -> None:
    left = history(record(1, 0), record(2, 300, 0, nonce=7))
    right = history(record(1, 0), record(2, 300, 1, nonce=8))
    assert left.meet(400, right, 500) == Meeting(300, 1)


def test_who_was_away_for_several_terms_meets_in_the_last_it_saw() -> None:
    away = history(record(1, 0), record(2, 100))
    there = history(record(1, 0), record(2, 100), record(3, 250), record(4, 250), record(5, 900))
    assert away.meet(400, there, 1000) == Meeting(250, 2)


def test_a_term_that_is_known_but_not_held_does_not_count() -> None:
    slave = history(record(1, 0), record(2, 1000))
    master = history(record(1, 0), record(2, 1000))
    assert slave.meet(600, master, 1500) == Meeting(600, 1)
    assert slave.epoch_at(600) == 1
    assert slave.epoch_at(1000) == 2


def test_promotion_forgets_terms_that_never_arrived() -> None:
    slave = history(record(1, 0), record(2, 1000))
    promoted = slave.begin(record(3, 600, 1), 600)
    assert [one.epoch for one in promoted] == [1, 3]
    assert promoted.meet(900, history(record(1, 0), record(2, 1000)), 1500) == Meeting(600, 1)


def test_classic_logs_meet_before_the_first_term_of_either_and_say_so() -> None:
    none, first = history(), history(record(1, 400))
    assert none.meet(300, none, 200) == Meeting(200, 0)
    assert none.meet(900, first, 1000) == Meeting(400, 0)
    other = history(record(1, 500, 1, nonce=9))
    meeting = first.meet(900, other, 900)
    assert meeting == Meeting(400, 0)
    assert meeting.is_classic


def test_histories_that_have_forgotten_their_beginning_do_not_guess() -> None:
    left, right = history(record(5, 400)), history(record(6, 500))
    assert left.meet(900, right, 900) == Meeting(0, 0)


def test_a_term_is_newer_and_begins_at_the_end_of_the_log() -> None:
    one = history(record(3, 100))
    with pytest.raises(LocalProtocolError, match="epoch 3 is not newer than 3"):
        one.begin(record(3, 200), 200)
    with pytest.raises(LocalProtocolError, match="begins at 150, the log ends at 200"):
        one.begin(record(4, 150), 200)


def test_the_oldest_terms_are_forgotten_beyond_the_limit() -> None:
    many = EpochHistory(tuple(record(epoch, epoch) for epoch in range(1, RECORDS_MAX + 1)))
    more = many.begin(record(RECORDS_MAX + 1, 10_000), 10_000)
    assert len(more) == RECORDS_MAX
    assert more.records[0].epoch == 2


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([record(2, 0), record(2, 5)], "epoch 2 at 5 cannot follow epoch 2 at 0"),
        ([record(1, 9), record(2, 5)], "epoch 2 at 5 cannot follow epoch 1 at 9"),
    ],
)
def test_a_history_that_goes_backwards_is_refused(records: list[EpochRecord], text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        EpochHistory(tuple(records))


@pytest.mark.parametrize("data", [b"x", bytes(33), b"\xff" * 33, bytes(33 * (RECORDS_MAX + 1))])
def test_bytes_that_are_no_history_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        EpochHistory.decode(data)


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 2**40), st.integers(0, 99), st.booleans()),
        max_size=20,
    )
)
def test_a_history_survives_the_wire(steps: list[tuple[int, int, int, bool]]) -> None:
    records, epoch, start = [], 0, 0
    for more, grown, home_id, sync in steps:
        epoch, start = epoch + more, start + grown
        records.append(EpochRecord(epoch, start, home_id, bytes(8), sync, start))
    made = EpochHistory(tuple(records))
    assert EpochHistory.decode(made.encode()) == made


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_whatever_happened_a_meeting_is_a_common_prefix(seed: int, count: int) -> None:
    """Masters come and go, slaves fall behind, both sides write: cutting back always suffices."""
    rng = random.Random(seed)
    replicas = [Replica(index) for index in range(count)]
    replicas[0].promote(1, 1)
    for other in replicas[1:]:
        other.follow(replicas[0], 0)
    masters = {0}
    for step in range(rng.randrange(2, 30)):
        kind = rng.random()
        if kind < 0.3:
            index = rng.randrange(count)
            newest = max(one.epochs.epoch for one in replicas)
            # Two operators may use the same number; a node never uses one that it knows.
            epoch = max(replicas[index].epochs.epoch + 1, newest + rng.randrange(2))
            replicas[index].promote(epoch, 1000 + step)
            masters.add(index)
        elif kind < 0.6:
            index = rng.choice(sorted(masters))
            replicas[index].write(rng.randrange(4), rng)
        else:
            master = rng.choice(sorted(masters))
            slave = rng.randrange(count)
            if slave != master and replicas[slave].epochs.epoch <= replicas[master].epochs.epoch:
                replicas[slave].follow(replicas[master], rng.randrange(6))
                masters.discard(slave)
                end = len(replicas[slave].log)
                assert replicas[slave].log == replicas[master].log[:end]
    for left, right in pairwise(replicas):
        meeting = left.epochs.meet(len(left.log), right.epochs, len(right.log))
        assert meeting == right.epochs.meet(len(right.log), left.epochs, len(left.log))
        common = meeting.common_offset
        assert left.log[:common] == right.log[:common]
