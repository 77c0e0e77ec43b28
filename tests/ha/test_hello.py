from __future__ import annotations

from typing import Any, cast
from zlib import crc32

import attrs
import hypothesis.strategies as st
import msgpack
import pytest
from hypothesis import given

from trioha.errors import RemoteProtocolError
from trioha.ha.epochs import EpochHistory, EpochRecord
from trioha.ha.greeting import checksum
from trioha.ha.hello import (
    PROOF_SPAN_BYTES,
    SPANS_MAX,
    Hello,
    HelloAnswer,
    Log,
    LogExtent,
    NeedsResync,
    Proofs,
    Span,
    agree,
    holds_more,
    meetings,
)
from trioha.ha.mastership import Standing


def record(epoch: int, start: int, home_id: int = 0) -> EpochRecord:
    return EpochRecord(epoch, start, home_id, epoch.to_bytes(8, "big"), sync=True)


def log(end: int, *records: EpochRecord, begin: int = 0) -> LogExtent:
    return LogExtent(EpochHistory(records), begin, end)


def slave(extent: LogExtent, known_epoch: int = 0) -> Hello:
    return Hello(
        broker_name="broker-a",
        home_id=1,
        address="b:10911",
        log=extent,
        known_epoch=max(known_epoch, extent.history.epoch),
        nonce=b"n" * 16,
        spans=(Span(0, 10),),
        members={2: "c:10911"},
    )


def master(extent: LogExtent, **changes: Any) -> HelloAnswer:
    answer = HelloAnswer(
        broker_name="broker-a",
        home_id=0,
        address="a:10911",
        log=extent,
        known_epoch=extent.history.epoch,
        standing=Standing.MASTER,
        checksums=(1, None),
    )
    return attrs.evolve(answer, **changes)


FIRST, SECOND = record(1, 0), record(2, 5000, 1)
FIELDS = sorted(msgpack.unpackb(slave(log(900, FIRST)).encode(), strict_map_key=False))


def test_both_survive_the_wire() -> None:
    hello = slave(log(900, FIRST))
    assert Hello.decode(hello.encode()) == hello
    answer = master(log(9000, FIRST, SECOND), follows="c:10911", standing=Standing.SLAVE)
    assert HelloAnswer.decode(answer.encode()) == answer


@given(st.binary(max_size=400))
def test_bytes_that_are_no_hello_are_refused(data: bytes) -> None:
    for kind in (Hello, HelloAnswer):
        with pytest.raises(RemoteProtocolError):
            kind.decode(data)


MSGPACK_INTEGERS = st.integers(-(2**63), 2**64 - 1)


@given(
    st.sampled_from(FIELDS),
    st.one_of(
        st.none(),
        MSGPACK_INTEGERS,
        st.text(max_size=300),
        st.binary(max_size=40),
        st.lists(st.integers(-5, 5), max_size=9),
        st.dictionaries(st.text(max_size=3), MSGPACK_INTEGERS, max_size=3),
    ),
)
def test_a_hello_with_one_odd_field_is_refused_or_means_something(name: str, value: Any) -> None:
    fields = msgpack.unpackb(slave(log(900, FIRST)).encode(), strict_map_key=False)
    fields[name] = value
    try:
        hello = Hello.decode(msgpack.packb(fields))
    except RemoteProtocolError:
        return
    assert hello.log.end >= 0
    assert len(hello.spans) <= SPANS_MAX
    assert Hello.decode(hello.encode()) == hello


def test_logs_of_one_history_meet_where_it_parts_and_compare_what_lies_before() -> None:
    ours, theirs = slave(log(8000, FIRST)), master(log(9000, FIRST, SECOND))
    (found,) = meetings(ours, theirs)
    assert (found.common_offset, found.span) == (5000, Span(5000 - PROOF_SPAN_BYTES, 5000))
    assert agree([found], ours, theirs, [1]) == 5000


def test_a_checksum_that_differs_is_never_cut_away() -> None:
    ours, theirs = slave(log(8000, FIRST)), master(log(9000, FIRST, SECOND))
    with pytest.raises(NeedsResync, match="before offset 5000"):
        agree(meetings(ours, theirs), ours, theirs, [2])
    with pytest.raises(NeedsResync):
        agree(meetings(ours, theirs), ours, theirs, [None])


def test_a_classic_log_may_reach_beyond_a_record_it_never_heard_of() -> None:
    ours, theirs = slave(log(8000)), master(log(9000, record(1, 300)))
    found = meetings(ours, theirs)
    assert [one.common_offset for one in found] == [8000, 300]
    assert agree(found, ours, attrs.evolve(theirs, checksums=(7, 8)), [7, 8]) == 8000
    assert agree(found, ours, attrs.evolve(theirs, checksums=(7, 8)), [6, 8]) == 300


def test_a_master_that_shares_no_term_and_is_not_newer_makes_nobody_cut() -> None:
    other = EpochRecord(1, 0, 0, b"another!", sync=True)
    ours, theirs = slave(log(8000, FIRST)), master(log(700, other), checksums=(1, 1))
    with pytest.raises(NeedsResync, match="not newer than ours"):
        agree(meetings(ours, theirs), ours, theirs, [1, 1])


def test_a_master_without_a_byte_makes_nobody_cut() -> None:
    with pytest.raises(NeedsResync, match="nothing in common"):
        meetings(slave(log(8000)), master(log(0, FIRST)))


def test_a_gap_between_the_logs_needs_an_operator() -> None:
    with pytest.raises(NeedsResync, match="nothing in common"):
        meetings(slave(log(800, FIRST)), master(log(9000, FIRST, begin=1000)))


@pytest.mark.parametrize(
    ("ours", "theirs", "is_kept"),
    [
        (log(8000, FIRST), log(7999, FIRST), True),
        (log(8000, FIRST), log(8000, FIRST), False),
        (log(5001, FIRST, SECOND), log(9000, FIRST), True),
        (log(9000, FIRST), log(5001, FIRST, SECOND), False),
        (log(8000, FIRST), log(0, FIRST), True),
        (log(0, FIRST), log(0, FIRST), False),
        # The master has lost its disk, and has written more since.
        (log(8000, FIRST), log(9000, EpochRecord(1, 0, 0, b"another!", sync=True)), True),
        (log(8000), log(9000, FIRST), False),
    ],
)
def test_the_longer_log_is_kept(ours: LogExtent, theirs: LogExtent, is_kept: bool) -> None:
    assert holds_more(ours, theirs) is is_kept


@pytest.mark.parametrize(
    "answer",
    [
        master(log(0, FIRST)),
        master(log(700, EpochRecord(1, 0, 0, b"another!", sync=True)), checksums=(1, 1)),
        master(log(4000, FIRST)),
    ],
)
def test_no_advice_sets_the_longer_log_aside(answer: HelloAnswer) -> None:
    ours = slave(log(8000, FIRST))
    with pytest.raises(NeedsResync) as caught:
        agree(meetings(ours, answer), ours, answer, [2, 2])
    assert "resync" not in str(caught.value)
    assert "trioha failover broker-a --to 1" in str(caught.value)


def test_the_span_begins_where_both_logs_have_bytes() -> None:
    (found,) = meetings(slave(log(4000, FIRST)), master(log(9000, FIRST, begin=3000)))
    assert found.span == Span(3000, 4000)


def test_an_empty_log_follows_any_master_from_its_start() -> None:
    ours, theirs = slave(log(0), known_epoch=2), master(log(9000, FIRST, SECOND))
    assert meetings(ours, theirs) == ()
    assert agree((), ours, theirs, ()) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"broker_name": "broker-b"}, "point to another set"),
        ({"home_id": 1}, "the same brokerId"),
        ({"standing": Standing.FENCED}, "is no master: it is FENCED"),
        ({"standing": Standing.SLAVE, "follows": "c:1"}, "it is SLAVE and follows c:1"),
    ],
)
def test_who_may_not_be_followed_is_told_apart(changes: dict[str, Any], words: str) -> None:
    theirs = master(log(9000, FIRST, SECOND), **changes)
    with pytest.raises(RemoteProtocolError, match=words):
        meetings(slave(log(0)), theirs)


def test_a_term_that_was_promised_is_followed_at_the_node_that_asked_for_it_alone() -> None:
    """Two nodes may ask for one number without knowing of each other; their nonces differ."""
    promised = attrs.evolve(
        slave(log(900, FIRST)), promised_epoch=SECOND.epoch, promised_nonce=SECOND.nonce
    )
    asked = master(log(5000, FIRST, SECOND), home_id=2)
    assert meetings(promised, asked)
    other = attrs.evolve(SECOND, nonce=b"another!")
    with pytest.raises(RemoteProtocolError, match="promised epoch 2 to another node"):
        meetings(promised, master(log(5000, FIRST, other), home_id=2))
    older = master(log(5000, FIRST), home_id=2)
    with pytest.raises(RemoteProtocolError, match="promised epoch 2 to another node"):
        meetings(promised, older)
    third = EpochRecord(3, 5000, 2, b"the 3rd.", sync=True)
    assert meetings(promised, master(log(5000, FIRST, third), home_id=2))


def test_a_deposed_master_is_refused_even_by_an_empty_slave() -> None:
    with pytest.raises(RemoteProtocolError, match="epoch 3 has begun: it has been deposed"):
        meetings(slave(log(0), known_epoch=3), master(log(9000, FIRST, SECOND)))


def test_a_proof_of_one_side_is_none_of_the_other() -> None:
    proofs = Proofs("s3cret")
    nonce = b"c" * 32
    assert proofs.is_of_slave(nonce, b"body", proofs.of_slave(nonce, b"body"))
    assert not proofs.is_of_slave(nonce, b"another body", proofs.of_slave(nonce, b"body"))
    assert not proofs.is_of_master(nonce, b"body", proofs.of_slave(nonce, b"body"))
    assert proofs.is_of_master(nonce, b"body", proofs.of_master(nonce, b"body"))
    assert not Proofs("other").is_of_master(nonce, b"body", proofs.of_master(nonce, b"body"))


def test_a_log_that_ends_within_the_stretch_has_no_checksum_of_it() -> None:
    """The log is cut while it is read: half a stretch proves nothing."""

    class Ending:
        def read_log(self, offset: int, size: int) -> bytes:
            return b"x" * min(4, max(0, 6 - offset))

    assert checksum(cast("Log", Ending()), Span(0, 6)) == crc32(b"xxxxxx")
    assert checksum(cast("Log", Ending()), Span(0, 7)) is None
