"""The asking end of the connections between members: one to each, over which we send.

What a peer answers to a Raft message it sends over its own connection to us, so either direction
can fail by itself, and does in networks that are cut one way.

Messages leave in the scheduler pass that made them (decision 6). What cannot leave is dropped:
while there is no connection, and beyond `OUTBOX_BYTES_MAX`; the core asks again. A peer that reads
nothing for `WRITE_S` loses its connection, for what would be sent to it is old by then.

A note is asked for every second. It is how a member that has not begun hears of the others, and how
a connection into a black hole is noticed: TCP alone would try for a quarter of an hour, and after
the hole has healed not again for a minute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import trio

from trioha.dledger.bootstrap import NONCE_BYTES, PeerNote
from trioha.dledger.message_codec import GroupDoor, code_of
from trioha.dledger.messages import Message
from trioha.dledger.peer_hello import NOTE, PROOF, PeerHello, PeerProofs, pack, unpack
from trioha.errors import RemoteProtocolError, TriohaError, Unreachable
from trioha.journal import EventSink
from trioha.services.clock import Clock
from trioha.services.dledger_listener import Refusals
from trioha.services.remoting_client import RemotingClient
from trioha.services.remoting_link import LinkLimits, Outboxes, RemotingLink
from trioha.services.transport import Connect, Transport, connect, parse_address
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode, SerializeType
from trioha.wire.remoting_command import RemotingCommand

CONNECT_S = 1.0  # a lost SYN comes again after 1 s; a new attempt is as good
GREETING_S = 2.0
NOTE_INTERVAL_S = 1.0
NOTE_S = 3.0
_SLOW_LINK_BYTES_PER_S = 262_144  # what lies in the outbox before a note gets time at this rate
PAUSE_MIN_S, PAUSE_MAX_S = 0.02, 0.2
REFUSED_PAUSE_MAX_S = 2.0
WRITE_S = 0.5
OUTBOX_BYTES_MAX = 16 << 20
"""Two windows (`RaftSettings.inflight_bytes_max`): one lost and one sent again."""


class PeerLink:
    """The connection to one member, again and again."""

    def __init__(self, links: PeerLinks, member_id: str, address: str) -> None:
        self.member_id = member_id
        self.address = address
        self.note: PeerNote | None = None
        """What it says of itself; None while we are not connected."""
        self.rtt_ms: float | None = None
        self.heard_ms: int | None = None
        self.last_error = ""
        self.dropped = 0
        """Messages that did not leave."""
        self._links = links
        self._channel: RemotingLink | None = None
        self._connects = 0
        self._again = trio.Event()
        self._scope = trio.CancelScope()

    @property
    def connected(self) -> bool:
        return self._channel is not None

    @property
    def outbox_bytes(self) -> int:
        """What waits to be sent."""
        return self._channel.outbox_bytes if self._channel is not None else 0

    def send(self, message: Message) -> None:
        """HOT."""
        channel = self._channel
        if channel is None or channel.outbox_bytes > OUTBOX_BYTES_MAX:
            self.dropped += 1
            return
        channel.send_nowait(
            RemotingCommand(
                code_of(message),
                None,
                self._links.door.encode(message),
                flag=ONEWAY_FLAG,
                serialize_type=SerializeType.ROCKETMQ,
                encoded_fields=b"",
            )
        )

    def hurry(self) -> None:
        """Connect, or ask for a note, now rather than after the pause."""
        self._again.set()

    def stop(self) -> None:
        self._scope.cancel()

    async def run(self) -> None:
        """Keep a connection until stopped."""
        pause_s = PAUSE_MIN_S
        with self._scope:
            while True:
                connects, began_s = self._connects, trio.current_time()
                is_no_use = await self._attempt()
                if self._connects != connects:
                    if trio.current_time() - began_s >= NOTE_INTERVAL_S:
                        pause_s = PAUSE_MIN_S
                    else:
                        # Let in and thrown out again, for what we say: that will not be the last.
                        is_no_use = True
                pause_s = min(pause_s * 2, REFUSED_PAUSE_MAX_S if is_no_use else PAUSE_MAX_S)
                await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        with trio.move_on_after(pause_s):
            await self._again.wait()
        self._again = trio.Event()

    async def _attempt(self) -> bool:
        """One connection until it ends; True if it was no use to try again soon."""
        links = self._links
        transport: Transport | None = None
        reason = f"cannot connect to {self.address} within {CONNECT_S:g} s"
        with trio.move_on_after(CONNECT_S):
            try:
                transport = await links.connect_to(*parse_address(self.address))
            except (OSError, TriohaError) as error:
                reason = f"cannot connect to {self.address}: {error}"
        if transport is None:
            self._tell_end(reason)
            return False
        link = RemotingLink(
            transport,
            links.clock,
            limits=LinkLimits(idle_s=float("inf"), write_s=WRITE_S, outbox_bytes_max=1 << 40),
            outboxes=links.outboxes,
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
        self._tell_end(str(failure or link.close_reason or f"{self.member_id} has closed it"))
        return False

    async def _converse(self, link: RemotingLink) -> None:
        """Greet, then exchange notes until the connection ends.

        Errors: RemoteProtocolError when it turns us away, or we it; Unreachable for silence.
        """
        client = RemotingClient(link)
        note: PeerNote | None = None
        with trio.move_on_after(GREETING_S):
            note = await self._greet(client)
        if note is None:
            raise Unreachable(f"no answer to our greeting in {GREETING_S:g} s")
        self._channel = link
        self._connects += 1
        self.last_error = ""
        self._links.events.event("raft_connected", peer=self.member_id, address=self.address)
        self._noted(note)
        while True:
            await self._pause(NOTE_INTERVAL_S)
            asked_s = trio.current_time()
            patience_s = NOTE_S + link.outbox_bytes / _SLOW_LINK_BYTES_PER_S
            note = None
            with trio.move_on_after(patience_s):
                note = await self._exchange(client, [NOTE], NOTE)
            if note is None:
                raise Unreachable(f"no sign of life in {patience_s:.3g} s")
            self.rtt_ms = round((trio.current_time() - asked_s) * 1000, 3)
            self._noted(note)

    async def _greet(self, client: RemotingClient) -> PeerNote:
        links = self._links
        hello = PeerHello.of(links.door, self.member_id, links.own_address, os.urandom(NONCE_BYTES))
        answer = await self._ask(client, hello.plain())
        if len(answer) != 3 or type(answer[1]) is not bytes or type(answer[2]) is not bytes:
            raise RemoteProtocolError("an answer to our hello that this version does not know")
        _, nonce, proof = answer
        links.proofs.check_callee(hello, nonce, proof)
        return await self._exchange(client, [PROOF, links.proofs.of_caller(hello, nonce)], PROOF)

    async def _exchange(self, client: RemotingClient, fields: list[Any], kind: str) -> PeerNote:
        answer = await self._ask(client, fields)
        if len(answer) != 2 or answer[0] != kind:
            raise RemoteProtocolError("an answer to our note that this version does not know")
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
        self.heard_ms = self._links.clock.now_ms()
        changed, self.note = note != self.note, note
        if changed:
            self._links.on_notes()

    def _disconnected(self) -> None:
        self._channel = self.rtt_ms = None
        if self.note is not None:
            self.note = None
            self._links.on_notes()

    def _tell_end(self, reason: str) -> None:
        if reason != self.last_error:  # a peer may be away for hours: one line is enough
            self._links.events.event("raft_disconnected", peer=self.member_id, reason=reason)
        self.last_error = reason


class PeerLinks:
    """Our connections to the others."""

    def __init__(
        self,
        door: GroupDoor,
        proofs: PeerProofs,
        refusals: Refusals,
        own_address: str,
        on_notes: Callable[[], None],
        outboxes: Outboxes,
        clock: Clock,
        events: EventSink,
        *,
        connect_to: Connect = connect,
    ) -> None:
        self.door = door
        self.proofs = proofs
        self.refusals = refusals
        self.own_address = own_address
        self.on_notes = on_notes
        """Somebody's note has changed, came or went."""
        self.outboxes = outboxes
        self.clock = clock
        self.events = events
        self.connect_to = connect_to
        self.unknown = 0
        """Messages to somebody whose address we do not know."""
        self._links: dict[str, PeerLink] = {}
        self._nursery: trio.Nursery | None = None

    def send(self, message: Message) -> None:
        """Send, or drop. HOT. Called within a batch of `outboxes`, or it costs a task switch."""
        link = self._links.get(message.target)
        if link is None:
            self.unknown += 1
        else:
            link.send(message)

    def set_peers(self, addresses: Mapping[str, str]) -> None:
        """These are to be connected to, and nobody else."""
        for member_id, link in list(self._links.items()):
            if addresses.get(member_id) != link.address:
                link.stop()
                del self._links[member_id]
        for member_id, address in sorted(addresses.items()):
            if member_id not in self._links:
                link = self._links[member_id] = PeerLink(self, member_id, address)
                if self._nursery is not None:
                    self._start(self._nursery, link)

    def hurry(self, member_id: str) -> None:
        """This one is there: it has just come to us."""
        link = self._links.get(member_id)
        if link is not None and not link.connected:
            link.hurry()

    def links(self) -> list[PeerLink]:
        return [link for _, link in sorted(self._links.items())]

    def notes(self) -> dict[str, PeerNote]:
        return {
            member_id: link.note for member_id, link in self._links.items() if link.note is not None
        }

    def plain(self) -> list[dict[str, object]]:
        now_ms = self.clock.now_ms()
        return [
            {
                "peer": member_id,
                "address": link.address,
                "connected": link.connected,
                "rtt_ms": link.rtt_ms,
                "heard_age_ms": None if link.heard_ms is None else now_ms - link.heard_ms,
                "last_error": link.last_error,
                "dropped": link.dropped,
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
