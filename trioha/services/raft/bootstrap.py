"""The vote record on disk, and the wait of a member that has none until it may take part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import attrs
import trio

from trioha.broker.raft.store import vote_file
from trioha.dledger.bootstrap import (
    NONCE_BYTES,
    Begin,
    Birth,
    Impaired,
    PeerNote,
    WaitForMembers,
    decide,
)
from trioha.dledger.message_codec import GroupDoor
from trioha.dledger.ready import HardState
from trioha.dledger.vote_record import decode_vote_record, encode_vote_record
from trioha.journal import EventSink
from trioha.services.loop.host import random_source
from trioha.store.store_config import StoreConfig


class Slots(Protocol):
    """The part of a `TwoSlotFile` that `VoteFile` uses."""

    payload: bytes | None

    def save(self, payload: bytes) -> None: ...


class VoteFile:
    """The vote record of this member, in the file `raft` of its store.

    Errors: StoreError if it is another member's, damaged, or cannot be written.
    """

    def __init__(self, file: Slots, door: GroupDoor) -> None:
        self.hard: HardState | None = None
        self.birth = Birth()
        self._file = file
        self._door = door
        if file.payload is not None:
            record = decode_vote_record(file.payload, door)
            self.hard, self.birth = record.hard, record.birth
        if not self.birth.nonce:
            # Durable before any peer gets it: the nonce names this disk (dledger.bootstrap).
            self.save(
                self.hard, attrs.evolve(self.birth, nonce=random_source().randbytes(NONCE_BYTES))
            )

    def save(self, hard: HardState | None, birth: Birth | None = None) -> None:
        """Save the record, durably. Blocks for two fsyncs.

        Errors: StoreError, DiskFull; the record before it is still there.
        """
        birth = birth or self.birth
        self._file.save(encode_vote_record(hard, self._door, birth))
        self.hard, self.birth = hard, birth


def open_vote_file(config: StoreConfig, door: GroupDoor) -> VoteFile:
    """Open the vote record of this store, which must be open and locked.

    Errors: StoreError with the cure.
    """
    return VoteFile(vote_file(config), door)


@attrs.define(eq=False)
class Bootstrap:
    """Decides anew whenever a peer's note changes, until this member has begun."""

    _votes: VoteFile
    _door: GroupDoor
    _own_note: Callable[[], PeerNote]
    _notes: Callable[[], Mapping[str, PeerNote]]
    _events: EventSink
    waits_for: str = attrs.field(default="", init=False)
    """Human-readable reason why this member has not begun; empty once it has."""
    impaired: str = attrs.field(default="", init=False)
    """Human-readable reason why it is a copy without a vote; empty if it may vote."""
    _told: set[str] = attrs.field(factory=set, init=False)
    _heard: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def founders(self) -> Sequence[str]:
        return self._door.founders

    def on_notes(self) -> None:
        """Decide again: a peer's note has changed, came or is gone."""
        self._heard.set()

    async def run(self) -> None:
        """Wait until the vote record says that this member has begun.

        Errors: StoreError if the record cannot be saved.
        """
        while self._votes.hard is None:
            self._heard = trio.Event()
            decision = decide(self._door.member_id, self.founders, self._own_note(), self._notes())
            match decision:
                case Begin(birth):
                    self._votes.save(HardState(), birth)
                    if birth.founders:
                        members = sorted(birth.founders)
                        self._events.event("raft_founded", members=members, seed=birth.seed)
                    else:
                        self._events.event("raft_joined", group=self._door.group)
                case Impaired(reason):
                    self._votes.save(HardState(impaired=True))
                    self.impaired = reason
                    self._events.event("raft_impaired", reason=reason)
                case WaitForMembers(reason):
                    if reason not in self._told:
                        self._told.add(reason)
                        self._events.event("raft_waiting", reason=reason)
                    self.waits_for = reason
                    await self._heard.wait()
        self.waits_for = ""
