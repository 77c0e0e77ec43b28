"""One connection from a slave to its master: what is appended and reported, and a lease on reads.

Every read is appended and acknowledged in the scheduler pass that brought it, with one report for
all its frames; then `on_appended` is called. The tasks of the connection are in
`client_link_tasks`: one of them speaks when nothing arrives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

import attrs
import trio

from trioha.config import BrokerConfig
from trioha.config.secret_files import ha_keyring
from trioha.ha.events import LogTransferred, MetadataTransferred, Term
from trioha.ha.slave_connection import SlaveConnection
from trioha.journal import EventSink
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import Buffer

LINK_READ_BYTES_MAX = 1 << 20  # of one pass: half a millisecond; a pass costs as much as 30 KB
FULL_READ_BYTES: Final = 1 << 17  # after a read this long more lies in the kernel
_LEASE_STEP_S: Final = 0.1  # moving a deadline costs a heap operation: ten times a second is enough
_PROGRESS_INTERVAL_MS: Final = 1000


class LogSink(Protocol):
    """The log that a slave appends to: part of `trioha.store.interface.MessageStore`."""

    @property
    def max_phy_offset(self) -> int: ...
    @property
    def dispatched_offset(self) -> int: ...
    def append_log(self, phy_offset: int, data: Buffer) -> None: ...


@attrs.frozen(kw_only=True)
class SlaveContext:
    """Parts that all the links of a slave share."""

    store: LogSink
    config: BrokerConfig
    events: EventSink
    clock: Clock
    on_appended: Callable[[], None]
    """Called synchronously after each read that brought log."""
    on_metadata: Callable[[int, bytes], None] | None = None
    """Called with each piece of metadata, synchronously and in order with `append_log`."""


class HaClientLink:
    """The link to one master, which `client_link_tasks.follow_master` serves."""

    def __init__(
        self,
        context: SlaveContext,
        transport: Transport,
        *,
        term: Term | None = None,
        home_id: int = 0,
    ) -> None:
        """`term`: the term of the handshake, for an extended link."""
        config, store = context.config, context.store
        self.peer = transport.peer
        self.reason = ""
        """Reason why the link ended; "" while it lives, and when this node itself ends it."""
        self.refused = False
        """The logs differ, a proof is missing, or the master hung up before it accepted us."""
        self.store_failed = False
        """True if our own log rejected the bytes."""
        self.catching_up = False
        """True while reads come back full."""
        self.last_read_ms: int | None = None
        self.transport = transport
        self._store = store
        self._events = context.events
        self.clock = context.clock
        self._on_appended = context.on_appended
        self._on_metadata = context.on_metadata
        self.epoch = 0 if term is None else term.epoch
        """Epoch of an extended link; 0 for a classic one."""
        self._connected_ms = now_ms = context.clock.now_ms()
        self.connection = SlaveConnection(
            store.max_phy_offset,
            now_ms,
            report_interval_ms=config.ha_send_heartbeat_interval,
            secret=ha_keyring(config),
            # A link that was cut may have left half a record: only dispatched bytes end at one.
            at_record=store.dispatched_offset == store.max_phy_offset,
            term=term,
            home_id=home_id,
        )
        self.housekeeping_s = config.ha_housekeeping_interval / 1000
        self._late_after_ms = 2 * config.ha_send_heartbeat_interval
        self._late = False
        self._told_ms = now_ms
        self._told_offset = self.connection.max_phy_offset
        self.rest: list[Buffer] = []
        """The rest of a report that the kernel has not taken."""
        self.ended = False
        self._lease_renewed_s = -math.inf
        self.scope: trio.CancelScope | None = None
        """Scope of the tasks, while they run."""

    @property
    def heard(self) -> bool:
        """Has the master accepted us, by a frame that fits?"""
        return self.connection.heard

    @property
    def gap_bytes(self) -> int:
        return self.connection.gap_bytes

    @property
    def metadata_position(self) -> int:
        """Master's position of the last metadata taken; -1 until its snapshot has come."""
        return self.connection.metadata_position

    def end_nowait(self, reason: str) -> None:
        """End the link: from this pass on nothing is appended and nothing acknowledged."""
        self.ended = True
        self.reason = self.reason or reason
        if self.scope is not None:
            self.scope.cancel()

    def refuse_nowait(self, reason: str) -> None:
        """End the link because of what the master has sent: trying again soon would be no use."""
        self.refused = True
        self.end_nowait(reason)

    def broken_off(self, reason: str) -> str:
        left = self.connection.frame_bytes_left
        return f"{reason}, {left} bytes before the end of a frame" if left else reason

    def take(self, data: bytes) -> bool:
        """Append and report what one read has brought. False: the read task has to go on. HOT."""
        connection, now_ms = self.connection, self.clock.now_ms()
        if self.ended:
            return False  # it was on its way to us when the link was ended
        if self._late:
            self._late = False
            gap_ms = now_ms - self._silent_since_ms
            self._events.event("ha_heartbeat_resumed", peer=self.peer, gap_ms=gap_ms)
        self.last_read_ms = now_ms
        self._renew_lease(now_ms)
        before = connection.heard
        connection.receive_data(data)
        self._take_events()
        self.catching_up = len(data) >= FULL_READ_BYTES
        if connection.heard and not before:
            self._events.event("ha_connected", peer=self.peer, offset=connection.max_phy_offset)
        return self.report(now_ms)

    def _take_events(self) -> None:
        """Append what has come; tell the dispatcher even if a full disk stops it half-way."""
        connection = self.connection
        appended = False
        try:
            while (event := connection.next_event()) is not NEED_DATA:
                if isinstance(event, LogTransferred):
                    self._store.append_log(event.phy_offset, event.body)
                    appended = True
                elif isinstance(event, MetadataTransferred) and self._on_metadata is not None:
                    self._on_metadata(event.position, event.body)
        finally:
            if appended:
                self._on_appended()

    def report(self, now_ms: int) -> bool:
        """Send the reports that are due. False: `_send_rest` has to go on."""
        if self.rest or self.ended:
            return True  # who sends the rest looks again
        while report := self.connection.report(now_ms, in_bulk=self.catching_up):
            self.rest = self.transport.try_send([report])
            if self.rest:
                return False
        if now_ms - self._told_ms >= _PROGRESS_INTERVAL_MS:
            self.tell_progress(now_ms)
        return True

    @property
    def _silent_since_ms(self) -> int:
        return self._connected_ms if self.last_read_ms is None else self.last_read_ms

    def notice_silence(self, now_ms: int) -> None:
        age_ms = now_ms - self._silent_since_ms
        if not self._late and age_ms >= self._late_after_ms:
            self._late = True
            self._events.event("ha_heartbeat_late", peer=self.peer, age_ms=age_ms)

    def tell_progress(self, now_ms: int) -> None:
        offset = self.connection.max_phy_offset
        if offset != self._told_offset:
            self._told_ms, self._told_offset = now_ms, offset
            gap_bytes = self.connection.gap_bytes
            self._events.event(
                "ha_progress",
                peer=self.peer,
                ack_offset=offset,
                max_phy_offset=offset + gap_bytes,
                gap_bytes=gap_bytes,
            )

    def _renew_lease(self, now_ms: int) -> None:
        now_s = now_ms / 1000
        if now_s - self._lease_renewed_s >= _LEASE_STEP_S and self.scope is not None:
            self._lease_renewed_s = now_s
            self.scope.deadline = now_s + self.housekeeping_s + _LEASE_STEP_S
