"""Replication of a broker's log, in a master-slave set or in a DLEDGER group, as a node sees it.

Two classes implement the Protocol: `services.ha.replication.SetReplication` and
`services.raft.replication.GroupReplication`. They differ in how an appended byte reaches other
nodes, in what decides the node's role, and in the status that they report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import trio

from trioha.errors import CommitLogCorrupted
from trioha.remoting.channel import Channel, Instant
from trioha.services.admin.health import Check
from trioha.services.admin.metrics_families import Families
from trioha.services.node.listeners import BrokerListeners
from trioha.services.node.log_flush import LogFlush
from trioha.services.node.namesrv_registration import Refutation

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Replication(Protocol):
    """The way of the log to other nodes, and the node's role."""

    @property
    def flush(self) -> LogFlush: ...

    @property
    def broker_id(self) -> int:
        """The brokerId to register; 0 is the broker that takes writes."""

    # Bytes and changes of this node, and those that arrive.

    def log_grown(self) -> None:
        """Send new records to the other nodes and to the disk. HOT."""

    def changes_wait(self) -> None:
        """Send a change of offsets, topics or groups at once: its answer waits for it. HOT."""

    def write_metadata(self, position: int, body: bytes) -> None:
        """Keep a body of changes on this node, in the pass that made it. HOT."""

    def on_metadata_body(self, position: int, body: bytes) -> None:
        """Offsets, topics or groups have changed; called in the pass that changed them. HOT."""

    def delete_queues(self, topic: str) -> None:
        """Remove the queues of a topic that was deleted here."""

    def on_dispatched(self) -> None:
        """Records became readable."""

    def is_catching_up(self) -> bool:
        """Return whether old bytes arrive in bulk; queues may wait a little then."""

    def topic_missed(self) -> None:
        """Act on messages in the log whose topic the table does not know."""

    def on_damaged(self, error: CommitLogCorrupted) -> None:
        """Mend the log, which holds no record where one has to be.

        Errors: `error`, where nobody can send the bytes again.
        """

    def check_disk(self, wall_ms: int) -> None:
        """Measure the disk, delete expired segments, stop or resume writes."""

    def confirm_master(self, then: Callable[[bool], None]) -> None:
        """Call `then` with True once it is certain that no other node is master; or with False."""

    # News of connections and name servers.

    def channel_closed(self, channel: Channel) -> None:
        """Forget what waits for the client of a connection that ended."""

    def on_master(self, address: str, ha_address: str) -> None:
        """Note the master's address, as a name server tells it."""

    def on_refuted(self, found: Refutation) -> None:
        """Act on a name server that rejected this node's claim to be master."""

    # Tasks and shutdown.

    def start_storing(self, nursery: trio.Nursery) -> None:
        """Start the tasks that write further files beside the log and the tables."""

    async def start(self, nursery: trio.Nursery, listeners: BrokerListeners) -> None:
        """Start the replication of the log; return once this node has its first role."""

    async def settle(self, nursery: trio.Nursery) -> None:
        """Wait, for a moment at most, until this node knows its role; clients can connect."""

    async def leave(self) -> None:
        """Shutdown has begun: hand the leadership over if possible, and reject parked requests."""

    async def wait_level(self) -> None:
        """Wait until all waiting sends are answered and the other nodes are up to date."""

    # Status, health and metrics.

    def status(self, instant: Instant) -> dict[str, object]:
        """Return this kind's part of the node's status, in plain values."""

    def checks(self) -> Iterator[Check]:
        """Yield this kind's lines of /readyz."""

    def families(self, families: Families) -> Iterator[Metric]:
        """Yield this kind's part of /metrics."""
