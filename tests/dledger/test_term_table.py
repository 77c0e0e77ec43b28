"""Offsets at which two logs part, against logs written out byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.dledger.term_table import TermTable
from trioha.errors import LocalProtocolError, RemoteProtocolError

_A = TermTable(((1, 0), (3, 10), (4, 25)))


def _log(table: TermTable, end: int) -> list[int]:
    """The term of every byte."""
    return [table.term_of(offset) for offset in range(end)]


@st.composite
def _two_histories(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs, one term per byte, as Raft lets them come about: a shared part, then own terms."""
    shared = sorted(draw(st.lists(st.integers(1, 4), max_size=8)))
    last = shared[-1] if shared else 0
    # After parting, terms that only one of the two has seen: even here, odd there.
    ours = sorted(draw(st.lists(st.sampled_from([6, 8, 10]), max_size=6)))
    theirs = sorted(draw(st.lists(st.sampled_from([5, 7, 9]), max_size=6)))
    # The last shared term may go on in one of them.
    more = draw(st.integers(0, 3)) if last else 0
    return shared + [last] * more + ours, shared + theirs


def _table(log: list[int]) -> TermTable:
    rows = []
    for offset, term in enumerate(log):
        if offset == 0 or log[offset - 1] != term:
            rows.append((term, offset))
    return TermTable(tuple(rows))


@given(_two_histories())
def test_logs_meet_where_their_bytes_part(logs: tuple[list[int], list[int]]) -> None:
    ours, theirs = logs
    common = 0
    while common < min(len(ours), len(theirs)) and ours[common] == theirs[common]:
        common += 1
    met = _table(ours).meet(len(ours), _table(theirs), len(theirs))
    assert met == (common if common else -1)
    assert met == _table(theirs).meet(len(theirs), _table(ours), len(ours))


@given(_two_histories(), st.integers(0, 20))
def test_a_cut_table_tells_of_the_bytes_that_are_left(
    logs: tuple[list[int], list[int]], end: int
) -> None:
    log = logs[0]
    end = min(end, len(log))
    assert _table(log).cut(end) == _table(log[:end])


@given(_two_histories(), st.integers(0, 20))
def test_a_trimmed_table_tells_of_every_byte_from_there_on_and_of_the_one_before(
    logs: tuple[list[int], list[int]], begin: int
) -> None:
    log = logs[0]
    begin = min(begin, len(log))
    trimmed = _table(log).drop_before(begin)
    for offset in range(max(begin - 1, 0), len(log)):
        assert trimmed.term_of(offset) == log[offset]


def test_a_position_has_the_term_of_the_byte_before_it() -> None:
    assert [_A.term_at(end) for end in (0, 1, 10, 11, 25, 26)] == [0, 1, 1, 3, 3, 4]
    assert _log(_A, 12) == [1] * 10 + [3] * 2


def test_a_stretch_ends_where_the_next_term_begins() -> None:
    assert [_A.run_end(offset, 40) for offset in (0, 9, 10, 30)] == [10, 10, 25, 40]


def test_a_term_begins_once() -> None:
    assert _A.begin(7, 40).last_term == 7
    with pytest.raises(LocalProtocolError, match="term 4 is not newer than 4"):
        _A.begin(4, 40)


def test_one_term_with_two_beginnings_is_proof_of_a_fault() -> None:
    with pytest.raises(RemoteProtocolError, match="term 4 begins at 25 here and at 26 there"):
        _A.meet(40, TermTable(((1, 0), (3, 10), (4, 26))), 40)


@pytest.mark.parametrize("rows", [((2, 0), (2, 5)), ((2, 0), (1, 5)), ((1, 5), (2, 5))])
def test_rows_out_of_order_are_refused(rows: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(RemoteProtocolError, match="cannot follow"):
        TermTable(rows)
