"""The state of one member: role, term, vote, log positions, and the output for the next `Ready`.

Theory of operation. All parts of a node (elector, handler, leadership, transfer) share this object.
The positions, always `begin <= committed <= end` and `held <= end`:

    begin_offset       first byte still here; retention moves it
    committed_offset   known to be on the disks of a majority
    matched_offset     a follower's log is its leader's up to here: proved in this term
    leader_committed_offset
                       commit in the last heartbeat of this term's leader; may exceed our end
    held_offset        fsynced here: acknowledged, and compared in votes
    end_offset         appended here

There is one copy of each. DLedger keeps its end a second time for votes; its `truncate` does not
update that copy, so nodes with empty logs won elections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from trioha.dledger.membership import Configuration, ConfigurationTable
from trioha.dledger.messages import RaftMessage
from trioha.dledger.ready import (
    Control,
    HardState,
    LogOperation,
    LogReset,
    LogTruncate,
    LogWrite,
    ReadReady,
    Role,
    SoftState,
)
from trioha.dledger.settings import TERMS_MAX, RaftSettings
from trioha.dledger.term_table import TermTable
from trioha.errors import RemoteProtocolError
from trioha.wire.remoting_command import Buffer

if TYPE_CHECKING:
    from random import Random


@attrs.frozen(kw_only=True)
class Recovered:
    """State that a member reads from its disk when it starts."""

    hard_state: HardState = HardState()
    terms: TermTable = TermTable()
    configurations: ConfigurationTable
    begin_offset: int = 0
    end_offset: int = 0
    """End of the log. All of it is durable: recovery has cut a torn end, durably."""


class MemberState:
    """State of one member; only the parts of its node change it."""

    def __init__(
        self,
        member_id: str,
        settings: RaftSettings,
        recovered: Recovered,
        rng: Random,
        now_ms: int,
    ) -> None:
        hard = recovered.hard_state
        self.member_id = member_id
        self.settings = settings
        self.role = Role.FOLLOWER
        self.term = max(hard.term, recovered.terms.last_term)
        self.voted_for = hard.voted_for if self.term == hard.term else ""
        self.impaired = hard.impaired
        self.leader_id = ""
        self.terms = recovered.terms
        self.configurations = recovered.configurations
        self.begin_offset = recovered.begin_offset
        self.end_offset = self.held_offset = recovered.end_offset
        self.committed_offset = min(
            max(hard.committed_offset, self.begin_offset), recovered.end_offset
        )
        self.matched_offset = self.committed_offset
        self.leader_committed_offset = 0
        self.cut_count = 0
        """Count of truncations: an fsync that began before one proves nothing about later bytes."""
        self.writable = True
        """False while the disk is full: the member appends nothing and does not stand."""
        self.failed = ""
        """Reason why the store cannot be trusted any more; empty while it can."""
        self.now_ms = now_ms
        # A leader that this member heard before a crash may hold a lease: vote for no other yet.
        # A member of term 0 has answered no leader: it would have saved the leader's term before.
        self.heard_ms = now_ms if self.term > 0 else now_ms - settings.election_timeout_min_ms
        self.promised_ms = self.heard_ms
        """Time of the last heartbeat that was heard: the leader's lease relies on it."""
        self.leader_lost = False
        """All connections with the leader have ended, and it was not heard since."""
        self.election_deadline_ms = 0
        self.election_rounds = 0
        """Count of election rounds that this member began."""
        self.listens_once_more = False
        """The election deadline was moved once, since this member was held up when it came."""
        self._rng = rng
        self._patience_ms = self._draw_patience_ms()
        """Time without the leader's messages after which this member stands."""
        self.hard_state_dirty = False
        self.messages: list[RaftMessage] = []
        self.log: list[LogOperation] = []
        self.controls: list[Control] = []
        self.reads: list[ReadReady] = []
        self.soft_states: list[SoftState] = []
        self.draw_election_deadline()

    @property
    def configuration(self) -> Configuration:
        """The newest configuration in the log, committed or not (thesis 4.1)."""
        return self.configurations.latest

    @property
    def hard_state(self) -> HardState:
        return HardState(self.term, self.voted_for, self.impaired, self.committed_offset)

    @property
    def held_term(self) -> int:
        return self.terms.term_at(self.held_offset)

    @property
    def may_stand(self) -> bool:
        """The member may be a candidate: it is a voter, its disk works and it forgot no promise."""
        return (
            self._is_needed
            and not self.impaired
            and not self.failed
            and self.writable
            and len(self.terms.rows) < TERMS_MAX
        )

    @property
    def _is_needed(self) -> bool:
        """This member is a voter, or its removal is not committed as far as it knows. In the second
        case it may be the only member that holds the record of its removal, and then no other can
        win (Raft thesis 4.2.2). Its own vote does not count, and it resigns when the record
        commits."""
        if self.member_id in self.configuration.voters:
            return True
        return (
            self.configurations.latest_offset > self.committed_offset
            and self.member_id in self.configurations.at(self.committed_offset).voters
        )

    @property
    def hears_leader(self) -> bool:
        """A majority may still follow a leader: vote for no other member (thesis 4.2.3)."""
        if self.role is Role.LEADER:
            return True
        if self.leader_lost:
            # It may live, cut off from us alone: its lease must have ended (thesis 6.4.1).
            return self.now_ms - self.promised_ms < self.settings.promise_ms
        return self.now_ms - self.heard_ms < self.settings.election_timeout_min_ms

    def is_late(self, deadline_ms: int) -> bool:
        """Return whether this member was held up when `deadline_ms` came: by a standstill of its
        machine or a long step of its own loop. It has read no message meanwhile."""
        return self.now_ms - deadline_ms >= self.settings.heartbeat_interval_ms

    def draw_election_deadline(self, *, has_voted: bool = False) -> None:
        """Draw a new deadline: a vote was given, a round begins, or the term changes (Raft 5.2).

        A group's first election has no leader to wait for. Its founders stand one after the other,
        a heartbeat apart, so that no votes are split. Nor has a group that has just lost its leader
        one: who was voted down stands again soon.
        """
        self.listens_once_more = False
        shortest_ms = self.settings.election_timeout_min_ms
        longest_ms = self.settings.election_timeout_max_ms
        if self.leader_lost and not has_voted and self.now_ms - self.heard_ms < longest_ms:
            step_ms = self.settings.heartbeat_interval_ms
            shortest_ms, longest_ms = step_ms // 2, 2 * step_ms
        voters = sorted(self.configuration.voters)
        if self.term == 0 and self.member_id in voters:
            rank, step_ms = voters.index(self.member_id), self.settings.heartbeat_interval_ms
            shortest_ms, longest_ms = rank * step_ms, (rank + 1) * step_ms
        self.election_deadline_ms = self.now_ms + self._rng.randint(shortest_ms, longest_ms)

    def become_follower(self, term: int, leader_id: str, reason: str) -> None:
        assert term >= self.term, f"term {term} after {self.term}"
        if term > self.term:
            self.term, self.voted_for = term, ""
            self.leader_committed_offset = 0
            self.matched_offset = self.committed_offset
            self.hard_state_dirty = True
        self._become(Role.FOLLOWER, leader_id, reason)
        self.draw_election_deadline()

    def become_pre_candidate(self, reason: str) -> None:
        assert self.role is not Role.LEADER, "a leader does not ask for votes"
        self.election_rounds += 1
        self._become(Role.PRE_CANDIDATE, "", reason)
        self.draw_election_deadline()

    def become_candidate(self, reason: str) -> None:
        assert self.role is not Role.LEADER, "a leader does not ask for votes"
        self.term += 1
        self.voted_for = self.member_id
        self.leader_committed_offset = 0
        self.matched_offset = self.committed_offset
        self.hard_state_dirty = True
        self._become(Role.CANDIDATE, "", reason)
        self.draw_election_deadline()

    def become_leader(self, reason: str) -> None:
        assert self.role is Role.CANDIDATE, f"{self.role.value} cannot become leader"
        self.leader_lost = False
        self._become(Role.LEADER, self.member_id, reason)

    def hear_leader(self, leader_id: str) -> None:
        """Follow the sender of a message that only the leader of our term sends.

        Errors: RemoteProtocolError if the term has another leader already: a term has only one.
        """
        if self.leader_id not in ("", leader_id):  # election safety, Raft 5.2
            raise RemoteProtocolError(
                f"{leader_id} and {self.leader_id} both lead term {self.term}"
            )
        if self.role is not Role.FOLLOWER or self.leader_id != leader_id:
            self.become_follower(self.term, leader_id, f"hears {leader_id}")
        self.heard_ms = self.now_ms
        self.leader_lost = self.listens_once_more = False
        # Not drawn for each message: that was a twentieth of what a follower does for a put.
        self.election_deadline_ms = self.now_ms + self._patience_ms

    def lose_leader(self) -> None:
        """Note that all connections with the leader have ended.

        Voters that lose it stand one after the other, so that no votes are split, the first one
        when it and the others may vote again.
        """
        self.leader_lost = True
        step_ms = self.settings.heartbeat_interval_ms // 2
        rank = sum(
            voter < self.member_id and voter != self.leader_id
            for voter in self.configuration.voters
        )
        free_ms = max(self.now_ms, self.promised_ms + self.settings.promise_ms)
        deadline_ms = free_ms + rank * step_ms + self._rng.randint(step_ms // 4, step_ms // 2)
        self.election_deadline_ms = min(self.election_deadline_ms, deadline_ms)

    def stand_soon(self, rival: str) -> None:
        """Note that `rival` has no leader either and cannot win: our log is newer.

        Members with such a log stand one after the other, so that no votes are split.
        """
        step_ms = self.settings.heartbeat_interval_ms // 2
        rank = sum(
            voter < self.member_id and voter not in (self.leader_id, rival)
            for voter in self.configuration.voters
        )
        self.election_deadline_ms = min(self.election_deadline_ms, self.now_ms + rank * step_ms)

    def append(self, phy_offset: int, term: int, body: Buffer) -> None:
        """Append the leader's bytes to the log."""
        assert phy_offset == self.end_offset, f"append at {phy_offset}, end {self.end_offset}"
        if term != self.terms.last_term:
            self.terms = self.terms.begin(term, phy_offset)
        self.log.append(LogWrite(phy_offset, term, body))
        self.end_offset += len(body)
        if self.settings.replicated_in_memory:
            self.held_offset = self.end_offset

    def truncate(self, phy_offset: int) -> None:
        assert phy_offset >= self.committed_offset, (
            f"cut at {phy_offset} below the committed {self.committed_offset}"
        )
        assert phy_offset >= self.matched_offset, (
            f"cut at {phy_offset} below the matched {self.matched_offset}"
        )
        self.log.append(LogTruncate(phy_offset))
        self.end_offset = phy_offset
        self.held_offset = min(self.held_offset, phy_offset)
        self.terms = self.terms.cut(phy_offset)
        self.configurations = self.configurations.cut(phy_offset)
        self.cut_count += 1

    def reset(
        self, begin_offset: int, terms: TermTable, configuration: tuple[int, Configuration]
    ) -> None:
        """Empty the log and begin where the leader's log begins."""
        self.begin_offset = self.end_offset = self.held_offset = begin_offset
        self.committed_offset = self.matched_offset = begin_offset
        self.terms = terms.cut(begin_offset)
        self.configurations = ConfigurationTable((configuration,))
        self.log.append(LogReset(begin_offset, self.terms, configuration))
        self.cut_count += 1

    def flushed(self, end_offset: int, cut_count: int) -> bool:
        """Note that an fsync covers the log up to `end_offset`; return False if that is no news."""
        held = min(end_offset, self.end_offset)
        if cut_count != self.cut_count or held <= self.held_offset:
            return False
        self.held_offset = held
        return True

    def commit(self, committed_offset: int) -> None:
        """Raise the commit to an offset that a majority holds. The commit never goes back."""
        if committed_offset <= self.committed_offset:
            return
        assert committed_offset <= self.end_offset, (
            f"commit {committed_offset} beyond the end {self.end_offset}"
        )
        self.committed_offset = committed_offset

    def _become(self, role: Role, leader_id: str, reason: str) -> None:
        if (role, leader_id) != (self.role, self.leader_id):
            self.soft_states.append(SoftState(role, self.term, leader_id, reason))
            self._patience_ms = self._draw_patience_ms()
        self.role, self.leader_id = role, leader_id

    def _draw_patience_ms(self) -> int:
        settings = self.settings
        return self._rng.randint(settings.election_timeout_min_ms, settings.election_timeout_max_ms)
