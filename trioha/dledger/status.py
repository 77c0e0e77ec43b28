"""A member's view of its group at one moment, for people and programs."""

from __future__ import annotations

import attrs

from trioha.dledger.leadership import Leadership
from trioha.dledger.member_state import MemberState
from trioha.dledger.membership import Configuration
from trioha.dledger.messages import PushType
from trioha.dledger.ready import Role
from trioha.dledger.transfer import Transfer


@attrs.frozen
class FollowerStatus:
    """A leader's view of one follower."""

    member_id: str
    is_voter: bool
    phase: PushType
    matched_offset: int
    held_offset: int
    gap_bytes: int
    inflight_bytes: int
    heard_age_ms: int


@attrs.frozen
class RaftStatus:
    """One member's view of itself and, if it leads, of its followers."""

    member_id: str
    role: Role
    term: int
    leader_id: str
    configuration: Configuration
    begin_offset: int
    committed_offset: int
    held_offset: int
    end_offset: int
    is_serving: bool
    lease_until_ms: int
    """End of the lease by this member's clock; -1 for none."""
    impaired: bool
    writable: bool
    failed: str
    transfer_target: str
    transfer_error: str
    followers: tuple[FollowerStatus, ...]


def status_of(
    state: MemberState, leadership: Leadership | None, transfer: Transfer | None
) -> RaftStatus:
    followers: tuple[FollowerStatus, ...] = ()
    if leadership is not None:
        followers = tuple(
            FollowerStatus(
                member,
                member in state.configuration.voters,
                dispatcher.phase,
                dispatcher.matched_offset,
                dispatcher.held_offset,
                max(0, state.end_offset - dispatcher.held_offset),
                dispatcher.inflight_bytes,
                state.now_ms - dispatcher.heard_ms,
            )
            for member, dispatcher in sorted(leadership.dispatchers.items())
        )
    return RaftStatus(
        state.member_id,
        state.role,
        state.term,
        state.leader_id,
        state.configuration,
        state.begin_offset,
        state.committed_offset,
        state.held_offset,
        state.end_offset,
        leadership is not None and leadership.is_serving,
        leadership.lease_until_ms if leadership is not None else -1,
        state.impaired,
        state.writable,
        state.failed,
        transfer.target if transfer is not None else "",
        transfer.last_error if transfer is not None else "",
        followers,
    )
