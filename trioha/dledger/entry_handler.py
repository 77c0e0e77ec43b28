"""The follower's side of a push (DLedgerEntryPusher.EntryHandler; Raft 5.3).

Theory of operation. Every push proves something before it changes something. COMPARE carries the
leader's terms, and its answer is the last offset at which both logs are the same: one round trip,
however long the conflict. TRUNCATE is the only push that cuts, and it cuts only where the
follower's own byte is of another term than the leader's. APPEND names the offset and the term that
it builds on. The follower skips bytes that it has already. A body that contradicts its log changes
nothing; the answer makes the leader compare. INSTALL_SNAPSHOT empties a log of which nothing is
left at the leader, after a heartbeat that says that the leader has committed so much.

A proof raises `matched_offset`, and the commit that a follower knows never exceeds that: a leader's
commit says nothing about bytes that have not been compared with its own.

A member does not trust the leader's bytes further than it has to: bytes that are no records, cuts
within a record, terms that fall and configurations without voters are refused before anything
changes. Who the members are it reads in the bytes: the leader's word about them would be forgotten
at the next start. Such a message ends the connection that it came by, and nothing else.

Answers tell what is fsynced. The follower answers an APPEND when its bytes are on disk, and many
APPENDs by one answer.
"""

from __future__ import annotations

from typing import Final

from trioha.dledger.ledger import Ledger
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

# Looking a member up in its enum costs more than the comparison it is for.
_APPEND: Final = PushType.APPEND
_COMPARE: Final = PushType.COMPARE
_INSTALL_SNAPSHOT: Final = PushType.INSTALL_SNAPSHOT
_TRUNCATE: Final = PushType.TRUNCATE
_BELOW_BEGIN: Final = PushStatus.BELOW_BEGIN
_GAP: Final = PushStatus.GAP
_INCONSISTENT_STATE: Final = PushStatus.INCONSISTENT_STATE
_SUCCESS: Final = PushStatus.SUCCESS


class EntryHandler:
    """Pushes of the leader of our term; `RaftNode.step` has checked that they are."""

    def __init__(self, state: MemberState, ledger: Ledger) -> None:
        self._state = state
        self._ledger = ledger

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        state = self._state
        state.promised_ms = state.now_ms  # our answer lengthens the leader's lease
        state.leader_committed_offset = heartbeat.committed_offset
        # Raft 5.3: the commit covers only bytes that are proved to be the leader's.
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
        """Answer up to where both logs are the same.

        Errors: RemoteProtocolError if one term begins at two offsets, or if the logs part below
        our commit.
        """
        state = self._state
        _check_terms(compare, compare.rows, compare.begin_offset, compare.end_offset)
        common = self._common(compare.rows, compare.begin_offset, compare.end_offset)
        if common < compare.begin_offset:
            self._answer(compare, _COMPARE, _BELOW_BEGIN)
            return
        self._matched(common)
        conflict = common < min(state.end_offset, compare.end_offset)
        self._answer(compare, _COMPARE, _SUCCESS, common, conflict=conflict)

    def on_truncate(self, truncate: Truncate) -> None:
        """Cut the log where its bytes are of another term than the leader's.

        Errors: RemoteProtocolError if the bytes to cut were proved to be the leader's, or if no
        record begins there.
        """
        state = self._state
        offset = truncate.phy_offset
        if not self._builds_on(offset, truncate.prev_term):
            self._answer(truncate, _TRUNCATE, _INCONSISTENT_STATE)
            return
        if not self._ledger.is_boundary(offset):
            raise RemoteProtocolError(
                f"{truncate.source} wants our log cut at {offset}, within a record"
            )
        self._matched(offset)
        if offset < state.end_offset and state.terms.term_of(offset) != truncate.conflict_term:
            if offset < max(state.matched_offset, state.committed_offset):
                # Leader append-only (Raft 5.3): a leader never changes what it has once had.
                raise RemoteProtocolError(
                    f"{truncate.source} wants our log cut at {offset}, but its own log was the "
                    f"same up to {state.matched_offset}, committed up to {state.committed_offset}"
                )
            state.truncate(offset)
        self._answer(truncate, _TRUNCATE, _SUCCESS)

    def on_append(self, append: Append) -> None:
        """Append the bytes that the log lacks.

        Errors: RemoteProtocolError if they cannot be a leader's.
        """
        state = self._state
        _check_append(append)
        if not state.writable or state.failed:
            return  # no answer: the leader repeats the push
        start, end = append.prev_offset, append.prev_offset + len(append.body)
        if start > state.end_offset:
            self._answer(append, _APPEND, _GAP)
            return
        if start < state.begin_offset:
            return  # a late duplicate: retention has deleted that part since
        known = self._known_until(append, start, end)
        if known < 0:  # Raft 5.3, consistency check
            self._answer(append, _APPEND, _INCONSISTENT_STATE)
            return
        if known < end:
            body, term = append.body[known - start :], append.entry_term
            try:
                configurations = self._ledger.configurations_in(known, term, body)
            except RemoteProtocolError as error:
                refusal = f"{append.source} sent bytes of no log: {error}"
                raise RemoteProtocolError(refusal) from None
            state.append(known, term, body)
            for row in configurations:
                state.configurations = state.configurations.add(*row)
        self._matched(end)
        state.commit(min(append.committed_offset, state.matched_offset))
        if append.body and state.held_offset >= end:
            self._answer(append, _APPEND, _SUCCESS)

    def on_install(self, install: Install) -> None:
        """Empty the log and begin where the leader's log begins.

        Errors: RemoteProtocolError if the leader still has bytes that we share, or if no leader's
        log can begin so.
        """
        state = self._state
        begin = install.begin_offset
        _check_install(install)
        if objection := self._ledger.objection_to_begin(begin):
            raise RemoteProtocolError(f"{install.source} wants our log emptied: {objection}")
        if not state.writable or state.failed:
            return
        if state.matched_offset >= begin:  # done already: the leader has not got the answer
            self._answer(install, _INSTALL_SNAPSHOT, _SUCCESS)
            return
        committed = state.committed_offset
        its_term = TermTable(install.rows).term_at(committed)
        if its_term and its_term != state.terms.term_at(committed):
            # Every leader has all that is committed (Raft 5.4.3), so this one is none.
            raise RemoteProtocolError(
                f"{install.source} wants our log emptied, and says that its byte before "
                f"{committed} is of term {its_term}, but ours is committed"
            )
        if begin < committed or self._common(install.rows, begin, install.end_offset) >= begin:
            # Emptying a log that the leader could continue would unsay what we acknowledged.
            raise RemoteProtocolError(
                f"{install.source} wants our log emptied to begin at {begin}, but both logs "
                f"share bytes beyond that; committed up to {committed}"
            )
        if begin > state.leader_committed_offset:
            # Retention deletes only what is committed. One wrong word must not empty our log and
            # end it beyond all others: with such an end we could win an election. An honest leader
            # may have committed so much since its last heartbeat: it asks again after the next.
            return
        state.reset(begin, TermTable(install.rows), install.configuration)
        self._answer(install, _INSTALL_SNAPSHOT, _SUCCESS)

    def on_flushed(self) -> None:
        """Tell the leader how much of its log is on our disk now."""
        state = self._state
        if state.leader_id:
            state.messages.append(
                PushResponse(
                    state.member_id,
                    state.leader_id,
                    state.term,
                    _APPEND,
                    0,
                    _SUCCESS,
                    state.matched_offset,
                    self._held(),
                )
            )

    def _common(self, rows: tuple[Row, ...], their_begin: int, their_end: int) -> int:
        """Return the offset up to which our log is the leader's.

        Errors: RemoteProtocolError if that is below our commit: every leader has all that is
        committed (leader completeness, Raft 5.4.3).
        """
        state = self._state
        common = state.terms.meet(state.end_offset, TermTable(rows), their_end)
        if common < 0:
            # We share no byte that the leader still has. Below its begin, only our commit is proof.
            common = min(state.committed_offset, their_begin)
        # A late duplicate may come from a time when the leader's log ended below our commit.
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
        """Return where the known part of the body ends; -1 if body and log contradict."""
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


def _check_terms(push: Push, rows: tuple[Row, ...], begin: int, end: int) -> None:
    """Check that these can be the terms of the log of the leader of this term.

    Errors: RemoteProtocolError.
    """
    if begin > end or (rows and (rows[-1][0] > push.term or rows[-1][1] >= end or rows[0][0] < 1)):
        raise RemoteProtocolError(
            f"{push.source}, leader of term {push.term}, says that its log goes from {begin} to "
            f"{end}, its last terms {rows[-2:]}: no leader's log does"
        )


def _check_append(append: Append) -> None:
    """Errors: RemoteProtocolError if the terms are no leader's."""
    if append.body and not max(1, append.prev_term) <= append.entry_term <= append.term:
        # The terms of a log only rise, and no leader has bytes of a later term than its own.
        raise RemoteProtocolError(
            f"{append.source}, leader of term {append.term}, sent bytes of term "
            f"{append.entry_term} behind term {append.prev_term}"
        )


def _check_install(install: Install) -> None:
    """Errors: RemoteProtocolError if no leader's log begins so."""
    begin, rows = install.begin_offset, install.rows
    _check_terms(install, rows, begin, install.end_offset)
    at, configuration = install.configuration
    if at > begin or (begin and not (rows and rows[0][1] < begin)):
        raise RemoteProtocolError(
            f"{install.source} wants our log to begin at {begin}, with the members of {at} and the "
            f"terms {rows[:2]}: no leader's log begins so"
        )
    if not configuration.voters:
        raise RemoteProtocolError(f"{install.source} sent a configuration without voters")
