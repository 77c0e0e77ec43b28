"""One slave's connection on its master: a read task, a write task, and a lease on reads.

A link whose slave has all there is sits *idle*: its write task sleeps until the next heartbeat, and
`push_nowait` sends what was just appended from within the appender's own scheduler pass. Only what
the kernel does not take at once, and a backlog, go through the write task. The two never write at a
time: `push_nowait` does nothing unless the link is idle, and the link is not idle during any await
of the write task but its sleep.

On an extended link each piece of metadata keeps its place in the log: it waits until the link has
sent the log up to where that ended when the piece was handed in. A link begins with a snapshot. If
more than `METADATA_WAITING_BYTES_MAX` waits, since the slave is far behind, the link drops all of
it and sends another snapshot once the slave is up to date.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import attrs
import trio

from trioha.errors import OffsetOutOfRange, RemoteProtocolError
from trioha.ha.master_connection import MasterConnection
from trioha.ha.replicas import Replicas, SlaveReplica
from trioha.services.loop.clock import Clock, wake_time_s
from trioha.services.loop.transport import Transport
from trioha.wire.ha_frames import METADATA_BYTES_MAX
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import Buffer

BACKLOG_BYTES_MAX = 1 << 20  # of one sendmsg; views on the segment are held no longer than it takes
PROOF_PATIENCE_S = 5.0  # an honest slave answers the challenge at once
_LAST_WORDS_PATIENCE_S = 1.0
METADATA_WAITING_BYTES_MAX = 8 << 20  # of one link: some 50,000 commits
_LEASE_STEP_S = 0.1  # moving a deadline costs a heap operation: ten times a second is enough


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


@attrs.frozen
class LinkOwner:
    """Parts that all the links of a master share."""

    store: ShippedLog
    replicas: Replicas
    clock: Clock
    housekeeping_s: float
    on_report: Callable[[HaMasterLink, bool, int], None]
    """Called synchronously after the reports of one read: link, is it the first report, time."""
    metadata_snapshot: Callable[[], tuple[int, bytes]] | None = None
    """Returns all metadata so far in one frame: its position and its bytes."""


class HaMasterLink:
    """Serves one slave until it hangs up, breaks the protocol or falls silent."""

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
        self._owner = owner
        self._transport = transport
        self._connection = connection
        self._idle = False
        self._wake = trio.Event()
        self._reported = trio.Event()
        self._unsent: list[Buffer] = []
        self._metadata: deque[_Metadata] = deque()
        self._metadata_bytes = 0
        self._snapshot_due = False
        self._nursery: trio.Nursery | None = None
        self._lease_renewed_s = -math.inf

    @property
    def reported(self) -> bool:
        """Has the slave reported the end of its log?"""
        return self._reported.is_set()

    async def serve(self, opening: bytes) -> None:
        """Serve the slave; `opening` is what the master says first, if anything.

        Errors: none that a peer or a network can cause; `reason` tells those.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            now_s = trio.current_time()
            patience_s = PROOF_PATIENCE_S if opening else self._owner.housekeeping_s
            nursery.cancel_scope.deadline = now_s + min(patience_s, self._owner.housekeeping_s)
            nursery.start_soon(self._run, self._read, name=f"ha.read[{self.peer}]")
            nursery.start_soon(self._run, self._write, opening, name=f"ha.write[{self.peer}]")
        if nursery.cancel_scope.cancelled_caught and not self.reason:
            self.reason = self._silence()

    def end_nowait(self, reason: str) -> None:
        """End the link, for the first reason given."""
        if not self.reason:
            self.reason = reason
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def push_nowait(self, now_ms: int) -> None:
        """The log has grown: send it now if the link is idle, else the write task will find it."""
        if not self._idle:
            return
        try:
            if self._ship(now_ms) or self._unsent:
                self._idle = False
                self._wake.set()
        except (trio.BrokenResourceError, OffsetOutOfRange):
            # The write task meets the same error when it tries again, and reports it.
            self._idle = False
            self._wake.set()

    def add_metadata_nowait(self, position: int, body: bytes) -> None:
        """Hand in what has changed outside the log, behind all of the log there is now.

        It leaves with the next push. Nothing happens on a classic link. Positions never fall.
        """
        if not self._connection.epoch or not self.reported or self._snapshot_due:
            return
        self._metadata.append(_Metadata(self._owner.store.max_phy_offset, position, body))
        self._metadata_bytes += len(body)
        if self._metadata_bytes > METADATA_WAITING_BYTES_MAX:
            self._metadata.clear()
            self._metadata_bytes, self._snapshot_due = 0, True

    def _ship(self, now_ms: int) -> bool:
        """Give the kernel up to one backlog of log; True if there is more behind it."""
        connection, store = self._connection, self._owner.store
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
        self._owner.replicas.transferred(self.replica, end - offset, end, now_ms)
        if metadata and metadata[0].log_end <= end:
            buffers += self._due_metadata(now_ms)
        self._unsent = self._transport.try_send(buffers)
        return end < store.max_phy_offset or bool(metadata) or self._snapshot_due

    def _ship_metadata(self, now_ms: int) -> bool:
        self._unsent = self._transport.try_send(self._due_metadata(now_ms))
        end = self._connection.next_transfer_offset
        return end < self._owner.store.max_phy_offset or bool(self._metadata)

    def _due_metadata(self, now_ms: int) -> list[Buffer]:
        """Return the frames of all metadata whose place in the log has been sent."""
        buffers: list[Buffer] = []
        metadata, offset = self._metadata, self._connection.next_transfer_offset
        while metadata and metadata[0].log_end <= offset:
            piece = metadata.popleft()
            self._metadata_bytes -= len(piece.body)
            buffers += self._connection.send_metadata(piece.position, piece.body, now_ms)
        return buffers

    def _take_snapshot(self) -> bool:
        """Queue a snapshot of all metadata that the slave may lack, to be sent next."""
        assert self._owner.metadata_snapshot is not None, "metadata without a snapshot"
        self._snapshot_due = False
        position, body = self._owner.metadata_snapshot()
        if len(body) > METADATA_BYTES_MAX:
            self.end_nowait(
                f"{len(body)} bytes of topics, groups and offsets, at most {METADATA_BYTES_MAX} "
                "can be sent: delete what is not used any more"
            )
            return False
        self._metadata.append(_Metadata(self._connection.next_transfer_offset, position, body))
        self._metadata_bytes += len(body)
        return True

    async def _run(self, half: Callable[..., Awaitable[str]], *args: object) -> None:
        """Run one half; when it ends, the link ends."""
        try:
            reason = await half(*args)
        except RemoteProtocolError as error:
            self.refused = True
            reason = str(error)
        except OffsetOutOfRange as error:
            self.refused = True
            reason = f"{error}: retention has overtaken the slave; empty its store to copy anew"
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            reason = str(error) or "connection lost"
        self.end_nowait(reason)

    async def _read(self) -> str:
        try:
            await self._transport.receive_each(self._take)
        except RemoteProtocolError:
            if self._connection.last_words:
                # The write task has not begun. The slave's own journal then has both numbers.
                with trio.move_on_after(_LAST_WORDS_PATIENCE_S):
                    await self._transport.send_all([self._connection.last_words])
            raise
        return "the slave closed the link"

    def _take(self, data: bytes) -> bool:
        """Take the slave's reports of one read, and answer the sends that they confirm. HOT."""
        connection, owner = self._connection, self._owner
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
            self._reported.set()
        return True

    async def _write(self, opening: bytes) -> str:
        if opening:
            await self._transport.send_all([opening])
        await self._reported.wait()
        connection, clock = self._connection, self._owner.clock
        while True:
            more = True
            while more:
                if not await self._send_unsent():
                    return f"it has read nothing for {self._owner.housekeeping_s:g} s"
                more = self._ship(clock.now_ms()) or bool(self._unsent)
                if more:
                    await trio.lowlevel.checkpoint()
            assert connection.next_deadline_ms is not None, "a slave that reported has no heartbeat"
            if clock.now_ms() < connection.next_deadline_ms:
                # Nothing awaits between the last look at the log and here.
                self._wake = trio.Event()
                self._idle = True
                with trio.move_on_at(wake_time_s(connection.next_deadline_ms)):
                    await self._wake.wait()
                self._idle = False
            if clock.now_ms() >= connection.next_deadline_ms and not self._unsent:
                self._unsent = self._transport.try_send([connection.send_heartbeat(clock.now_ms())])

    async def _send_unsent(self) -> bool:
        """Wait until the kernel has taken all; False when it took nothing for too long."""
        while self._unsent:
            with trio.move_on_after(self._owner.housekeeping_s) as patience:
                self._unsent = await self._transport.send_some(self._unsent)
            if patience.cancelled_caught:
                self._unsent = []
                return False
        return True

    def _renew_lease(self, now_ms: int) -> None:
        now_s = now_ms / 1000
        if now_s - self._lease_renewed_s >= _LEASE_STEP_S and self._nursery is not None:
            self._lease_renewed_s = now_s
            deadline_s = now_s + self._owner.housekeeping_s + _LEASE_STEP_S
            self._nursery.cancel_scope.deadline = deadline_s

    def _silence(self) -> str:
        if not self._connection.authenticated:
            self.refused = True
            return (
                f"no answer to the challenge within {PROOF_PATIENCE_S:g} s; give the slave our "
                "haSecret, or name its network in haAllowedPeers"
            )
        return f"the slave said nothing for {self._owner.housekeeping_s:g} s"
