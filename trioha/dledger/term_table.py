"""The terms of a log: the offset where each begins, and the comparison of two logs by them.

Theory of operation. A leader appends to the end of its log only, and in one term there is one
leader. So the bytes of a term are one run, and a log is described by the few offsets where its
terms begin: rows of (term, start_offset), both strictly rising, since a term enters the table with
its first byte (the control record that every leader writes at once) and never before.

A position of the log is an end: `phy_offset` and the term of the byte before it. Two logs that have
the same term before an offset are the same up to it (Raft's log matching, 5.3, by bytes instead of
entries): within the term because one leader wrote it; before it by induction, since a follower
takes bytes only at an end which it shares with the leader.

`ha/epochs.py` is similar, but an operator can give one epoch to two masters. A term has one leader
here, so the same term with two beginnings is proof of a fault.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

from trioha.dledger.settings import TERMS_MAX
from trioha.errors import LocalProtocolError, RemoteProtocolError

Row = tuple[int, int]
"""term, start_offset"""


class TermTable:
    """Rows of one log, oldest first. A value: each change makes a new table."""

    def __init__(self, rows: tuple[Row, ...] = ()) -> None:
        """Errors: RemoteProtocolError if terms do not rise, or there are too many."""
        self.rows = rows
        self._starts = tuple([start for _, start in rows])
        if len(rows) > TERMS_MAX:
            raise RemoteProtocolError(f"{len(rows)} terms in a log, more than {TERMS_MAX}")
        for (term, start), (next_term, next_start) in pairwise(rows):
            if next_term <= term or next_start <= start:  # terms only rise (Raft 5.1)
                raise RemoteProtocolError(
                    f"term {next_term} at {next_start} cannot follow term {term} at {start}"
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TermTable) and self.rows == other.rows

    def __hash__(self) -> int:
        return hash(self.rows)

    def __repr__(self) -> str:
        return f"TermTable({self.rows})"

    @property
    def last_term(self) -> int:
        return self.rows[-1][0] if self.rows else 0

    def term_at(self, end_offset: int) -> int:
        """Return the term of the byte before `end_offset`; 0 if there is none."""
        index = bisect_left(self._starts, end_offset) - 1
        return self.rows[index][0] if index >= 0 else 0

    def term_of(self, phy_offset: int) -> int:
        """Return the term of the byte at `phy_offset`, which must be in the log."""
        return self.term_at(phy_offset + 1)

    def run_end(self, phy_offset: int, log_end: int) -> int:
        """Return the end of the run of one term that has the byte at `phy_offset`."""
        index = bisect_right(self._starts, phy_offset)
        return self._starts[index] if index < len(self._starts) else log_end

    def begin(self, term: int, start_offset: int) -> TermTable:
        """Return the table with a new term, whose first byte is at `start_offset`.

        Errors: LocalProtocolError if it is not newer than the last.
        """
        if term <= self.last_term:
            raise LocalProtocolError(f"term {term} is not newer than {self.last_term}")
        return TermTable((*self.rows, (term, start_offset)))

    def cut(self, log_end: int) -> TermTable:
        """Return the table of the log after a cut at `log_end`."""
        count = bisect_left(self._starts, log_end)
        return self if count == len(self.rows) else TermTable(self.rows[:count])

    def drop_before(self, begin_offset: int) -> TermTable:
        """Return the table of a log that begins here; the row of the byte before stays."""
        index = bisect_left(self._starts, begin_offset) - 1
        return self if index <= 0 else TermTable(self.rows[index:])

    def meet(self, our_end: int, theirs: TermTable, their_end: int) -> int:
        """Return the offset up to which both logs are the same; -1 if they share no term.

        Errors: RemoteProtocolError if a term begins at two offsets.
        """
        begins = dict(theirs.rows)
        for term, start in reversed(self.rows):
            their_start = begins.get(term)
            if their_start is None or start >= our_end:
                continue
            if their_start != start:
                raise RemoteProtocolError(
                    f"term {term} begins at {start} here and at {their_start} there: two leaders "
                    "had one term; stop both nodes and compare them with `trioha log diff`"
                )
            return min(self.run_end(start, our_end), theirs.run_end(start, their_end))
        return -1
