"""The callee's end of the connections between members: admits peers and checks their messages.

Requests 30040 to 30044 are one-way Raft messages, 30046 is the greeting that comes before them
(`dledger/peer_hello.py`). A peer that is not of this group gets the reason as the answer to its
greeting. A peer that breaks the protocol afterwards loses its connection. Either gets one line in
the journal, however often it tries again, and stays in the status while it goes on trying.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from trioha.dledger.bootstrap import NONCE_BYTES, PeerNote
from trioha.dledger.message_codec import GroupDoor, code_of
from trioha.dledger.messages import RaftMessage
from trioha.dledger.peer_hello import (
    HELLO,
    NOTE,
    PROOF,
    PeerHello,
    PeerProofs,
    hello_of,
    pack,
    proof_of,
    unpack,
)
from trioha.errors import RemoteProtocolError
from trioha.journal import EventSink
from trioha.journal.line_limits import LineLimits
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import random_source
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import Buffer, RemotingCommand

_MESSAGES = (
    RequestCode.TRIOHA_RAFT_VOTE,
    RequestCode.TRIOHA_RAFT_APPEND,
    RequestCode.TRIOHA_RAFT_HEARTBEAT,
    RequestCode.TRIOHA_RAFT_TRANSFER,
    RequestCode.TRIOHA_RAFT_INSTALL,
)
_REFUSAL_KEPT_MS = 60_000
_REFUSALS_MAX = 32


@attrs.define(eq=False)
class _Refusal:
    peer: str
    reason: str
    at_ms: int


class Refusals:
    """Rejected peers and peers that reject us, with the reason, until a minute after the last."""

    def __init__(self, clock: Clock, events: EventSink) -> None:
        self._clock = clock
        self._lines = LineLimits(events)
        self._kept: dict[tuple[str, str], _Refusal] = {}

    def add(self, peer: str, reason: str) -> None:
        """Note a rejection. `peer` has no port: it comes back from another one."""
        now_ms = self._clock.now_ms()
        self._forget(now_ms)
        known = self._kept.get((peer, reason))
        if known is not None:
            known.at_ms = now_ms
            return
        if len(self._kept) >= _REFUSALS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[peer, reason] = _Refusal(peer, reason, now_ms)
        self._lines.event("raft_refused", peer, now_ms, peer=peer, reason=reason)

    def plain(self) -> list[dict[str, object]]:
        now_ms = self._clock.now_ms()
        self._forget(now_ms)
        return [
            {"peer": one.peer, "reason": one.reason, "age_ms": now_ms - one.at_ms}
            for one in self._kept.values()
        ]

    def _forget(self, now_ms: int) -> None:
        for key, one in list(self._kept.items()):
            if now_ms - one.at_ms >= _REFUSAL_KEPT_MS:
                del self._kept[key]


@attrs.define(eq=False)
class Visitor:
    """A member that has connected to us."""

    hello: PeerHello
    nonce: bytes
    heard_ms: int
    is_in: bool = False
    """The peer has proved that it knows the secret."""


class PeerListener:
    """Handlers of members' greetings and Raft messages."""

    def __init__(
        self,
        door: GroupDoor,
        founders: Mapping[str, str],
        proofs: PeerProofs,
        refusals: Refusals,
        own_note: Callable[[], PeerNote],
        on_visitors: Callable[[], None],
        on_disconnected: Callable[[str], None],
        step: Callable[[RaftMessage], None],
    ) -> None:
        """`on_visitors`: called when a peer was admitted or has disconnected; `on_disconnected`:
        when the connection of a member that was admitted has ended."""
        self.visitors: dict[Channel, Visitor] = {}
        self._door = door
        self._founders = founders
        self._proofs = proofs
        self._refusals = refusals
        self._own_note = own_note
        self._on_visitors = on_visitors
        self._on_disconnected = on_disconnected
        self._step = step

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.TRIOHA_RAFT_HELLO: self.greet,
            **dict.fromkeys(_MESSAGES, self.receive),
        }

    def channel_closed(self, channel: Channel) -> None:
        visitor = self.visitors.pop(channel, None)
        if visitor is not None:
            self._on_visitors()
            if visitor.is_in:
                self._on_disconnected(visitor.hello.source)

    def has_visitor(self, member_id: str) -> bool:
        """Return whether a member is connected to us and has proved itself."""
        return any(
            visitor.is_in and visitor.hello.source == member_id
            for visitor in self.visitors.values()
        )

    def greet(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        """Answer HELLO, PROOF or NOTE; a rejection tells the reason."""
        try:
            fields = unpack(request.body_bytes())
            if fields[0] == HELLO:
                answer = self._hello(channel, fields, instant)
            elif fields[0] == PROOF:
                answer = self._proof(channel, fields, instant)
            else:
                answer = self._note(channel, fields, instant)
        except RemoteProtocolError as error:
            self._refuse(channel, str(error))
            return request.response(ResponseCode.NO_PERMISSION, str(error))
        return request.response(body=pack(answer))

    def receive(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Handle a Raft message of an admitted member. HOT."""
        visitor = self.visitors.get(channel)
        try:
            if visitor is None or not visitor.is_in:
                raise RemoteProtocolError("a Raft message on a connection without a proof")
            source = visitor.hello.source
            message = self._door.decode(cast("Buffer", request.body), (source,))
            if message.source != source or code_of(message) != request.code:
                raise RemoteProtocolError(f"a message of {message.source} came from {source}")
            visitor.heard_ms = instant.now_ms
            self._step(message)
        except RemoteProtocolError as error:
            self._refuse(channel, str(error))
            channel.close_nowait(str(error))

    def _hello(self, channel: Channel, fields: list[Any], instant: Instant) -> list[Any]:
        hello = hello_of(fields, self._door)
        address = self._founders.get(hello.source, hello.address)
        if address != hello.address:
            raise RemoteProtocolError(
                f"{hello.source} has the address {hello.address} in its dLegerPeers, but "
                f"{address} in those of {hello.target}; make them the same on all members"
            )
        nonce = random_source().randbytes(NONCE_BYTES)
        self.visitors[channel] = Visitor(hello, nonce, instant.now_ms)
        return [HELLO, nonce, self._proofs.of_callee(hello, nonce)]

    def _proof(self, channel: Channel, fields: list[Any], instant: Instant) -> list[Any]:
        visitor = self.visitors.get(channel)
        if visitor is None or visitor.is_in:
            raise RemoteProtocolError("a proof without a hello before it")
        proof = proof_of(fields)
        self._proofs.check_caller(visitor.hello, visitor.nonce, proof)
        visitor.is_in = True
        channel.mark_replication()
        visitor.heard_ms = instant.now_ms
        self._on_visitors()
        return [PROOF, self._own_note().plain()]

    def _note(self, channel: Channel, fields: list[Any], instant: Instant) -> list[Any]:
        visitor = self.visitors.get(channel)
        if visitor is None or not visitor.is_in:
            raise RemoteProtocolError("a request for a note on a connection without a proof")
        visitor.heard_ms = instant.now_ms
        return [NOTE, self._own_note().plain()]

    def _refuse(self, channel: Channel, reason: str) -> None:
        visitor = self.visitors.pop(channel, None)
        self._refusals.add(channel.peer.rpartition(":")[0], reason[:500])
        if visitor is not None and visitor.is_in:
            self._on_visitors()
