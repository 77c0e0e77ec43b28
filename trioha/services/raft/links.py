"""The caller's end of the connections between members: one to each peer, for our messages.

A peer sends its answers to Raft messages over its own connection to us. So each direction can fail
alone, as it does in networks that are cut one way.

Messages leave by `peer_sends`. A peer that reads nothing for `WRITE_S` loses its connection, since
the queued messages are out of date by then.

We ask each peer for a note every second. From notes a member that has not begun learns of the
others. And a missing note shows a connection whose packets are lost without an error: TCP alone
would try for a quarter of an hour, and after the network has healed not again for a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import trio

from trioha.dledger.bootstrap import NONCE_BYTES, PeerNote
from trioha.dledger.message_codec import GroupDoor
from trioha.dledger.peer_hello import NOTE, PROOF, PeerHello, PeerProofs, pack, unpack
from trioha.errors import RemoteProtocolError, TriohaError, Unreachable
from trioha.services.loop.host import random_source
from trioha.services.loop.transport import Transport, parse_address
from trioha.services.raft.interfaces import MemberContext
from trioha.services.raft.listener import Refusals
from trioha.services.raft.peer_sends import PeerOutlet, PeerSends
from trioha.services.remoting.client import RemotingClient
from trioha.services.remoting.link import LinkLimits, RemotingLink
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

CONNECT_S = 1.0  # TCP repeats a lost SYN after 1 s; a new attempt is as good
GREETING_S = 2.0
NOTE_INTERVAL_S = 1.0
NOTE_S = 3.0
_SLOW_LINK_BYTES_PER_S = 262_144  # patience for a note grows by the outbox at this rate
PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.2
REFUSED_PAUSE_MAX_S = 2.0
WRITE_S = 0.5


class PeerLink:
    """The connection to one member; connects again whenever it ends."""

    def __init__(self, links: PeerLinks, member_id: str, address: str) -> None:
        self.member_id = member_id
        self.address = address
        self.note: PeerNote | None = None
        """The peer's newest note; None while we are not connected."""
        self.rtt_ms: float | None = None
        self.heard_ms: int | None = None
        self.last_error = ""
        self.outlet = PeerOutlet(links.door)
        self._links = links
        self._events = links.context.events
        self._connects = 0
        self._again = trio.Event()
        self._scope = trio.CancelScope()

    @property
    def connected(self) -> bool:
        return self.outlet.channel is not None

    @property
    def outbox_bytes(self) -> int:
        """Bytes that wait to be sent."""
        channel = self.outlet.channel
        return channel.outbox_bytes if channel is not None else 0

    def hurry(self) -> None:
        """End the pause: connect, or ask for a note, now."""
        self._again.set()

    def stop(self) -> None:
        self._scope.cancel()

    async def run(self) -> None:
        """Keep a connection until `stop`."""
        pause_s = PAUSE_MIN_S
        with self._scope:
            while True:
                connects, began_s = self._connects, trio.current_time()
                was_rejected = await self._attempt()
                if self._connects != connects:
                    if trio.current_time() - began_s >= NOTE_INTERVAL_S:
                        pause_s = PAUSE_MIN_S
                    else:
                        # Admitted and closed at once, for what we sent: that will happen again.
                        was_rejected = True
                pause_s = min(pause_s * 2, REFUSED_PAUSE_MAX_S if was_rejected else PAUSE_MAX_S)
                await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        with trio.move_on_after(pause_s):
            await self._again.wait()
        self._again = trio.Event()

    async def _attempt(self) -> bool:
        """Keep one connection until it ends; return True if either end rejected the other."""
        links = self._links
        transport: Transport | None = None
        reason = f"cannot connect to {self.address} within {CONNECT_S:g} s"
        with trio.move_on_after(CONNECT_S):
            try:
                transport = await links.context.connect_to(*parse_address(self.address))
            except (OSError, TriohaError) as error:
                reason = f"cannot connect to {self.address}: {error}"
        if transport is None:
            self._tell_end(reason)
            return False
        link = RemotingLink(
            transport,
            links.context.clock,
            limits=LinkLimits(idle_s=float("inf"), write_s=WRITE_S, outbox_bytes_max=1 << 40),
            outboxes=links.context.outboxes,
        )
        failure: TriohaError | None = None
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                await link.serve()
                nursery.cancel_scope.cancel()

            nursery.start_soon(serve, name=f"remoting.client[{self.address}]")
            try:
                await self._converse(link)
            except TriohaError as error:
                failure = error  # a nursery would wrap it
            finally:
                self._disconnected()
            nursery.cancel_scope.cancel()
        if isinstance(failure, RemoteProtocolError):
            self.last_error = str(failure)
            links.refusals.add(self.member_id, self.last_error)
            return True
        self._tell_end(
            str(failure or link.close_reason or f"{self.member_id} closed the connection")
        )
        return False

    async def _converse(self, link: RemotingLink) -> None:
        """Greet, then exchange notes until the connection ends.

        Errors: RemoteProtocolError if either end rejects the other; Unreachable without an answer.
        """
        client = RemotingClient(link, self._links.context.sign)
        note: PeerNote | None = None
        with trio.move_on_after(GREETING_S):
            note = await self._greet(client)
        if note is None:
            raise Unreachable(f"no answer to our greeting within {GREETING_S:g} s")
        self.outlet.channel = link.sender
        self._connects += 1
        self.last_error = ""
        self._events.event("raft_connected", peer=self.member_id, address=self.address)
        self._noted(note)
        while True:
            await self._pause(NOTE_INTERVAL_S)
            asked_s = trio.current_time()
            patience_s = NOTE_S + link.outbox_bytes / _SLOW_LINK_BYTES_PER_S
            note = None
            with trio.move_on_after(patience_s):
                note = await self._exchange(client, [NOTE], NOTE)
            if note is None:
                raise Unreachable(f"no answer to our note within {patience_s:.3g} s")
            self.rtt_ms = round((trio.current_time() - asked_s) * 1000, 3)
            self._noted(note)

    async def _greet(self, client: RemotingClient) -> PeerNote:
        links = self._links
        hello = PeerHello.of(
            links.door, self.member_id, links.own_address, random_source().randbytes(NONCE_BYTES)
        )
        answer = await self._ask(client, hello.plain())
        if len(answer) != 3 or type(answer[1]) is not bytes or type(answer[2]) is not bytes:
            raise RemoteProtocolError(
                "this version does not know the peer's answer to our hello; run the same version "
                "on all members"
            )
        _, nonce, proof = answer
        links.proofs.check_callee(hello, nonce, proof)
        return await self._exchange(client, [PROOF, links.proofs.of_caller(hello, nonce)], PROOF)

    async def _exchange(self, client: RemotingClient, fields: list[Any], kind: str) -> PeerNote:
        answer = await self._ask(client, fields)
        if len(answer) != 2 or answer[0] != kind:
            raise RemoteProtocolError(
                "this version does not know the peer's answer to our note; run the same version "
                "on all members"
            )
        return PeerNote.of_plain(answer[1])

    async def _ask(self, client: RemotingClient, fields: list[Any]) -> list[Any]:
        response = await client.request(
            RemotingCommand(RequestCode.TRIOHA_RAFT_HELLO, {}, pack(fields))
        )
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise RemoteProtocolError(
                f"{self.address} is no member of a DLEDGER group; compare dLegerPeers with "
                "the listenPort of each member"
            )
        if response.code != ResponseCode.SUCCESS:
            raise RemoteProtocolError(response.remark or f"refused with code {response.code}")
        return unpack(response.body_bytes())

    def _noted(self, note: PeerNote) -> None:
        self.heard_ms = self._links.context.clock.now_ms()
        changed, self.note = note != self.note, note
        if changed:
            self._links.on_notes()

    def _disconnected(self) -> None:
        was_connected, self.outlet.channel, self.rtt_ms = self.connected, None, None
        if was_connected:
            self._links.on_disconnected(self.member_id)
        if self.note is not None:
            self.note = None
            self._links.on_notes()

    def _tell_end(self, reason: str) -> None:
        if reason != self.last_error:  # a peer may be down for hours: one line is enough
            self._events.event("raft_disconnected", peer=self.member_id, reason=reason)
        self.last_error = reason


@attrs.define(eq=False)
class PeerLinks:
    """Our connections to all peers."""

    door: GroupDoor
    proofs: PeerProofs
    refusals: Refusals
    own_address: str
    on_notes: Callable[[], None]
    """Called when a peer's note has changed, came or is gone."""
    on_disconnected: Callable[[str], None]
    """Called when our connection to a member has ended."""
    context: MemberContext
    sends: PeerSends = attrs.field(factory=PeerSends, init=False)
    _links: dict[str, PeerLink] = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def set_peers(self, addresses: Mapping[str, str]) -> None:
        """Connect to these members, and disconnect all others."""
        for member_id, link in list(self._links.items()):
            if addresses.get(member_id) != link.address:
                link.stop()
                del self._links[member_id], self.sends.outlets[member_id]
        for member_id, address in sorted(addresses.items()):
            if member_id not in self._links:
                link = self._links[member_id] = PeerLink(self, member_id, address)
                self.sends.outlets[member_id] = link.outlet
                if self._nursery is not None:
                    self._start(self._nursery, link)

    def hurry(self, member_id: str) -> None:
        """Connect to this member now: it has just connected to us."""
        link = self._links.get(member_id)
        if link is not None and not link.connected:
            link.hurry()

    def is_connected(self, member_id: str) -> bool:
        link = self._links.get(member_id)
        return link is not None and link.connected

    def links(self) -> list[PeerLink]:
        return [link for _, link in sorted(self._links.items())]

    def notes(self) -> dict[str, PeerNote]:
        return {
            member_id: link.note for member_id, link in self._links.items() if link.note is not None
        }

    def plain(self) -> list[dict[str, object]]:
        now_ms = self.context.clock.now_ms()
        return [
            {
                "peer": member_id,
                "address": link.address,
                "connected": link.connected,
                "rtt_ms": link.rtt_ms,
                "heard_age_ms": None if link.heard_ms is None else now_ms - link.heard_ms,
                "last_error": link.last_error,
                "dropped": link.outlet.dropped,
            }
            for member_id, link in sorted(self._links.items())
        ]

    async def run(self) -> None:
        """Keep the connections until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for link in self._links.values():
                self._start(nursery, link)
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _start(self, nursery: trio.Nursery, link: PeerLink) -> None:
        nursery.start_soon(link.run, name=f"raft.link[{link.member_id}]")
