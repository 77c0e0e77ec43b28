"""Ends each batch of requests in a broker, in the pass that handled them.

First the log goes to the other nodes, if a put waits for one; then parked pulls are answered; and
the tasks that only matter later are marked. The answers leave behind all that: the `Outboxes` block
of the caller is still open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trioha.broker.core import BrokerCore
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.wakeup import Wakeup
from trioha.store.message_store import FileMessageStore


class BatchReplication(Protocol):
    """Sends what is new to the other nodes: part of `trioha.services.node.replication`."""

    def log_grown(self) -> None: ...
    def changes_wait(self) -> None: ...


class ChangingTable(Protocol):
    """A table that is kept in a file."""

    dirty: bool


class ChangedTables:
    """Wakes the writers of the tables that have changed."""

    def __init__(self, tables: Sequence[ChangingTable]) -> None:
        self.wakeups = [Wakeup() for _ in tables]
        """One for each table, in their order."""
        self._pairs = list(zip(tables, self.wakeups, strict=True))

    def check(self) -> None:
        """Look which tables have changed. HOT."""
        for table, wakeup in self._pairs:
            if table.dirty:
                wakeup.set()


class ColdPulls(Protocol):
    """Reads for pulls that wait for the disk: `trioha.services.node.cold_reading`."""

    def has_new(self) -> None: ...


class BatchEnd:
    """The end of a batch, in one broker."""

    def __init__(
        self,
        core: BrokerCore,
        store: FileMessageStore,
        clock: Clock,
        *,
        dispatch_soon: Callable[[], None],
        tables: ChangedTables,
        cold_pulls: ColdPulls,
        group_transfer: Alarm,
        schedule_message: Alarm,
        pull_hold: Alarm,
        client_expiry: Alarm,
    ) -> None:
        """`dispatch_soon` is called when the log has grown.

        `replication` is set before the first batch.
        """
        self.replication: BatchReplication | None = None
        self.seen_end = store.max_phy_offset
        """End of the log that the other nodes were told of, or need not be."""
        self._core = core
        self._store = store
        self._clock = clock
        self._dispatch_soon = dispatch_soon
        self._tables = tables
        self._cold_pulls = cold_pulls
        self._group_transfer = group_transfer
        self._schedule_message = schedule_message
        self._pull_hold = pull_hold
        self._client_expiry = client_expiry

    def run(self) -> None:
        """The requests of one read were handled. HOT."""
        core, replication = self._core, self.replication
        assert replication is not None, "a batch before the node has its replication"
        end = self._store.max_phy_offset
        if end != self.seen_end:
            self.seen_end = end
            replication.log_grown()
            self._dispatch_soon()
            self._group_transfer.check()
            if core.schedule_changed:
                core.schedule_changed = False
                self._schedule_message.check()
        if core.has_due:
            core.after_batch(self._clock.instant())
        if core.metadata_waits.waiter_count:
            replication.changes_wait()
            self._group_transfer.check()
        self._pull_hold.check()
        if core.cold_reads.has_new:
            self._cold_pulls.has_new()
        # A client that comes expires after those that are there.
        self._client_expiry.arm()
        self._tables.check()
