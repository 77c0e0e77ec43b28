"""Who may become leader: votes, and the vote before the vote.

Theory of operation. A follower that hears no leader within a randomised time asks everybody whether
they would vote for it (*pre-vote*, Raft thesis 9.6). Nobody's term changes by that, so a member
that was cut off comes back without disturbing anybody. With a majority of yes it raises its term,
saves term and vote, and asks in earnest. A vote goes to one candidate in a term, and only to one
whose log is at least as new: by its last term first, then by length, both of what is on disk.

Whoever has heard a leader within the shortest election timeout votes for nobody, and does not take
over the term of who asks (thesis 4.2.3): that makes a leader's lease worth something, and keeps a
member that has been removed from deposing leaders. Only a candidate that the leader itself has
named (`by_transfer`) is exempt.

A member that may have forgotten a promise (`impaired`) neither votes nor stands.
"""

from __future__ import annotations

from trioha.dledger.member_state import MemberState
from trioha.dledger.messages import VoteRequest, VoteResponse
from trioha.dledger.quorum import VoteOutcome, vote_outcome
from trioha.dledger.ready import Role


class LeaderElector:
    """The votes of one member, given and received."""

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self._votes: dict[str, bool] = {}

    def on_election_timeout(self) -> bool:
        """The time without a leader is over; True if the vote is won at once, being alone."""
        state = self._state
        if not state.may_stand:
            state.draw_election_deadline()
            return False
        state.become_pre_candidate("no leader heard")
        return self._ask(is_pre=True, by_transfer=False)

    def stand_now(self, reason: str) -> bool:
        """Skip the pre-vote: the leader itself wants us."""
        if not self._state.may_stand:
            return False
        return self._stand(reason, by_transfer=True)

    def on_vote_request(self, request: VoteRequest) -> None:
        """Answer a request whose term is ours, or newer and to be taken seriously."""
        state = self._state
        reason = self._obstacle(request)
        if not reason and not request.is_pre:
            if state.voted_for != request.source:
                state.voted_for = request.source
                state.hard_state_dirty = True
            state.draw_election_deadline()
        term = request.term if request.is_pre and not reason else state.term
        state.messages.append(
            VoteResponse(state.member_id, request.source, term, request.is_pre, not reason, reason)
        )

    def on_vote_response(self, response: VoteResponse) -> bool:
        """Count a vote; True if that makes us leader."""
        state = self._state
        wanted = Role.PRE_CANDIDATE if response.is_pre else Role.CANDIDATE
        if state.role is not wanted:
            return False
        if response.granted and response.term != state.term + response.is_pre:
            return False  # granted for another round
        self._votes.setdefault(response.source, response.granted)
        return self._count()

    def is_disturbance(self, request: VoteRequest) -> bool:
        """Asked for a vote in a newer term while there is a leader: not worth our term."""
        return not request.by_transfer and self._state.hears_leader

    def _obstacle(self, request: VoteRequest) -> str:
        """Why there is no vote; empty if there is one."""
        state = self._state
        if state.failed:
            return "disk failed"
        if state.impaired:
            return "may have forgotten a promise"
        if self.is_disturbance(request):
            return f"hears {state.leader_id or 'a leader'}"
        free = not state.voted_for and not state.leader_id
        if (
            state.voted_for != request.source
            and not free
            and not (request.is_pre and request.term > state.term)
        ):
            return f"term {state.term} has {state.leader_id or state.voted_for}"
        if (request.log_term, request.log_end) < (state.held_term, state.held_offset):
            return f"log ends at {state.held_offset} of term {state.held_term}"
        return ""

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
