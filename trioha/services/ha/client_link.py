"""One connection from a slave to its master: a read task, a report task, and a lease on reads.

Every read is appended and acknowledged in the scheduler pass that brought it, with one report for
all its frames; then `on_appended` is called. The report task speaks when nothing arrives.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol

import attrs
import trio

from trioha.config import BrokerConfig
from trioha.config.secret_files import ha_keyring
from trioha.errors import RemoteProtocolError, StoreError
from trioha.ha.events import LogTransferred, MetadataTransferred, Term
from trioha.ha.slave_connection import SlaveConnection
from trioha.journal import EventSink
from trioha.services.loop.clock import Clock, sleep_until_ms
from trioha.services.loop.transport import Transport
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import Buffer

LINK_READ_BYTES_MAX = 1 << 20  # of one pass: half a millisecond; a pass costs as much as 30 KB
FULL_READ_BYTES = 1 << 17  # after a read this long more lies in the kernel
_LEASE_STEP_S = 0.1  # moving a deadline costs a heap operation: ten times a second is enough
_PROGRESS_INTERVAL_MS = 1000


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
    """Follows one master until either side ends the connection."""

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
        self._transport = transport
        self._store = store
        self._events = context.events
        self._clock = context.clock
        self._on_appended = context.on_appended
        self._on_metadata = context.on_metadata
        self.epoch = 0 if term is None else term.epoch
        """Epoch of an extended link; 0 for a classic one."""
        self._connected_ms = now_ms = context.clock.now_ms()
        self._connection = SlaveConnection(
            store.max_phy_offset,
            now_ms,
            report_interval_ms=config.ha_send_heartbeat_interval,
            secret=ha_keyring(config),
            # A link that was cut may have left half a record: only dispatched bytes end at one.
            at_record=store.dispatched_offset == store.max_phy_offset,
            term=term,
            home_id=home_id,
        )
        self._housekeeping_s = config.ha_housekeeping_interval / 1000
        self._late_after_ms = 2 * config.ha_send_heartbeat_interval
        self._late = False
        self._told_ms = now_ms
        self._told_offset = self._connection.max_phy_offset
        self._rest: list[Buffer] = []
        self._ended = False
        self._lease_renewed_s = -math.inf
        self._nursery: trio.Nursery | None = None

    @property
    def heard(self) -> bool:
        """Has the master accepted us, by a frame that fits?"""
        return self._connection.heard

    @property
    def gap_bytes(self) -> int:
        return self._connection.gap_bytes

    @property
    def metadata_position(self) -> int:
        """Master's position of the last metadata taken; -1 until its snapshot has come."""
        return self._connection.metadata_position

    async def serve(self) -> None:
        """Follow the master.

        Errors: none that a peer, a network or a full disk can cause; `reason` tells those.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.cancel_scope.deadline = trio.current_time() + self._housekeeping_s
                nursery.start_soon(self._run, self._read, name=f"ha.read[{self.peer}]")
                nursery.start_soon(self._run, self._report_on_time, name=f"ha.report[{self.peer}]")
        finally:
            # The journal would lack the bytes that came since the last sample.
            self._tell_progress(self._clock.now_ms())
        if nursery.cancel_scope.cancelled_caught and not self.reason:
            self.reason = f"the master said nothing for {self._housekeeping_s:g} s"

    def end_nowait(self, reason: str) -> None:
        """End the link: from this pass on nothing is appended and nothing acknowledged."""
        self._ended = True
        self.reason = self.reason or reason
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def refuse_nowait(self, reason: str) -> None:
        """End the link because of what the master has sent: trying again soon would be no use."""
        self.refused = True
        self.end_nowait(reason)

    async def _run(self, half: Callable[[], Awaitable[str]]) -> None:
        """Run one half; when it ends, the link ends."""
        try:
            reason = await half()
        except RemoteProtocolError as error:
            self.refused = True
            reason = str(error)
        except StoreError as error:
            # No ack any more: the master has to lose this slave rather than wait for it (fault C8).
            self.store_failed = True
            reason = f"our own log takes no more: {error}"
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            reason = self._broken_off(str(error) or "connection lost")
        self.reason = self.reason or reason
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    async def _read(self) -> str:
        while await self._transport.receive_each(self._take) and not self._ended:
            await self._send_rest()
        if not self.heard:
            self.refused = True
            return (
                f"the master hung up on our report of offset {self._connection.max_phy_offset}: "
                "perhaps its log ends before, or begins behind it; compare with `trioha log diff`; "
                "its journal, or a Java master's store.log, says why"
            )
        return self._broken_off("the master closed the link")

    def _broken_off(self, reason: str) -> str:
        left = self._connection.frame_bytes_left
        return f"{reason}, {left} bytes before the end of a frame" if left else reason

    def _take(self, data: bytes) -> bool:
        """Append and report what one read has brought. False: the read task has to go on. HOT."""
        connection, now_ms = self._connection, self._clock.now_ms()
        if self._ended:
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
        return self._report(now_ms)

    def _take_events(self) -> None:
        """Append what has come; tell the dispatcher even if a full disk stops it half-way."""
        append_log, next_event = self._store.append_log, self._connection.next_event
        appended = False
        try:
            while (event := next_event()) is not NEED_DATA:
                if isinstance(event, LogTransferred):
                    append_log(event.phy_offset, event.body)
                    appended = True
                elif isinstance(event, MetadataTransferred) and self._on_metadata is not None:
                    self._on_metadata(event.position, event.body)
        finally:
            if appended:
                self._on_appended()

    def _report(self, now_ms: int) -> bool:
        """Send the reports that are due. False: `_send_rest` has to go on."""
        if self._rest or self._ended:
            return True  # who sends the rest looks again
        while report := self._connection.report(now_ms, in_bulk=self.catching_up):
            self._rest = self._transport.try_send([report])
            if self._rest:
                return False
        if now_ms - self._told_ms >= _PROGRESS_INTERVAL_MS:
            self._tell_progress(now_ms)
        return True

    async def _send_rest(self) -> None:
        """Send what the kernel did not take of a report, and what has become due meanwhile."""
        is_behind = bool(self._rest)
        while is_behind:
            await self._transport.send_all(self._rest)
            self._rest = []
            is_behind = not self._report(self._clock.now_ms())

    async def _report_on_time(self) -> str:
        while True:
            now_ms = self._clock.now_ms()
            if not self._report(now_ms):
                await self._send_rest()
            self._notice_silence(now_ms)
            await sleep_until_ms(max(self._connection.next_deadline_ms, now_ms + 1))

    @property
    def _silent_since_ms(self) -> int:
        return self._connected_ms if self.last_read_ms is None else self.last_read_ms

    def _notice_silence(self, now_ms: int) -> None:
        age_ms = now_ms - self._silent_since_ms
        if not self._late and age_ms >= self._late_after_ms:
            self._late = True
            self._events.event("ha_heartbeat_late", peer=self.peer, age_ms=age_ms)

    def _tell_progress(self, now_ms: int) -> None:
        offset = self._connection.max_phy_offset
        if offset != self._told_offset:
            self._told_ms, self._told_offset = now_ms, offset
            gap_bytes = self._connection.gap_bytes
            self._events.event(
                "ha_progress",
                peer=self.peer,
                ack_offset=offset,
                max_phy_offset=offset + gap_bytes,
                gap_bytes=gap_bytes,
            )

    def _renew_lease(self, now_ms: int) -> None:
        now_s = now_ms / 1000
        if now_s - self._lease_renewed_s >= _LEASE_STEP_S and self._nursery is not None:
            self._lease_renewed_s = now_s
            self._nursery.cancel_scope.deadline = now_s + self._housekeeping_s + _LEASE_STEP_S
