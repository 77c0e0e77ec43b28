"""One slave's connection on its master: what is sent, what is taken, and a lease on reads.

The tasks of the connection are in `master_link_tasks`. A link whose slave has all there is sits
*idle*: its write task sleeps until the next heartbeat, and `push_nowait` sends what was just
appended from within the appender's own scheduler pass. Only what the kernel does not take at once,
and a backlog, go through the write task. The two never write at a time: `push_nowait` does nothing
unless the link is idle, and the link is not idle during any await of the write task but its sleep.

On an extended link each piece of metadata keeps its place in the log: it waits until the link has
sent the log up to where that ended when the piece was handed in. A link begins with a snapshot. If
more than `METADATA_WAITING_BYTES_MAX` waits, since the slave is far behind, the link drops all of
it and sends another snapshot once the slave is up to date.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import trio

from trioha.errors import OffsetOutOfRange
from trioha.ha.master_connection import MasterConnection
from trioha.ha.replicas import Replicas, SlaveReplica
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport
from trioha.wire.ha_frames import METADATA_BYTES_MAX
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import Buffer

BACKLOG_BYTES_MAX: Final = 1 << 20
"""Bytes of one sendmsg; views on the segment are held no longer than it takes."""
METADATA_WAITING_BYTES_MAX = 8 << 20  # of one link: some 50,000 commits
_LEASE_STEP_S: Final = 0.1  # moving a deadline costs a heap operation: ten times a second is enough


class ShippedLog(Protocol):
    """The log that a master ships: part of `trioha.store.interface.MessageStore`."""

    @property
    def min_phy_offset(self) -> int: ...
    @property
    def max_phy_offset(self) -> int: ...
    def read_log(self, phy_offset: int, size_max: int) -> memoryview: ...


class _Metadata(NamedTuple):
    """One piece of metadata that waits for the log before it."""

    log_end: int
    position: int
    body: bytes


class LinkOwner:
    """Parts that all the links of a master share."""

    def __init__(
        self,
        *,
        store: ShippedLog,
        replicas: Replicas,
        clock: Clock,
        housekeeping_s: float,
        on_report: Callable[[HaMasterLink, bool, int], None],
        metadata_snapshot: Callable[[], tuple[int, bytes]] | None = None,
    ) -> None:
        """`on_report` is called synchronously after the reports of one read: link, is it the first
        report, time. `metadata_snapshot` returns all metadata so far in one frame: its position and
        its bytes."""
        self.store = store
        self.replicas = replicas
        self.clock = clock
        self.housekeeping_s = housekeeping_s
        self.on_report = on_report
        self.metadata_snapshot = metadata_snapshot


class HaMasterLink:
    """The link to one slave, which `master_link_tasks.serve_link` serves."""

    def __init__(
        self,
        owner: LinkOwner,
        transport: Transport,
        connection: MasterConnection,
        replica: SlaveReplica,
    ) -> None:
        self.peer = transport.peer
        self.replica = replica
        self.reason = ""
        """Reason why the link ended; "" while it lives, and when this node itself ends it."""
        self.refused = False
        """The slave broke the protocol, or cannot be served."""
        self.owner = owner
        self.transport = transport
        self.connection = connection
        self.idle = False
        """The write task sleeps: a push may send."""
        self.wake = trio.Event()
        """Ends that sleep."""
        self.first_report = trio.Event()
        self.unsent: list[Buffer] = []
        """Bytes that the kernel has not taken yet."""
        self._metadata: deque[_Metadata] = deque()
        self._metadata_bytes = 0
        self._snapshot_due = False
        self.scope: trio.CancelScope | None = None
        """Scope of the tasks, while they run."""
        self._lease_renewed_s = -math.inf

    @property
    def reported(self) -> bool:
        """Has the slave reported the end of its log?"""
        return self.first_report.is_set()

    def end_nowait(self, reason: str) -> None:
        """End the link, for the first reason given."""
        if not self.reason:
            self.reason = reason
        if self.scope is not None:
            self.scope.cancel()

    def push_nowait(self, now_ms: int) -> None:
        """The log has grown: send it now if the link is idle, else the write task will find it."""
        if not self.idle:
            return
        try:
            if self.ship(now_ms) or self.unsent:
                self.idle = False
                self.wake.set()
        except (trio.BrokenResourceError, OffsetOutOfRange):
            # The write task meets the same error when it tries again, and reports it.
            self.idle = False
            self.wake.set()

    def add_metadata_nowait(self, position: int, body: bytes) -> None:
        """Hand in what has changed outside the log, behind all of the log there is now.

        It leaves with the next push. Nothing happens on a classic link. Positions never fall.
        """
        if not self.connection.epoch or not self.reported or self._snapshot_due:
            return
        self._metadata.append(_Metadata(self.owner.store.max_phy_offset, position, body))
        self._metadata_bytes += len(body)
        if self._metadata_bytes > METADATA_WAITING_BYTES_MAX:
            self._metadata.clear()
            self._metadata_bytes, self._snapshot_due = 0, True

    def ship(self, now_ms: int) -> bool:
        """Give the kernel up to one backlog of log; True if there is more behind it."""
        connection, store = self.connection, self.owner.store
        offset = connection.next_transfer_offset
        metadata = self._metadata
        if metadata and metadata[0].log_end <= offset:
            return self._ship_metadata(now_ms)
        body = store.read_log(offset, BACKLOG_BYTES_MAX)
        if not body:
            return self._snapshot_due and self._take_snapshot()
        if metadata:
            body = body[: metadata[0].log_end - offset]
        buffers = connection.send_transfer(body, now_ms)
        end = connection.next_transfer_offset
        self.owner.replicas.transferred(self.replica, end - offset, end, now_ms)
        if metadata and metadata[0].log_end <= end:
            buffers += self._due_metadata(now_ms)
        self.unsent = self.transport.try_send(buffers)
        return end < store.max_phy_offset or bool(metadata) or self._snapshot_due

    def _ship_metadata(self, now_ms: int) -> bool:
        self.unsent = self.transport.try_send(self._due_metadata(now_ms))
        end = self.connection.next_transfer_offset
        return end < self.owner.store.max_phy_offset or bool(self._metadata)

    def _due_metadata(self, now_ms: int) -> list[Buffer]:
        """Return the frames of all metadata whose place in the log has been sent."""
        buffers: list[Buffer] = []
        metadata, offset = self._metadata, self.connection.next_transfer_offset
        while metadata and metadata[0].log_end <= offset:
            piece = metadata.popleft()
            self._metadata_bytes -= len(piece.body)
            buffers += self.connection.send_metadata(piece.position, piece.body, now_ms)
        return buffers

    def _take_snapshot(self) -> bool:
        """Queue a snapshot of all metadata that the slave may lack, to be sent next."""
        assert self.owner.metadata_snapshot is not None, "metadata without a snapshot"
        self._snapshot_due = False
        position, body = self.owner.metadata_snapshot()
        if len(body) > METADATA_BYTES_MAX:
            self.end_nowait(
                f"{len(body)} bytes of topics, groups and offsets, at most {METADATA_BYTES_MAX} "
                "can be sent: delete what is not used any more"
            )
            return False
        self._metadata.append(_Metadata(self.connection.next_transfer_offset, position, body))
        self._metadata_bytes += len(body)
        return True

    def take(self, data: bytes) -> bool:
        """Take the slave's reports of one read, and answer the sends that they confirm. HOT."""
        connection, owner = self.connection, self.owner
        store, replicas = owner.store, owner.replicas
        now_ms = owner.clock.now_ms()
        connection.receive_data(data)
        event = connection.next_event(store.min_phy_offset, store.max_phy_offset, now_ms)
        if connection.authenticated:
            self._renew_lease(now_ms)
        if event is NEED_DATA:
            return True
        if event.first and connection.epoch:
            replicas.open_extended(self.replica, connection.epoch, connection.home_id)
            if owner.metadata_snapshot is not None:
                self._take_snapshot()
        replicas.acknowledge(
            self.replica, event.offset, store.max_phy_offset, now_ms, event.metadata_position
        )
        owner.on_report(self, event.first, now_ms)
        if event.first:
            self.first_report.set()
        return True

    def _renew_lease(self, now_ms: int) -> None:
        now_s = now_ms / 1000
        if now_s - self._lease_renewed_s >= _LEASE_STEP_S and self.scope is not None:
            self._lease_renewed_s = now_s
            deadline_s = now_s + self.owner.housekeeping_s + _LEASE_STEP_S
            self.scope.deadline = deadline_s
