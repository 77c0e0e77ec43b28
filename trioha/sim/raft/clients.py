"""Clients that write and read, and what they were told: the history that is judged at the end.

Three answers there are: safe, refused, unknown. Unknown ones stay open: they may be in the log once
or not at all. Nobody sends a message twice, so whatever is there twice is our doing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from random import Random

from trioha.dledger.answering import MODES, RequestKind, serving_state_of
from trioha.remoting.mode import Mode
from trioha.sim.raft.disk import DATA, RaftDisk, payload_of
from trioha.sim.raft.invariants import Invariants, Violation
from trioha.sim.raft.member import SimMember
from trioha.sim.scheduler import Scheduler

_NAME = struct.Struct(">HI")
FILLER_BYTES_MAX = 60
READ_GAP_MS = 60
BURST_MAX = 6


class SentHistory:
    """Messages that were sent, by the answer to each."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, int] = {}
        """Name of a message -> end offset of its record."""
        self.refused: set[bytes] = set()
        self.unknown: set[bytes] = set()

    def check(self, disk: RaftDisk, began_with: dict[bytes, int]) -> None:
        """Judge a log to which all members have agreed. `began_with` was deleted by retention."""
        found = dict(began_with)
        for record, end in zip(disk.records, disk.ends, strict=True):
            if record[4] != DATA:
                continue
            name = payload_of(record)[: _NAME.size]
            if found.setdefault(name, end) != end:
                raise Violation(f"{_NAME.unpack(name)} is in the log at {found[name]} and {end}")
            if name in self.refused:
                raise Violation(f"{_NAME.unpack(name)} was refused and is in the log at {end}")
        for name, end in self.acknowledged.items():
            if found.get(name) != end:
                raise Violation(
                    f"ack lost: {_NAME.unpack(name)} was acknowledged at {end}, is at "
                    f"{found.get(name)}"
                )


class Client:
    """Writes one message after the other, and reads now and then."""

    def __init__(
        self,
        number: int,
        members: Mapping[str, SimMember],
        scheduler: Scheduler,
        invariants: Invariants,
        history: SentHistory,
        rng: Random,
        pause_ms_max: int,
        timeout_ms: int,
    ) -> None:
        self.written = 0
        self.stopped = False
        self._number = number
        self._members = members
        self._scheduler = scheduler
        self._invariants = invariants
        self._history = history
        self._rng = rng
        # A generator of its own: questions must not change the rest of what a seed means.
        self._question_rng = Random(f"questions {number}")
        self._pause_ms_max = pause_ms_max
        self._timeout_ms = timeout_ms
        self._count = 0
        self._leader: SimMember | None = None
        self._tokens = 0

    def begin(self) -> None:
        self._scheduler.after(self._rng.randint(1, 500), self._next)
        self._scheduler.after(self._rng.randint(1, 500), self._next_read)
        self._scheduler.after(self._question_rng.randint(1, 500), self._next_question)

    def _next_read(self) -> None:
        """Read from a member that takes itself for the leader, even if it is asleep or deposed."""
        if self.stopped:
            return
        leaders = [one for one in self._members.values() if one.is_leader]
        if leaders:
            self._read(self._rng.choice(leaders))
        self._scheduler.after(self._rng.randint(5, 2 * READ_GAP_MS), self._next_read)

    def _next_question(self) -> None:
        """Ask any member for the present; it answers by the rule that real members answer by."""
        if self.stopped:
            return
        rng = self._question_rng
        member = rng.choice(list(self._members.values()))
        if member.is_up and not member.is_paused:
            node = member.node
            leader_id = node.state.leader_id
            place = serving_state_of(
                is_serving=node.is_serving,
                is_paused=False,
                leader_id=leader_id if leader_id != member.member_id else "",
                is_parking=bool(rng.getrandbits(1)),
            )
            self._invariants.counts["questions"] += 1
            # Leaders are asked by `_next_read`; who forwards, parks or rejects says nothing.
            if MODES[RequestKind.PRESENT][place] is Mode.SERVE:
                acknowledged = self._invariants.acknowledged_offset
                self._invariants.read(member.member_id, node.state.committed_offset, acknowledged)
        self._scheduler.after(rng.randint(5, 2 * READ_GAP_MS), self._next_question)

    def _next(self) -> None:
        if self.stopped:
            return
        rng = self._rng
        member = self._leader
        if member is None or not member.is_leader:
            member = rng.choice(list(self._members.values()))
            leader_id = member.node.state.leader_id if member.is_up else ""
            member = self._members.get(leader_id, member)
        self._count += 1
        name = _NAME.pack(self._number, self._count)
        if not member.may_append:
            self._leader = None
            self._history.refused.add(name)
            self._scheduler.after(rng.randint(20, 100), self._next)
            return
        self._leader = member
        for _ in range(rng.randint(0, BURST_MAX)):
            self._history.unknown.add(name)
            member.propose(self._payload(name), self._witness(name))
            self._count += 1
            name = _NAME.pack(self._number, self._count)
            if not _takes_more(member):
                break
        if _takes_more(member):
            self._history.unknown.add(name)
            self._write(member, name)
        else:
            self._history.refused.add(name)
            self._scheduler.after(rng.randint(20, 100), self._next)

    def _payload(self, name: bytes) -> bytes:
        return name + bytes(self._rng.randrange(FILLER_BYTES_MAX))

    def _witness(self, name: bytes) -> Callable[[bool | None, int], None]:
        """Remember what is said of one of a burst."""

        def settle(safe: bool | None, end_offset: int) -> None:
            if safe:
                self._history.acknowledged[name] = end_offset
                self._history.unknown.discard(name)

        return settle

    def _write(self, member: SimMember, name: bytes) -> None:
        """The last of a burst: the next is sent when it is settled, or patience is over."""
        witness = self._witness(name)
        settled = False

        def settle(safe: bool | None, end_offset: int) -> None:
            nonlocal settled
            # Even after the client has lost patience: it is a promise.
            witness(safe, end_offset)
            if not settled:
                settled = True
                self.written += bool(safe)
                self._leader = member if safe else None
                pause = self._rng.randint(1, self._pause_ms_max + 1)
                self._scheduler.after(pause, self._next)

        self._scheduler.after(self._timeout_ms, lambda: settle(None, -1))
        member.propose(self._payload(name), settle)

    def _read(self, member: SimMember) -> None:
        self._tokens += 1
        token = self._number * 1_000_000 + self._tokens
        member.pending_reads[token] = self._invariants.acknowledged_offset
        member.ask(lambda node, now_ms: node.read_index(token, now_ms))


def _takes_more(member: SimMember) -> bool:
    """Is it still a leader after what it was just given? A property would be believed for ever."""
    return member.may_append
