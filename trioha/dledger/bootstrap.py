"""Bootstrap of a group: a member without a vote record asks the other members and gets one.

Theory of operation. A member that has lost its disk must not vote: it may have voted before. But a
member with an empty disk cannot tell "lost" from "new", so it asks the others. A group is *founded*
once: when all its founders are there and none of them has ever begun. Each founder has a *nonce*,
made at its very first start and durable before it is sent to any peer. A founder that begins keeps
the nonces of all founders beside its vote. A founder that was late (it died between saying "I am
new" and hearing that all are) finds its own nonce with the others and begins too. A founder whose
disk was replaced has another nonce. It becomes a learner: a copy without a vote.

A member's note on itself (`PeerNote`) counts only while our connection to that member is up. We
ask for a new one every second. So no group is founded on a note from before a disk was replaced.

A store that was converted from a master-slave set's has bytes from the start. Its member founds the
group alone, as the only voter; the other founders begin as its learners and are promoted when they
hold the whole log. If they were voters at once, two empty ones could elect each other and cut it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioha.dledger.membership import MEMBER_ID_CHARS_MAX, Configuration
from trioha.dledger.settings import MEMBERS_MAX
from trioha.errors import RemoteProtocolError

NONCE_BYTES = 16
_OFFSET_MAX = (1 << 63) - 1
_TEXT_CHARS_MAX = 255


@attrs.frozen
class Birth:
    """Record of a group's beginning, as one member knows it; durable with the member's vote."""

    nonce: bytes = b""
    """Random bytes that name this disk: made once, empty until then."""
    founders: Mapping[str, bytes] = attrs.field(factory=dict)
    """Nonces of all founders when the group began; empty for a member that joined later."""
    seed: str = ""
    """The founder that had a log before the group began; "" if none had."""

    def configuration(self, founders: Sequence[str]) -> Configuration:
        """Return the configuration that the group began with."""
        if not self.seed:
            return Configuration.of(*founders)
        learners = tuple(sorted(set(founders) - {self.seed}))
        return Configuration((self.seed,), learners)


@attrs.frozen(kw_only=True)
class PeerNote:
    """A member's note on its own state, sent to every peer that it is connected to."""

    begun: bool
    birth: Birth
    log_bytes: int
    has_terms: bool
    """The log has terms. Bytes without them, a master-slave broker's, cannot be the group's."""
    is_leader: bool = False
    voters: tuple[str, ...] = ()
    """Present voters, if this member is the leader; else empty."""
    leader_id: str = ""
    leader_address: str = ""
    """The leader that it follows, and that leader's address: for members that look for one."""

    def plain(self) -> list[Any]:
        """Return the fields as a list for msgpack."""
        birth = self.birth
        return [
            self.begun,
            birth.nonce,
            dict(birth.founders),
            birth.seed,
            self.log_bytes,
            self.has_terms,
            self.is_leader,
            list(self.voters),
            self.leader_id,
            self.leader_address,
        ]

    @classmethod
    def of_plain(cls, fields: Any) -> PeerNote:
        """Read a note from the list of `plain`. Errors: RemoteProtocolError if this is no note."""
        if type(fields) is not list or len(fields) != 10:
            raise RemoteProtocolError(
                "a member's note has a format that this version does not know; run the same "
                "version on all members"
            )
        begun, nonce, founders, seed, log_bytes, has_terms, is_leader, voters, *leader = fields
        flags = all(type(flag) is bool for flag in (begun, has_terms, is_leader))
        offset = type(log_bytes) is int and 0 <= log_bytes <= _OFFSET_MAX
        if not flags or not offset or type(voters) is not list or len(voters) > MEMBERS_MAX:
            raise RemoteProtocolError("a member's note is damaged")
        if any(type(text) is not str or len(text) > _TEXT_CHARS_MAX for text in leader):
            raise RemoteProtocolError("a member's note does not name its leader")
        return cls(
            begun=begun,
            birth=birth_of_plain(nonce, founders, seed),
            log_bytes=log_bytes,
            has_terms=has_terms,
            is_leader=is_leader,
            voters=tuple(_member(voter) for voter in voters),
            leader_id=leader[0],
            leader_address=leader[1],
        )


def birth_of_plain(nonce: Any, founders: Any, seed: Any) -> Birth:
    """Read a `Birth` from its fields. Errors: RemoteProtocolError if they are damaged."""
    if type(founders) is not dict or len(founders) > MEMBERS_MAX:
        raise RemoteProtocolError("no table of founders")
    return Birth(
        _nonce(nonce),
        {_member(member): _nonce(one) for member, one in founders.items()},
        _member(seed) if seed != "" else "",
    )


@attrs.frozen
class WaitForMembers:
    """Decision: neither vote nor stand for election yet."""

    reason: str
    """A sentence for the journal and the status: the missing members, or the fault and its cure."""


@attrs.frozen
class Begin:
    """Decision: save a vote record with this birth, and take part."""

    birth: Birth


@attrs.frozen
class Impaired:
    """Decision: save a vote record marked as impaired, and be a copy without a vote."""

    reason: str


Decision = WaitForMembers | Begin | Impaired


def decide(
    member_id: str, founders: Sequence[str], ours: PeerNote, notes: Mapping[str, PeerNote]
) -> Decision:
    """Decide what a member without a vote record does, given the notes of its connected peers."""
    if member_id not in founders:
        return _join(member_id, ours, notes)
    others = [founder for founder in founders if founder != member_id]
    there = {other: notes[other] for other in others if other in notes}
    # A wiped member has begun too, but keeps no founders' nonces: it is no witness.
    witnesses = {one: note.birth for one, note in there.items() if note.birth.founders}
    for other, birth in witnesses.items():
        if birth.founders.get(member_id) != ours.birth.nonce:
            # Our disk was replaced after the group began: its vote is forgotten (thesis 3.8).
            return _lost(member_id, other, ours)
    for birth in witnesses.values():
        # The group was founded while we were away for a moment: only this disk has this nonce.
        return Begin(attrs.evolve(birth, nonce=ours.birth.nonce))
    for other, note in notes.items():
        if note.is_leader and not set(note.voters) & set(others):
            # All the other founders have been replaced: no witness is left.
            return _lost(member_id, other, ours)
    # A founder that is away may have begun a group that these members know nothing of. One that has
    # begun and is no witness was wiped since: its group may still be there.
    missing = [other for other in others if other not in there or there[other].begun]
    if missing:
        return WaitForMembers(
            f"waits for {', '.join(missing)}: all members of dLegerPeers have to be there when the "
            "group begins"
        )
    return _found(member_id, {member_id: ours, **there})


def _found(member_id: str, everybody: Mapping[str, PeerNote]) -> Decision:
    """Found the group: all founders are there, and none has begun."""
    full = sorted(member for member, note in everybody.items() if note.log_bytes)
    # Two logs of one group that have nothing in common: the leader's would overwrite the other's.
    if len(full) > 1:
        return WaitForMembers(
            f"{' and '.join(full)} have messages in their stores already; a group begins with at "
            "most one such store: keep one and let the others start with empty ones"
        )
    # Bytes without terms cannot be compared with a follower's (Raft 5.3).
    if full and not everybody[full[0]].has_terms:
        return WaitForMembers(
            f"the store of {full[0]} is a master-slave broker's; stop {full[0]} and convert it "
            "with `trioha raft convert`, or let it start with an empty one"
        )
    nonces = {member: note.birth.nonce for member, note in sorted(everybody.items())}
    return Begin(Birth(nonces[member_id], nonces, full[0] if full else ""))


def _join(member_id: str, ours: PeerNote, notes: Mapping[str, PeerNote]) -> Decision:
    """Join a group as a member that dLegerPeers does not name: it is added later, or will be."""
    leaders = {other: note for other, note in notes.items() if note.is_leader}
    if not leaders:
        return WaitForMembers("waits for the leader of the group, to join it")
    # It voted with another disk, whose votes are forgotten (thesis 3.8).
    for other, note in leaders.items():
        if member_id in note.voters:
            return _lost(member_id, other, ours)
    # The leader would cut the log off, down to the first byte that differs.
    if ours.log_bytes:
        return WaitForMembers(_strange_log(member_id, ours, next(iter(leaders))))
    return Begin(ours.birth)


def _lost(member_id: str, other: str, ours: PeerNote) -> Decision:
    """Give up the vote: the group has begun, and knows this member by another disk's nonce."""
    # The bytes may be all that is left of another group: to follow would cut them off.
    if ours.log_bytes:
        return WaitForMembers(_strange_log(member_id, ours, other))
    return Impaired(
        f"{other} has begun with another disk under the name of {member_id}: that disk's votes "
        f"are forgotten, so {member_id} is a copy without a vote; remove it with `trioha raft "
        "remove` and add it again under a new dLegerSelfId"
    )


def _strange_log(member_id: str, ours: PeerNote, other: str) -> str:
    return (
        f"the store of {member_id} has {ours.log_bytes} bytes of log but no vote record, and the "
        f"group of {other} has begun already; move the store away and start with an empty one"
    )


def _member(value: Any) -> str:
    if (
        type(value) is not str
        or not 0 < len(value) <= MEMBER_ID_CHARS_MAX
        or not value.isprintable()
    ):
        raise RemoteProtocolError(f"{str(value)[:60]!r} is no member id")
    return value


def _nonce(value: Any) -> bytes:
    if type(value) is not bytes or len(value) not in (0, NONCE_BYTES):
        raise RemoteProtocolError("a nonce of a wrong size")
    return value
