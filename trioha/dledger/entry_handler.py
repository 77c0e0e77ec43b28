"""The follower's side of a push.

Theory of operation. Every push proves something before it does something. COMPARE carries the
leader's terms and is answered with the last offset at which both logs are the same: one round trip,
however long the conflict. TRUNCATE is the only push that cuts, and cuts only where the follower's
own byte is of another term than the leader's. APPEND names the offset and the term it builds on;
bytes that are here already are skipped, and a body that contradicts our log changes nothing: the
leader is told to compare. INSTALL_SNAPSHOT empties a log of which nothing is left at the leader.

What is proved raises `matched_offset`, and the commit that a follower knows never exceeds that: a
leader's commit says nothing about bytes that have not been compared with its own.

Answers tell what is fsynced. Bytes are answered when the disk has them, many pushes by one answer.
"""

from __future__ import annotations

from trioha.dledger.member_state import MemberState
from trioha.dledger.messages import (
    Append,
    Compare,
    Heartbeat,
    HeartbeatResponse,
    Install,
    Push,
    PushResponse,
    PushStatus,
    PushType,
    Truncate,
)
from trioha.dledger.term_table import Row, TermTable
from trioha.errors import RemoteProtocolError


class EntryHandler:
    """Pushes of the leader of our term; the node has checked that it is."""

    def __init__(self, state: MemberState) -> None:
        self._state = state

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        state = self._state
        state.commit(min(heartbeat.committed_offset, state.matched_offset))
        state.messages.append(
            HeartbeatResponse(
                state.member_id,
                heartbeat.source,
                state.term,
                heartbeat.read_round,
                heartbeat.sent_ms,
                state.matched_offset,
                self._held(),
            )
        )

    def on_compare(self, compare: Compare) -> None:
        """Errors: RemoteProtocolError when both logs have one term with two beginnings, or part
        where ours is committed."""
        state = self._state
        common = self._common(compare.rows, compare.begin_offset, compare.end_offset)
        if common < compare.begin_offset:
            self._answer(compare, PushType.COMPARE, PushStatus.BELOW_BEGIN)
            return
        self._matched(common)
        conflict = common < min(state.end_offset, compare.end_offset)
        self._answer(compare, PushType.COMPARE, PushStatus.SUCCESS, common, conflict=conflict)

    def on_truncate(self, truncate: Truncate) -> None:
        """Errors: RemoteProtocolError when what is to be cut was proved to be the leader's."""
        state = self._state
        offset = truncate.phy_offset
        if not self._builds_on(offset, truncate.prev_term):
            self._answer(truncate, PushType.TRUNCATE, PushStatus.INCONSISTENT_STATE)
            return
        self._matched(offset)
        if offset < state.end_offset and state.terms.term_of(offset) != truncate.conflict_term:
            if offset < state.matched_offset:
                raise RemoteProtocolError(
                    f"{truncate.source} wants our log cut at {offset}, and it was its own up to "
                    f"{state.matched_offset}, committed up to {state.committed_offset}"
                )
            state.truncate(offset)
        self._answer(truncate, PushType.TRUNCATE, PushStatus.SUCCESS)

    def on_append(self, append: Append) -> None:
        state = self._state
        if not state.writable or state.failed:
            return
        start, end = append.prev_offset, append.prev_offset + len(append.body)
        if start > state.end_offset:
            self._answer(append, PushType.APPEND, PushStatus.GAP)
            return
        if start < state.begin_offset:
            return  # an old copy: we have deleted that part since
        known = self._known_until(append, start, end)
        if known < 0:
            self._answer(append, PushType.APPEND, PushStatus.INCONSISTENT_STATE)
            return
        if known < end:
            state.append(known, append.entry_term, append.body[known - start :])
            for row in append.configurations:
                if row[0] > known:
                    state.configurations = state.configurations.add(*row)
        self._matched(end)
        state.commit(min(append.committed_offset, state.matched_offset))
        if append.body and state.held_offset >= end:
            self._answer(append, PushType.APPEND, PushStatus.SUCCESS)

    def on_install(self, install: Install) -> None:
        """Errors: RemoteProtocolError when what we have is still there at the leader."""
        state = self._state
        begin = install.begin_offset
        if not state.writable or state.failed:
            return
        if state.matched_offset >= begin:  # done already, the answer was lost
            self._answer(install, PushType.INSTALL_SNAPSHOT, PushStatus.SUCCESS)
            return
        if self._common(install.rows, begin, install.end_offset) >= begin:
            raise RemoteProtocolError(
                f"{install.source} wants our log emptied from {begin} on, but we hold what it "
                f"holds: committed up to {state.committed_offset}"
            )
        state.reset(begin, TermTable(install.rows), install.configuration)
        self._answer(install, PushType.INSTALL_SNAPSHOT, PushStatus.SUCCESS)

    def on_flushed(self) -> None:
        """The disk has more: tell the leader, as far as it is the leader's log."""
        state = self._state
        if state.leader_id:
            state.messages.append(
                PushResponse(
                    state.member_id,
                    state.leader_id,
                    state.term,
                    PushType.APPEND,
                    0,
                    PushStatus.SUCCESS,
                    state.matched_offset,
                    self._held(),
                )
            )

    def _common(self, rows: tuple[Row, ...], their_begin: int, their_end: int) -> int:
        """Up to where our log is the leader's.

        Errors: RemoteProtocolError when that is less than what a majority has: no leader's is.
        """
        state = self._state
        common = state.terms.meet(state.end_offset, TermTable(rows), their_end)
        if common < 0:
            # Nothing that they still have is ours; what was before it, only our commit tells.
            common = min(state.committed_offset, their_begin)
        # An old copy may tell of a time when their log was shorter than our commit is now.
        if common < min(state.committed_offset, their_end):
            raise RemoteProtocolError(
                f"the leader's log parts from ours at {common}, committed {state.committed_offset}"
            )
        return common

    def _builds_on(self, prev_offset: int, prev_term: int) -> bool:
        state = self._state
        if not state.begin_offset <= prev_offset <= state.end_offset:
            return False
        return state.terms.term_at(prev_offset) == prev_term

    def _known_until(self, append: Append, start: int, end: int) -> int:
        """How much of the body our log has already: its end, or -1 if they contradict."""
        state = self._state
        if not self._builds_on(start, append.prev_term):
            return -1
        if start == state.end_offset:
            return start
        if start == end:
            return end
        if state.terms.term_of(start) != append.entry_term:
            return -1
        run_end = state.terms.run_end(start, state.end_offset)
        if run_end >= end:
            return end
        return run_end if run_end == state.end_offset else -1

    def _matched(self, end_offset: int) -> None:
        state = self._state
        state.matched_offset = max(state.matched_offset, end_offset)

    def _held(self) -> int:
        return min(self._state.held_offset, self._state.matched_offset)

    def _answer(
        self,
        push: Push,
        kind: PushType,
        status: PushStatus,
        matched_offset: int = -1,
        *,
        conflict: bool = False,
    ) -> None:
        state = self._state
        if matched_offset < 0:
            matched_offset = state.matched_offset
        state.messages.append(
            PushResponse(
                state.member_id,
                push.source,
                state.term,
                kind,
                push.sequence,
                status,
                matched_offset,
                min(self._held(), matched_offset),
                conflict,
            )
        )
