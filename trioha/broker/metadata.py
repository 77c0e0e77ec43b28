"""Every change of topics, groups, offsets and delay progress, numbered, for disk and slaves.

Theory of operation. RocketMQ's slave polls the tables that a broker keeps outside its log every ten
seconds, and the broker writes them to disk every five. A change acknowledged in between is lost
with the machine, or with the process. Here the tables tell each change as it is made. Changes that
belong to one batch of requests become one *body* (`trioha.broker.metadata_ops`) with one
*position*, a number that only grows; it is written to the node's own log of such bodies, and then
goes to every link that can carry it, between the bytes of the commitlog around which it happened.

Order against the log. A topic must be on the slave before the first message in it is
acknowledged, so a topic or group change is a body of its own at once. A delayed message must be
there before the progress that counts it as delivered; so progress goes behind the log as it was
when it was noted. Offsets, of which there are tens of thousands a second, wait for the end of
their batch, and of each queue only the last is told. Before any other change what waits is told
first: bodies are in the order in which things happened.

A slave applies a body, writes it to its own log under a position of its own, and acknowledges the
master's. The two numberings have nothing to do with each other: a link begins with a snapshot,
which carries the master's position of that moment. So a node's numbers need no epoch; they go on
where its own log ends, also when another node becomes master.

A restart reads the saved tables, each with the position at which it was saved, and applies to each
what its own log holds beyond. Delay progress counts only where the commitlog holds what was
delivered (`DelaySchedule.follow`): after a power loss, or on a slave that was promoted before it
had the whole log, a message is rather delivered twice than not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from enum import Enum
from typing import Final

from trioha.broker.access_text import AccessText
from trioha.broker.delay import DelaySchedule
from trioha.broker.groups import GroupTable
from trioha.broker.metadata_ops import (
    AccessPut,
    DelaySet,
    GroupGone,
    GroupPut,
    LocalOffsetsSet,
    MetadataOp,
    OffsetsSet,
    ProgressGone,
    QueuesGone,
    Snapshot,
    TopicGone,
    TopicPut,
    decode_ops,
    encode_offsets,
    encode_ops,
)
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.topics import TopicTable
from trioha.store.interface import MessageStore
from trioha.wire.remoting_command import Buffer

_DISPATCH_BYTES: Final = 1 << 20


class MetadataTable(Enum):
    """The four tables that have files of their own."""

    TOPICS = "topics.json"
    GROUPS = "subscriptionGroup.json"
    OFFSETS = "consumerOffset.json"
    DELAY = "delayOffset.json"


ALL: Final = frozenset(MetadataTable)


def ignore_body(position: int, body: bytes) -> None:
    """Drop a body of changes: no log keeps it, and no slave gets it."""


class Metadata:
    """The changes of one broker's tables. `flush` ends a batch; `follow` is a slave's side.

    `write` gets every body with its position first, then `on_body` if this node is master.
    """

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsetTable,
        schedule: DelaySchedule,
        store: MessageStore,
        access: AccessText | None = None,
        *,
        write: Callable[[int, bytes], None] = ignore_body,
        on_body: Callable[[int, bytes], None] = ignore_body,
    ) -> None:
        self.position = 0
        """Position of the newest body. Never falls."""
        self.synced_position = 0
        """Position up to which all is on disk; the owner of the log of bodies raises it."""
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._schedule = schedule
        self._store = store
        self._access = access or AccessText()
        self._write_body = write
        self._on_body = on_body
        self._ops: list[MetadataOp] = []
        self._is_marked = False

    @property
    def position_of_changes(self) -> int:
        """Position that a slave must hold to have every change made up to now."""
        return self.position + self._is_pending

    def mark(self) -> int:
        """Return a position that slaves acknowledge only after they were told of this call.

        If nothing has changed, a body without a change gets the position.
        """
        self._is_marked = True
        return self.position_of_changes

    def flush(self) -> None:
        """Give the changes a position and write them. Once per batch of requests. HOT."""
        offsets = self._offsets
        if not self._ops and not self._schedule.changed:
            if offsets.changed:
                changed = offsets.take_changed()
                if offsets.is_slave:
                    self._send(encode_ops([LocalOffsetsSet(changed)]))
                else:
                    self._send(encode_offsets(changed))
            elif self._is_marked:
                self._send(encode_ops([]))
            return
        ops, self._ops = self._ops, []
        if offsets.changed:
            changed = offsets.take_changed()
            ops.append(LocalOffsetsSet(changed) if offsets.is_slave else OffsetsSet(changed))
        if self._schedule.changed:
            ops.append(self._schedule.take_changed())
        self._send(encode_ops(ops))

    def write_at_once(self, op: MetadataOp) -> None:
        """Write a change that a table has just made, behind those that wait."""
        self.flush()
        self._ops.append(op)
        self.flush()

    def access_changed(self, op: AccessPut) -> None:
        """Write a new text of the accounts, unless those of this node are copies."""
        # A slave's and a follower's accounts are copies.
        if not (self._offsets.is_slave or self._topics.read_only):
            self.write_at_once(op)

    def snapshot(self) -> tuple[int, bytes]:
        """Return the present position and a snapshot of every table."""
        self.flush()
        return self.position, encode_ops([self.whole(), *self.access()])

    def access(self) -> list[AccessPut]:
        """Return the broker's accounts, for a node without any; empty without access control."""
        return self._access.ops()

    def whole(self) -> Snapshot:
        """Return a snapshot of every table."""
        topics, groups = self._topics, self._groups
        return Snapshot(
            topics.data_version,
            topics.topics,
            groups.data_version,
            groups.groups,
            self._offsets.table,
            DelaySet(self._schedule.offsets(), self._store.max_phy_offset),
        )

    def follow(self, body: Buffer) -> None:
        """Apply a body of the master's, in the order in which they come.

        Errors: RemoteProtocolError when it cannot be understood, StoreError when the log cannot be
        dispatched up to here; nothing has changed then.
        """
        ops = decode_ops(body)
        self.flush()
        if any(isinstance(op, QueuesGone) for op in ops):
            # Messages that arrived before belong to the old queues, later ones to the new queues.
            while self._store.dispatch(_DISPATCH_BYTES):
                pass
        for op in ops:
            if isinstance(op, QueuesGone):
                self._store.delete_topic(op.topic)
            self._apply(op, ALL)
        self._write(bytes(body))

    def replay(self, position: int, body: Buffer, lacking: Container[MetadataTable]) -> None:
        """Apply a body from this node's own log, on its start, to those tables that lack it.

        Queues stay as they are: this log cannot tell deleted queues from new ones of that name.
        Errors: RemoteProtocolError when it cannot be understood; nothing has changed then.
        """
        ops = decode_ops(body)
        self.position = max(self.position, position)
        for op in ops:
            self._apply(op, lacking)

    # In a Raft group: `trioha.broker.raft.metadata`.

    def follow_log(self) -> None:
        """Change the tables by `fold` alone from now on."""
        self._topics.read_only = self._groups.read_only = self._offsets.read_only = True
        # Offsets that consumers committed to a slave, before there was a group, count as well.
        self._offsets.become_master()
        self._offsets.become_slave()

    def lead_log(self, wall_ms: int) -> None:
        """Change the tables by requests from now on, as a master; the offsets count already.

        Topics that only this node's configuration asks for come into being.
        """
        self._topics.read_only = self._groups.read_only = self._offsets.read_only = False
        self._topics.add_missing(wall_ms)
        # The last folded body may have moved levels after the role had begun.
        self._schedule.refresh()

    def fold(self, body: Buffer) -> list[MetadataOp]:
        """Apply a body of the group's log; return its changes, since queues stay as they are here.

        Errors: RemoteProtocolError when it cannot be understood; nothing has changed then.
        """
        ops = decode_ops(body)
        for op in ops:
            self._apply(op, ALL)
        self.position += 1
        return ops

    def discard(self) -> bool:
        """Drop the changes that are not written yet; True if there were any."""
        was_pending = self._is_pending
        self._is_marked = False
        self._ops.clear()
        self._offsets.take_changed()
        self._schedule.take_changed()
        return was_pending

    @property
    def _is_pending(self) -> bool:
        return bool(self._ops or self._offsets.changed or self._schedule.changed or self._is_marked)

    def _send(self, body: bytes) -> None:
        self._write(body)
        if not self._offsets.is_slave:
            self._on_body(self.position, body)

    def _write(self, body: bytes) -> None:
        self._is_marked = False
        self.position += 1
        self._write_body(self.position, body)

    def _apply(self, op: MetadataOp, to: Container[MetadataTable]) -> None:
        match op:
            case TopicPut() | TopicGone() if MetadataTable.TOPICS in to:
                self._topics.follow(op)
            case GroupPut() | GroupGone() if MetadataTable.GROUPS in to:
                self._groups.follow(op)
            case OffsetsSet(offsets) if MetadataTable.OFFSETS in to:
                self._offsets.follow(offsets)
            case LocalOffsetsSet(offsets) if MetadataTable.OFFSETS in to:
                self._offsets.recommit(offsets)
            case QueuesGone() | ProgressGone() if MetadataTable.OFFSETS in to:
                self._offsets.follow_gone(op)
            case DelaySet() if MetadataTable.DELAY in to:
                self._schedule.follow(op)
            case Snapshot():
                self._become(op, to)
            case AccessPut() if to is ALL:
                self._access.follow(op)

    def _become(self, whole: Snapshot, to: Container[MetadataTable]) -> None:
        if MetadataTable.TOPICS in to:
            self._topics.replace_all(whole.topic_version, whole.topics)
        if MetadataTable.GROUPS in to:
            self._groups.replace_all(whole.group_version, whole.groups)
        if MetadataTable.OFFSETS in to:
            self._offsets.follow_all(whole.offsets)
            self._offsets.forget_commits_beyond(whole.topics)
        if MetadataTable.DELAY in to:
            self._schedule.follow_all(whole.delay)
