"""Elections: votes, and the vote before the vote (DLedgerLeaderElector; Raft 5.2, 5.4.1).

Theory of operation. A follower that hears no leader within a randomised time asks every voter
whether it would vote for it (*pre-vote*, Raft thesis 9.6). A pre-vote changes no member's term, so
a member that was cut off comes back without disturbing the group. With a majority of pre-votes the
member raises its term, saves term and vote, and asks for votes. A voter gives one vote in a term,
and only to a candidate whose log is at least as new as its own: by its last term first, then by
length, both of what is on disk.

A member that has heard a leader within the shortest election timeout votes for no candidate, and
does not adopt a candidate's newer term (thesis 4.2.3). So a removed member cannot depose leaders.
Only a candidate that the leader itself has named (`by_transfer`) is exempt.

A process that dies ends its connections. A member whose connections with the leader have all ended
waits no longer than `promise_ms` after the last heartbeat, the time on which the leader's lease
relies. The ends of connections prove nothing: a firewall can reset those of a leader that lives.
That leader loses at most its leadership, and only if it happens to a majority.

A member whose log is newer than a candidate's denies its vote and stands itself, soon after: the
candidate cannot win, and followers are not equally far (spares, see `Leadership`).

A member that was held up when its deadline came has not listened to its leader. It listens for two
heartbeats more before it asks for votes: else one standstill of a machine would depose the leader
of every group whose members it carries.

A member that may have forgotten a promise (`impaired`) neither votes nor stands.
"""

from __future__ import annotations

from trioha.dledger.member_state import MemberState
from trioha.dledger.messages import VoteRequest, VoteResponse
from trioha.dledger.quorum import VoteOutcome, vote_outcome
from trioha.dledger.ready import Role

LEADER_LOST = "all connections with the leader ended"
"""Reason of an early election."""


class LeaderElector:
    """The votes of one member, given and received."""

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self._votes: dict[str, bool] = {}

    def on_election_timeout(self) -> bool:
        """Begin a pre-vote. Return True if this member, as the only voter, is elected at once."""
        state = self._state
        if not state.may_stand:
            # The member forgets its leader: else it would send clients to a dead one, and would
            # refuse the true leader of the term if a liar had been first to say that it leads.
            state.become_follower(state.term, "", "no leader heard")
            return False
        if (
            state.leader_id
            and not state.leader_lost
            and not state.listens_once_more
            and state.is_late(state.election_deadline_ms)
        ):
            state.listens_once_more = True
            state.election_deadline_ms = state.now_ms + 2 * state.settings.heartbeat_interval_ms
            return False
        state.become_pre_candidate(LEADER_LOST if state.leader_lost else "no leader heard")
        return self._ask(is_pre=True, by_transfer=False)

    def on_peer_lost(self, member_id: str) -> None:
        """Note that all connections with a member have ended; if it led, stand early."""
        state = self._state
        if (
            state.settings.early_election
            and state.role is Role.FOLLOWER
            and state.leader_id == member_id
        ):
            state.lose_leader()

    def stand_now(self, reason: str) -> bool:
        """Begin an election without a pre-vote, as the leader asked. True if it is won at once."""
        if not self._state.may_stand:
            return False
        return self._stand(reason, by_transfer=True)

    def on_vote_request(self, request: VoteRequest) -> None:
        """Answer a request of our term, or a pre-vote or disturbance of a newer one."""
        state = self._state
        reason = self._obstacle(request)
        if not reason and self._is_older(request):
            reason = f"log ends at {state.held_offset} of term {state.held_term}"
            if state.role is Role.FOLLOWER and not request.by_transfer:
                state.stand_soon(request.source)
        if not reason and not request.is_pre:
            if state.voted_for != request.source:
                state.voted_for = request.source
                state.hard_state_dirty = True
            state.draw_election_deadline(has_voted=True)
        term = request.term if request.is_pre and not reason else state.term
        state.messages.append(
            VoteResponse(state.member_id, request.source, term, request.is_pre, not reason, reason)
        )

    def on_vote_response(self, response: VoteResponse) -> bool:
        """Count a vote; return True if it makes this member leader."""
        state = self._state
        wanted = Role.PRE_CANDIDATE if response.is_pre else Role.CANDIDATE
        if state.role is not wanted:
            return False
        if response.granted and response.term != state.term + response.is_pre:
            return False  # granted for another round
        self._votes.setdefault(response.source, response.granted)
        return self._count()

    def is_disturbance(self, request: VoteRequest) -> bool:
        """Return whether to ignore the request's term, since there is a leader (thesis 4.2.3)."""
        return not request.by_transfer and self._state.hears_leader

    def _obstacle(self, request: VoteRequest) -> str:
        """Return the reason to deny the vote, whatever the logs; empty if there is none."""
        state = self._state
        if state.failed:
            return "disk failed"  # a vote has to be durable (Raft 5.2, persistent state)
        if state.impaired:
            return "may have forgotten a promise"  # it could vote twice in a term
        if self.is_disturbance(request):
            return f"hears {state.leader_id or 'a leader'}"
        free = not state.voted_for and not state.leader_id
        if (
            state.voted_for != request.source
            and not free
            and not (request.is_pre and request.term > state.term)
        ):
            # One vote per term (Raft 5.2). A pre-vote for a newer term is no vote.
            return f"term {state.term} has {state.leader_id or state.voted_for}"
        return ""

    def _is_older(self, request: VoteRequest) -> bool:
        """The log must be at least as new as ours (Raft 5.4.1); bytes not on disk do not count."""
        state = self._state
        return (request.log_term, request.log_end) < (state.held_term, state.held_offset)

    def _stand(self, reason: str, *, by_transfer: bool) -> bool:
        self._state.become_candidate(reason)
        return self._ask(is_pre=False, by_transfer=by_transfer)

    def _ask(self, *, is_pre: bool, by_transfer: bool) -> bool:
        state = self._state
        self._votes = {state.member_id: True}
        for voter in state.configuration.voters:
            if voter != state.member_id:
                state.messages.append(
                    VoteRequest(
                        state.member_id,
                        voter,
                        state.term + is_pre,
                        is_pre,
                        by_transfer,
                        state.held_term,
                        state.held_offset,
                    )
                )
        return self._count()

    def _count(self) -> bool:
        state = self._state
        outcome = vote_outcome(self._votes, state.configuration.voters)
        if outcome is VoteOutcome.LOST:
            state.become_follower(state.term, "", "voted down")
        elif outcome is VoteOutcome.WON:
            granted = ",".join(sorted(voter for voter, yes in self._votes.items() if yes))
            if state.role is Role.PRE_CANDIDATE:
                return self._stand(f"would be voted for by {granted}", by_transfer=False)
            state.become_leader(f"voted for by {granted}")
            return True
        return False
