"""All connections of a member to its peers, in both directions, as its configuration changes.

We connect to the members, and to every peer that has connected to us and proved itself: it waits
for answers, which go over our connection to it. So a leader that was added while we were away
reaches us, and a member that will be added gets messages of the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trioha.dledger.bootstrap import PeerNote
from trioha.dledger.messages import RaftMessage
from trioha.dledger.peer_hello import PeerProofs
from trioha.dledger.settings import MEMBERS_MAX
from trioha.services.raft.interfaces import MemberContext, MemberSetup
from trioha.services.raft.links import PeerLinks
from trioha.services.raft.listener import PeerListener, Refusals


class Peers:
    """Both ends of all connections to other members."""

    def __init__(
        self,
        setup: MemberSetup,
        own_note: Callable[[], PeerNote],
        on_notes: Callable[[], None],
        on_lost: Callable[[str], None],
        step: Callable[[RaftMessage], None],
        context: MemberContext,
    ) -> None:
        """`on_lost`: called when no connection with a member is left, in either direction."""
        self.refusals = Refusals(context.clock, context.events)
        proofs = PeerProofs(setup.secret)
        self.links = PeerLinks(
            setup.door,
            proofs,
            self.refusals,
            setup.address,
            on_notes,
            self._on_disconnected,
            context,
        )
        self.listener = PeerListener(
            setup.door,
            setup.founders,
            proofs,
            self.refusals,
            own_note,
            self._on_visitors,
            self._on_disconnected,
            step,
        )
        self._on_lost = on_lost
        self.send = self.links.sends.send
        self._address = setup.address
        self._members: Mapping[str, str] = {}

    def set_members(self, addresses: Mapping[str, str]) -> None:
        """Set the addresses of the other members, as far as they are known."""
        self._members = addresses
        self._follow()

    def notes(self) -> Mapping[str, PeerNote]:
        """Return the notes of the peers that we are connected to, usually at most a second old."""
        return self.links.notes()

    def _on_disconnected(self, member_id: str) -> None:
        if not (self.links.is_connected(member_id) or self.listener.has_visitor(member_id)):
            self._on_lost(member_id)

    def _on_visitors(self) -> None:
        self._follow()
        for visitor in self.listener.visitors.values():
            if visitor.is_in:
                self.links.hurry(visitor.hello.source)

    def _follow(self) -> None:
        strangers: dict[str, str] = {}
        for visitor in self.listener.visitors.values():
            source = visitor.hello.source
            if visitor.is_in and len(strangers) < MEMBERS_MAX:
                strangers[source] = visitor.hello.address
        wanted = {**strangers, **self._members}
        # A member that replaces a founder may have its address: do not connect to ourselves.
        self.links.set_peers({one: at for one, at in wanted.items() if at != self._address})
