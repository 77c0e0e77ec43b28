"""Master's side of replication on Trio: accepts slaves and keeps the table of links (HAService).

Nothing here waits for acks: `Replicas` counts them, and the broker, called by `on_report`, answers
waiting sends in the scheduler pass that read them. It calls `on_log_grown` once per batch of
appends; what that sends, `slave_links` decides. So a replicated put needs no task switch on the
master between its append, its transfer, its ack and its answer. Whenever a link has ended or
stalled, `on_slave_lost` checks again whether a slave can still confirm a put.

A peer that has not reported holds one of a few places, and the oldest of them makes room for the
next. So probes that connect and stay do not pile up (fault C5) and keep no slave out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import trio

from trioha.config import BrokerConfig
from trioha.config.secret_files import ha_keyring
from trioha.ha import auth
from trioha.ha.auth import AccessPolicy, Admission
from trioha.ha.events import Term
from trioha.ha.master_connection import MasterConnection
from trioha.ha.replicas import Replicas, ReplicaStatistics
from trioha.journal import EventSink
from trioha.services.ha.master_link import HaMasterLink, LinkOwner, ShippedLog
from trioha.services.ha.master_link_tasks import serve_link
from trioha.services.ha.slave_links import SlaveLinks
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.descriptors import are_scarce
from trioha.services.loop.host import random_source
from trioha.services.loop.ringing import ring
from trioha.services.loop.transport import Transport
from trioha.wire import record

SLAVES_MAX = 64  # RocketMQ layouts have one or two slaves to a master
UNREPORTED_MAX = 64
UNREPORTED_SCARCE_MAX = 4  # while clients have taken nearly all descriptors
GATHER_S = 0.002
_HEAD_BYTES = 128  # a record's numbers, whatever its hosts


class HaListener(Protocol):
    """Accepts slaves' connections: `trioha.services.loop.transport.Listener`, or a fake."""

    async def accept(self) -> Transport: ...


def _nobody_waits() -> None:
    pass


def open_replicas(config: BrokerConfig, events: EventSink) -> Replicas:
    """Return the table of slaves for a master with these settings."""
    return Replicas(
        events,
        fallbehind_max=config.ha_slave_fallbehind_max,
        heartbeat_interval_ms=config.ha_send_heartbeat_interval,
        housekeeping_ms=config.ha_housekeeping_interval,
        stall_ms_max=config.slave_timeout,
    )


class HaMaster:
    """Every link of one master."""

    def __init__(
        self,
        *,
        store: ShippedLog,
        replicas: Replicas,
        config: BrokerConfig,
        events: EventSink,
        clock: Clock,
        on_report: Callable[[int], None],
        on_slave_lost: Callable[[], None] = _nobody_waits,
        term: Term | None = None,
        metadata_snapshot: Callable[[], tuple[int, bytes]] | None = None,
    ) -> None:
        """Make the master's side of all links; `serve` opens them.

        `on_report` gets the time in milliseconds, synchronously, after `replicas` has counted the
        acks of one read; `on_slave_lost` is called when a link has ended, and when one may have
        stalled. With `term` slaves may follow on extended links, each of which begins with
        `metadata_snapshot`, if given.
        Errors: ConfigError when haAllowedPeers is none.
        """
        self.replicas = replicas
        self._term = term
        self._alarm = Alarm(clock, replicas.next_deadline_ms, lambda _: self._on_time())
        self._store = store
        self._config = config
        self._events = events
        self._clock = clock
        self._tell_report = on_report
        self._on_slave_lost = on_slave_lost
        self._access = AccessPolicy.of(ha_keyring(config), config.ha_allowed_peers)
        self._owner = LinkOwner(
            store=store,
            replicas=replicas,
            clock=clock,
            housekeeping_s=config.ha_housekeeping_interval / 1000,
            on_report=self._on_report,
            metadata_snapshot=metadata_snapshot,
        )
        # Reported links, and the others in the order they came.
        self._reported = SlaveLinks(store, clock, self._alarm)
        # Bound here, so that a batch is not one more call deep.
        self.on_log_grown = self._reported.on_log_grown
        self.send_metadata_nowait = self._reported.send_metadata_nowait
        self._slaves = self._reported.links
        self._unreported: list[HaMasterLink] = []
        # Offsets acknowledged and sent on links that ended: the slave's log ends between the two.
        self._left: deque[tuple[int, int]] = deque(maxlen=SLAVES_MAX)
        self._ended = ""
        # Set only while `wait_transferred` waits: acks come thousands of times a second.
        self._moved: trio.Event | None = None

    async def serve(self, listener: HaListener) -> None:
        """Serve slaves until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ring, self._alarm, name="ha.alarm")
            nursery.start_soon(self._push_gathered, name="ha.push")
            while True:
                transport = await listener.accept()
                nursery.start_soon(self.serve_slave, transport, name=f"ha.conn[{transport.peer}]")

    def end_nowait(self, reason: str) -> None:
        """End every link, and take no ack from here on: this node is not master any more."""
        self._ended = reason
        for link in [*self._slaves, *self._unreported]:
            link.end_nowait(reason)

    async def _push_gathered(self) -> None:
        """Send bytes that no answer waits for, a little after the first of them."""
        gathering = self._reported.gathering
        while True:
            await gathering.event.wait()
            await trio.sleep(GATHER_S)
            gathering.clear()
            self._reported.push()

    def statistics(self) -> tuple[ReplicaStatistics, ...]:
        return self.replicas.statistics(self._store.max_phy_offset, self._clock.now_ms())

    async def wait_transferred(self, metadata_position: int = -1) -> None:
        """Wait until every slave in sync holds the whole log, before a planned stop.

        A slave that gets metadata must hold it too, up to that position.
        """
        while any(
            row.in_sync and (row.gap_bytes or -1 < row.metadata_ack_position < metadata_position)
            for row in self.statistics()
        ):
            if self._moved is None:
                self._moved = trio.Event()
            await self._moved.wait()

    async def serve_slave(self, transport: Transport) -> None:
        """Serve one peer until its link ends. A fault of the peer ends its link alone."""
        try:
            admission = self._access.admission(transport.peer)
            if admission is Admission.REFUSED:
                self._refuse(transport.peer, "not in haAllowedPeers, and there is no haSecret")
            elif self._ended:
                self._refuse(transport.peer, self._ended)
            elif len(self._slaves) >= SLAVES_MAX:
                self._refuse(transport.peer, f"{SLAVES_MAX} slaves follow already")
            else:
                await self._serve_link(transport, admission)
        finally:
            transport.close()

    async def _serve_link(self, transport: Transport, admission: Admission) -> None:
        config = self._config
        challenge = b""
        if admission is Admission.CHALLENGE:
            challenge = auth.challenge(random_source().randbytes(auth.NONCE_BYTES))
        connection = MasterConnection(
            segment_bytes=config.mapped_file_size_commit_log,
            transfer_batch_bytes_max=config.ha_transfer_batch_size,
            heartbeat_interval_ms=config.ha_send_heartbeat_interval,
            empty_slave_from_last=config.ha_empty_slave_from == "last",
            secret=self._access.secret,
            challenge=challenge,
            term=self._term,
        )
        replica = self.replicas.connect(transport.peer, self._clock.now_ms())
        link = HaMasterLink(self._owner, transport, connection, replica)
        few = len(self._unreported) >= UNREPORTED_SCARCE_MAX and are_scarce()
        if few or len(self._unreported) >= UNREPORTED_MAX:
            self._unreported[0].end_nowait("made room for a newer peer before it reported")
            del self._unreported[0]
        self._unreported.append(link)
        try:
            await serve_link(link, challenge)
        finally:
            self._forget(link)

    def _on_report(self, link: HaMasterLink, first: bool, now_ms: int) -> None:
        if self._ended:
            return
        if first:
            if link in self._unreported:
                self._unreported.remove(link)
            self._slaves.append(link)
            offset = link.replica.slave_ack_offset
            self._events.event("ha_connected", peer=link.peer, offset=offset)
            if reason := self._doubt(offset):
                self.replicas.doubt(link.replica, reason)
        self._tell_report(now_ms)
        if self._moved is not None:
            self._tell_moved()
        self._alarm.check()

    def _on_time(self) -> None:
        self.replicas.on_time(self._store.max_phy_offset, self._clock.now_ms())
        self._on_slave_lost()
        self._tell_moved()

    def _forget(self, link: HaMasterLink) -> None:
        for table in (self._slaves, self._unreported):
            if link in table:
                table.remove(link)
        acknowledged = link.replica.slave_ack_offset
        self.replicas.disconnect(link.replica, self._store.max_phy_offset)
        if link.refused:
            self._refuse(link.peer, link.reason)
        elif link.reported:
            reason = link.reason or "this node stops serving slaves"
            self._left.append((acknowledged, link.replica.next_transfer_offset))
            self.replicas.lose(link.peer, reason, self._clock.now_ms())
        # A peer that connects and leaves without a byte is a probe: the journal has no line for it.
        self._on_slave_lost()
        self._tell_moved()

    def _doubt(self, offset: int) -> str:
        """Return the reason to doubt a slave's log that ends at `offset`; "" for none.

        The classic protocol tells only the end of a log. If that lies within one of our records,
        either an earlier link broke there, or the bytes before it differ from ours.
        """
        store = self._store
        if not store.min_phy_offset < offset < store.max_phy_offset:
            return ""
        try:
            found = record.peek(store.read_log(offset, _HEAD_BYTES), 0)
        except record.RecordError:
            # Less than a header before the end of a segment: only a blank is that short.
            return ""
        if found.magic == record.BLANK_MAGIC or found.phy_offset == offset:
            return ""
        if any(begin <= offset <= end for begin, end in self._left):
            return ""
        return (
            f"the slave's log ends at {offset}, within one of our records: either a link broke "
            "there before this node started, or its log differs from ours; compare with "
            "`trioha log diff`"
        )

    def _refuse(self, peer: str, reason: str) -> None:
        self.replicas.refuse(peer, reason, self._clock.now_ms())

    def _tell_moved(self) -> None:
        if self._moved is not None:
            self._moved.set()
            self._moved = None
