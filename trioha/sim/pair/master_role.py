"""A master while its term lasts: puts that wait, links that ship the log."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from trioha.errors import RemoteProtocolError
from trioha.ha.group_commit import GroupCommit
from trioha.ha.master_connection import MasterConnection
from trioha.ha.replicas import Replicas, SlaveReplica
from trioha.journal import NullSink
from trioha.sim.network import End, Item
from trioha.sim.pair.messages import Put, PutAnswer
from trioha.sim.pair.records import SEGMENT_BYTES, StoredMessage
from trioha.sim.pair.views import SimProcess
from trioha.wire.need_data import NEED_DATA

HEARTBEAT_MS = 300
HOUSEKEEPING_MS = 1000
SLAVE_TIMEOUT_MS = 600
TRANSFER_BATCH_BYTES = 512
"""Small, so that a record is often cut in two by frames."""
Reply = Callable[[object], None]


@attrs.define(eq=False)
class _Link:
    """One slave."""

    end: End
    connection: MasterConnection
    replica: SlaveReplica
    heard_ms: int


@attrs.frozen
class _Waiter:
    """A put that is in our log and not yet known to be in another."""

    entry: StoredMessage
    answer: Reply


class MasterRole:
    """Ends with its term; nothing of it outlives `end`."""

    def __init__(self, node: SimProcess, epoch: int) -> None:
        self.epoch = epoch
        self.replicas = Replicas(
            NullSink(),
            fallbehind_max=1 << 20,
            heartbeat_interval_ms=HEARTBEAT_MS,
            housekeeping_ms=HOUSEKEEPING_MS,
            stall_ms_max=SLAVE_TIMEOUT_MS,
        )
        self._node = node
        self._waiting: GroupCommit[_Waiter] = GroupCommit()
        self._links: dict[End, _Link] = {}

    def put(self, put: Put, answer: Reply) -> None:
        """Append, and answer once a slave has it."""
        node = self._node
        entry = node.log.put(put.queue_id, put.message_id, node.world.rng)
        node.show_readers()
        for link in list(self._links.values()):
            self._ship(link)
        if not self.replicas.slave_available(entry.end):
            answer(PutAnswer.NO_SLAVE)
        else:
            self._waiting.add(entry.end, node.now_ms + SLAVE_TIMEOUT_MS, _Waiter(entry, answer))

    def accept(self, end: End) -> None:
        """A slave has shaken hands on our epoch and connects."""
        node = self._node
        connection = MasterConnection(
            segment_bytes=SEGMENT_BYTES,
            transfer_batch_bytes_max=TRANSFER_BATCH_BYTES,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        replica = self.replicas.connect(f"{end.peer}:1", node.now_ms)
        link = self._links[end] = _Link(end, connection, replica, node.now_ms)
        end.on_item = node.waking(lambda item: self._receive(link, item))
        end.on_close = node.awake(lambda: self._drop(link))

    def on_time(self) -> None:
        """Do what is due: expire waiting puts, send heartbeats, drop silent slaves."""
        node = self._node
        for waiter in self._waiting.expire(node.now_ms):
            waiter.answer(PutAnswer.TIMEOUT)
        self.replicas.on_time(node.log.max_phy_offset, node.now_ms)
        for link in list(self._links.values()):
            due_ms = link.connection.next_deadline_ms
            if node.now_ms - link.heard_ms > HOUSEKEEPING_MS:
                link.end.close()
                self._drop(link)
            elif due_ms is not None and node.now_ms >= due_ms:
                link.end.send(link.connection.send_heartbeat(node.now_ms))

    def end(self) -> None:
        """End the term: every waiting put is answered as if its timeout had expired."""
        for waiter in self._waiting.drain():
            waiter.answer(PutAnswer.TIMEOUT)
        for link in list(self._links.values()):
            link.end.close()
        self._links.clear()

    def follows(self, host: str) -> SlaveReplica | None:
        """The link of a slave, if it has one."""
        for link in self._links.values():
            if link.end.peer == host:
                return link.replica
        return None

    def _receive(self, link: _Link, item: Item) -> None:
        assert isinstance(item, bytes)
        node, log = self._node, self._node.log
        link.heard_ms = node.now_ms
        link.connection.receive_data(item)
        try:
            while True:
                event = link.connection.next_event(0, log.max_phy_offset, node.now_ms)
                if event is NEED_DATA:
                    break
                offset = event.offset
                self.replicas.acknowledge(link.replica, offset, log.max_phy_offset, node.now_ms)
        except RemoteProtocolError as error:
            node.tell(f"refuses {link.end.peer}: {error}")
            link.end.close()
            self._drop(link)
            return
        self._release()
        if node.roles.awaits_slave_until_ms is not None and self.replicas.slave_available(
            log.max_phy_offset
        ):
            node.roles.slave_in_sync()
        self._ship(link)

    def _release(self) -> None:
        node = self._node
        for waiter in self._waiting.advance(self.replicas.push2slave_max_offset):
            world = node.world
            world.checker.put_acknowledged(
                node.host, self.epoch, waiter.entry, world.logs(), world.lost_ends()
            )
            waiter.answer(PutAnswer.OK)
        node.show_readers()

    def _ship(self, link: _Link) -> None:
        node, connection = self._node, link.connection
        start = connection.next_transfer_offset
        body = node.log.read_log(start, 1 << 20) if start >= 0 else memoryview(b"")
        if body:
            link.end.send(b"".join(connection.send_transfer(body, node.now_ms)))
            self.replicas.transferred(
                link.replica, len(body), connection.next_transfer_offset, node.now_ms
            )

    def _drop(self, link: _Link) -> None:
        if self._links.pop(link.end, None) is not None:
            self.replicas.disconnect(link.replica, self._node.log.max_phy_offset)
