"""Invariants that hold after every event, checked by a watcher that sees all disks.

election safety        one leader per term
log matching           same term before the same offset: same log
leader completeness    whatever is committed is in every later leader's log
state machine safety   nobody commits anything else at an offset
no loss                what a leader commits is on the disks of a majority at that moment, and
                       nobody cuts it
monotone               terms and commits never go back
commits of a term      a leader's commit ends with a byte of its own term (Raft 5.4.2)
true watermarks        what a leader believes a follower holds, that follower holds
tables of the log      no term and no configuration outlives its bytes
one vote               per member and term, over restarts
leases                 nobody is elected while an older leader has a lease
fresh reads            a read sees everything that was acknowledged before it was asked for
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from trioha.dledger.node import RaftNode
from trioha.dledger.quorum import majority
from trioha.dledger.ready import HardState, Role
from trioha.sim.raft.disk import RaftDisk


class Violation(Exception):
    """The core broke a promise. The text says which."""


class Watched(Protocol):
    """A member, as the watcher sees it."""

    member_id: str
    disk: RaftDisk

    @property
    def begun(self) -> bool:
        """The member runs and has a node; one that has just been started has none yet."""

    def now_ms(self) -> int: ...

    @property
    def node(self) -> RaftNode: ...


class Invariants:
    """The memory of what was, and the judge of what is."""

    def __init__(
        self,
        members: Mapping[str, Watched],
        *,
        all_disks_whole: bool,
        timeouts_are_real: bool = True,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.committed_offset = 0
        self.acknowledged_offset = 0
        self._members = members
        self._all_disks_whole = all_disks_whole
        self._timeouts_are_real = timeouts_are_real
        self._leaders: dict[int, str] = {}
        self._written: dict[tuple[int, int], int] = {}
        self._committed_ends: list[int] = [0]
        self._committed_chains: list[int] = [0]
        self._commit_terms: list[tuple[int, int]] = []
        self._votes: dict[tuple[str, int], str] = {}
        self._saved_terms: dict[str, int] = {}
        self._commits: dict[str, int] = {}

    def saved(self, member_id: str, hard: HardState) -> None:
        """A hard state is durable."""
        if hard.term < self._saved_terms.get(member_id, 0):
            raise Violation(f"{member_id} saved term {hard.term} after a newer one")
        self._saved_terms[member_id] = hard.term
        if hard.voted_for:
            before = self._votes.setdefault((member_id, hard.term), hard.voted_for)
            if before != hard.voted_for:
                raise Violation(
                    f"{member_id} voted in term {hard.term} for {before} and {hard.voted_for}"
                )

    def appended(self, member: Watched, first_index: int, term: int) -> None:
        """Records from this index on are new in a member's log, all of one term."""
        disk = member.disk
        for index in range(first_index, len(disk.ends)):
            key = (term, disk.ends[index])
            chain = self._written.setdefault(key, disk.chains[index])
            if chain != disk.chains[index]:
                raise Violation(
                    f"log matching: {member.member_id} has other bytes than another member up to "
                    f"{disk.ends[index]} of term {term}"
                )

    def about_to_cut(self, member: Watched, phy_offset: int) -> None:
        """A member is about to cut its log here."""
        self.counts["truncations"] += 1
        disk = member.disk
        index = bisect_left(disk.ends, phy_offset + 1)
        if index < len(disk.ends):
            end = disk.ends[index]
            if end <= self.committed_offset and disk.chains[index] == self.committed_chain(end):
                raise Violation(
                    f"{member.member_id} cuts at {phy_offset}; committed is {self.committed_offset}"
                )

    def committed_chain(self, end_offset: int) -> int:
        """The checksum of the committed log up to here; -1 where there is no record's end."""
        index = bisect_left(self._committed_ends, end_offset)
        if index == len(self._committed_ends) or self._committed_ends[index] != end_offset:
            return -1
        return self._committed_chains[index]

    def restarted(self, member_id: str) -> None:
        """Forget a restarted member's commit: the member has forgotten it, too."""
        self._commits.pop(member_id, None)

    def forgot(self, member_id: str) -> None:
        """Note a lost disk: terms begin anew. The member's votes still count: it must not vote."""
        self._saved_terms.pop(member_id, None)
        self._all_disks_whole = False

    def check(self, member: Watched) -> None:
        """Something happened to this member."""
        state = member.node.state
        if state.configurations.latest_offset > state.end_offset or (
            state.terms.rows and state.terms.rows[-1][1] >= state.end_offset
        ):
            raise Violation(f"{member.member_id} knows terms or members beyond its log")
        if state.role is Role.LEADER:
            self._check_leader(member)
        committed = state.committed_offset
        before = self._commits.get(member.member_id, -1)
        if committed < before:
            raise Violation(f"{member.member_id} committed {before}, now {committed}")
        if committed > before:
            self._commits[member.member_id] = committed
            if (
                state.role is Role.LEADER
                and before >= 0
                and state.terms.term_at(committed) != state.term
            ):
                raise Violation(
                    f"{member.member_id} commits {committed}, which ends with a byte of term "
                    f"{state.terms.term_at(committed)}, in term {state.term}"
                )
            self._check_commit(member, committed)
        elif state.role is Role.LEADER and member.begun and self._all_disks_whole:
            # A leader that has just lost power has no watermarks: they went with its process.
            self._check_watermarks(member)

    def acknowledged(self, end_offset: int) -> None:
        """A client was told that its bytes up to here are safe."""
        if end_offset > self.committed_offset:
            raise Violation(f"{end_offset} acknowledged, committed {self.committed_offset}")
        self.acknowledged_offset = max(self.acknowledged_offset, end_offset)

    def read(self, member_id: str, offset: int, acknowledged_before: int) -> None:
        """A read is served that was asked for when so much had been acknowledged."""
        self.counts["reads"] += 1
        if offset < acknowledged_before:
            raise Violation(
                f"stale read: {member_id} serves up to {offset}, acknowledged before the "
                f"question {acknowledged_before}"
            )

    def _check_leader(self, member: Watched) -> None:
        state = member.node.state
        other = self._leaders.get(state.term)
        if other == member.member_id:
            return
        if other is not None:
            raise Violation(f"election safety: {other} and {member.member_id} in {state.term}")
        self._leaders[state.term] = member.member_id
        self.counts["elections"] += 1
        if self._timeouts_are_real:
            self._check_leases(state.term)
        disk = member.disk
        # A candidate that slept may win a term long gone: it need not know what came after.
        earlier = (offset for offset, term in reversed(self._commit_terms) if term < state.term)
        known = max(disk.begin_offset, next(earlier, 0))
        if disk.chain_at(known) != self.committed_chain(known):
            raise Violation(
                f"leader completeness: {member.member_id} leads term {state.term} with a log "
                f"of {disk.end_offset}, committed before it was {known}"
            )

    def _check_leases(self, term: int) -> None:
        """Check that no later leader is elected while an older one has a lease."""
        for other in self._members.values():
            if not other.begun or other.node.state.role is not Role.LEADER:
                continue
            until_ms = other.node.status().lease_until_ms
            # -1 is never, also by a clock that has jumped to before its start.
            if other.node.state.term < term and until_ms >= 0 and until_ms > other.now_ms():
                raise Violation(
                    f"lease: {other.member_id} may serve reads for {until_ms - other.now_ms()} ms, "
                    f"and term {term} has a leader"
                )

    def _check_commit(self, member: Watched, committed: int) -> None:
        disk = member.disk
        ends, chains = self._committed_ends, self._committed_chains
        if disk.chain_at(committed) == -1 and committed != disk.begin_offset:
            raise Violation(f"{member.member_id} commits {committed}, which ends no record")
        if committed <= self.committed_offset:
            if disk.chain_at(committed) != self.committed_chain(committed):
                raise Violation(
                    f"state machine safety: {member.member_id} commits other bytes up to "
                    f"{committed}"
                )
            return
        if disk.chain_at(self.committed_offset) != chains[-1]:
            raise Violation(
                f"state machine safety: {member.member_id} commits {committed} on other bytes "
                f"than the committed {self.committed_offset}"
            )
        for index in range(disk.index_after(self.committed_offset), disk.index_after(committed)):
            ends.append(disk.ends[index])
            chains.append(disk.chains[index])
        self.committed_offset = committed
        self._commit_terms.append((committed, member.node.state.term))
        self.counts["commits"] += 1
        if self._all_disks_whole:
            self._check_copies(member, committed)

    def _check_watermarks(self, member: Watched) -> None:
        node = member.node
        for follower in node.status().followers:
            other = self._members.get(follower.member_id)
            if other is None or not other.begun or other.node.state.term != node.state.term:
                continue
            held = follower.held_offset
            if held > other.disk.synced_offset or (
                held >= max(other.disk.begin_offset, member.disk.begin_offset)
                and other.disk.chain_at(held) != member.disk.chain_at(held)
            ):
                raise Violation(
                    f"{member.member_id} believes that {follower.member_id} holds {held}, it "
                    f"holds {other.disk.synced_offset}"
                )

    def _check_copies(self, member: Watched, committed: int) -> None:
        voters = member.node.state.configuration.voters
        chain = self.committed_chain(committed)
        copies = sum(
            1
            for voter in voters
            if (disk := self._members[voter].disk).chain_at(committed) == chain
            and disk.synced_offset >= committed
        )
        if copies < majority(len(voters)):
            raise Violation(
                f"{member.member_id} commits {committed}, which {copies} of {len(voters)} "
                "disks hold"
            )
