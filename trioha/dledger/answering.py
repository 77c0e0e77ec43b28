"""The member of a Raft group that answers a request of a client, for every kind of request.

Invariant. A client that was told a value as the present (a group's offset, the end of a queue, who
belongs to a group, who holds a lock) is never told an older one later, whichever member it asks.

Proof sketch. Only `Mode.CONFIRM` answers a question of kind `PRESENT`, and only in
`ServingState.SERVING` is that its mode.

1. A serving leader has committed a record of its term and has applied up to it, so it knows all
   that was acknowledged before its term (leader completeness, `trioha.dledger.leadership`).
2. The core gives leave to every read. Either the leader holds a lease, which counts from when it
   sent the heartbeats that a majority answered and ends before the shortest election timeout. Or a
   majority has echoed a heartbeat that the leader sent after the question came (read-index). In
   both cases no other member led at some moment after the question, so no other member had
   acknowledged anything newer.
3. The answer leaves once everything that it shows is committed. So every later leader has that too.

Every other member forwards the question, parks it or rejects it. A member that does not know a
leader never answers it, however recently it led.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from trioha.remoting.mode import Mode


class ServingState(Enum):
    """Role of a member towards its clients."""

    SERVING = "serving"
    """The leader: its term is open, its tables and queues hold all that is committed."""
    FOLLOWING = "following"
    """The member knows another one that leads."""
    PARKING = "parking"
    """The member knows no leader, or hands the leadership over; requests wait for a moment."""
    LEADERLESS = "leaderless"
    """The member knows no leader for longer than requests are parked, or since it was started."""


class RequestKind(Enum):
    """Class of request, by what the client does with the answer."""

    PRESENT = "present"
    """A value that the client acts on as the newest there is."""
    CHANGE = "change"
    """Something that becomes a record of the log; a client's connection carries it."""
    SETTING = "setting"
    """A record of the log as well, but administrators send it to the leader, which they know: a
    follower rejects it by itself."""
    TAKE = "take"
    """Messages that are handed to one client, which may wait for them longer than a forwarded
    request may last: a follower rejects it by itself."""
    COMMITTED = "committed"
    """Committed data, perhaps not the newest. It never makes a client go back."""
    MEMBER = "member"
    """A question about this member itself, its connections or its configuration."""


def _modes(
    serving: Mode, following: Mode, parking: Mode, leaderless: Mode
) -> Mapping[ServingState, Mode]:
    return MappingProxyType(
        {
            ServingState.SERVING: serving,
            ServingState.FOLLOWING: following,
            ServingState.PARKING: parking,
            ServingState.LEADERLESS: leaderless,
        }
    )


MODES: Mapping[RequestKind, Mapping[ServingState, Mode]] = MappingProxyType(
    {
        RequestKind.PRESENT: _modes(Mode.CONFIRM, Mode.FORWARD, Mode.PARK, Mode.REJECT),
        RequestKind.CHANGE: _modes(Mode.SERVE, Mode.FORWARD, Mode.PARK, Mode.REJECT),
        RequestKind.SETTING: _modes(Mode.SERVE, Mode.SERVE, Mode.PARK, Mode.SERVE),
        RequestKind.TAKE: _modes(Mode.SERVE, Mode.SERVE, Mode.PARK, Mode.SERVE),
        RequestKind.COMMITTED: _modes(Mode.SERVE, Mode.SERVE, Mode.SERVE, Mode.SERVE),
        RequestKind.MEMBER: _modes(Mode.SERVE, Mode.SERVE, Mode.SERVE, Mode.SERVE),
    }
)
"""Treatment of every kind of request in every state of a member."""


def serving_state_of(
    *, is_serving: bool, is_paused: bool, leader_id: str, is_parking: bool
) -> ServingState:
    """Return the state of a member.

    `is_serving`: it leads and has brought itself up to date. `is_paused`: it is handing over.
    `leader_id`: the other member that it follows, or "".
    """
    if is_serving and not is_paused:
        return ServingState.SERVING
    if leader_id:
        return ServingState.FOLLOWING
    return ServingState.PARKING if is_parking else ServingState.LEADERLESS
