"""Topics, groups, offsets and delay progress of a Raft group, made from the records of its log.

Theory of operation. In a group only the log is agreed upon, so each member makes its tables from
it: from the records of topic ``TRIOHA_METADATA``, from the newest *snapshot* below the commit up to
the commit. The node's own files (``config/*.json``) count only while the log has no snapshot: in a
store that was a master-slave node's.

*The leader* changes its tables first, as a master does (`trioha.broker.metadata`), and appends each
body as a record in the same scheduler pass: one record per batch that changed anything, none per
message. So the log has everything in the order in which it happened: a topic before its first
message, a message before the delay progress that counts it as delivered, deletions in their place.
Answers wait until the record is committed (`MetadataWaits`). A leader that may not append for a
moment, because it is handing over, holds its bodies. It appends them if it stays leader, and drops
them if it steps down.

*A follower* applies what is committed, in order, never more. A change that it took itself would not
be in the log, so it forwards or rejects changes (`trioha.dledger.answering`). What its own
consumers would create by connecting (their group, their retry topic) exists for the answer only.

*A leader that steps down* has tables that may be ahead of the commit, and of anything that will
ever be committed. It folds them anew from the newest snapshot, in some 50 us per body. That is why
a leader writes a snapshot at the beginning of its leadership, whenever the log has begun a segment
since the last one, and after `BODIES_MAX` bodies.

*A deleted topic's queues* are removed when the deletion is committed: before that, the deletion may
still be cut off the log. Messages sent meanwhile to a new topic of that name continue the queue's
offsets. `trioha.store.raft_queues` tells why all members end with the same queues.

*Retention* deletes nothing from the newest committed snapshot on, so every copy of the log has one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

import attrs

from trioha.broker.metadata import Metadata
from trioha.broker.metadata_ops import QueueEnds, QueuesGone, encode_ops
from trioha.broker.raft.metadata_log import MetadataLog, unreadable
from trioha.broker.raft.records import (
    BODY_BYTES_MAX,
    CHANGES,
    PART_BYTES_MAX,
    SNAPSHOT,
    Assembly,
    messages_of,
)
from trioha.config import BrokerConfig
from trioha.errors import DiskFull, LocalProtocolError, RemoteProtocolError
from trioha.store.put_values import PutMessage, PutResult, PutStatus
from trioha.store.raft_queues import RaftQueues

BODIES_MAX = 5_000
"""Most bodies between two snapshots: a quarter of a second of folding after a step-down or a start.
A snapshot of 100,000 offsets takes 30 ms and 600 kB."""
_NOWHERE = 1 << 62  # an offset that is never committed
_JUMP_MIN = 64  # with more bodies to apply, look for a snapshot among them


class RaftStore(Protocol):
    """The part of a `FileMessageStore` that `RaftMetadata` uses."""

    @property
    def min_phy_offset(self) -> int: ...
    @property
    def max_phy_offset(self) -> int: ...
    @property
    def dispatched_offset(self) -> int: ...
    def put_message(self, message: PutMessage, wall_ms: int) -> PutResult: ...
    def raft_queues(self) -> RaftQueues: ...


@attrs.define(eq=False)
class RaftReplicas:
    """The replicas of a group as puts and changes see them: they wait for the commit."""

    by_quorum: bool = True
    push2slave_max_offset: int = 0
    """The commit: every byte below it is on a majority and stays."""
    push2slave_max_metadata: int = -1
    """Position of the newest change that is committed."""
    metadata_available: bool = True

    def slave_available(self, need_offset: int) -> bool:
        """Return True: a majority may be away, but the put waits for it until its deadline."""
        return True


class _Appended(NamedTuple):
    """A body that the leader has appended and that is not committed yet."""

    end_offset: int
    position: int
    phy_offset: int
    kind: int


class RaftMetadata:
    """One member's tables. The node calls it, in this order:

    - `on_commit` when the commit has moved, `on_dispatched` when queues have grown;
    - `lead` when the member begins to serve as leader, after `BrokerCore.become(SYNC_MASTER)`;
    - `step_down` when it stops serving, before `BrokerCore.become(SLAVE)`;
    - `truncated` and `reset` when the log was cut, or emptied for a copy;
    - `pause` and `resume` around a hand-over, `on_log_grown` once per batch of a leader.

    The caller tells the Raft member that the log has grown. `on_failed` is called, possibly within
    any other call, when there is no room for a change: the member must resign then.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        replicas: RaftReplicas,
        store: RaftStore,
        *,
        wall_ms: Callable[[], int],
        on_failed: Callable[[str], None],
        may_append: Callable[[], bool] = lambda: True,
    ) -> None:
        """Begin with the tables as loaded from the node's files; the store must be open."""
        self.applied_offset = 0
        """End of the newest record that the tables hold."""
        self.snapshot_offset = -1
        """Beginning of the newest committed snapshot that was read or written; -1 for none."""
        self._metadata = metadata
        self._replicas = replicas
        self._store = store
        self._queues = store.raft_queues()
        self._log = MetadataLog(self._queues)
        self._wall_ms = wall_ms
        self._on_failed = on_failed
        self._may_append = may_append
        segment_bytes = config.mapped_file_size_commit_log
        self._segment_bytes = segment_bytes
        self._part_bytes = min(PART_BYTES_MAX, config.max_message_size, segment_bytes // 4)
        self._commit = 0
        self._next = -1  # index in our queue of the next record to apply; -1: not looked for yet
        self._deleted_at: dict[str, int] = {}  # topic -> offset of its newest deletion
        self._body_index = -1  # index of the first record of the body that is being read
        self._assembly = Assembly()
        self._base = b""
        # Used while leading.
        self._leading = False
        self._pending: deque[_Appended] = deque()
        self._held: deque[tuple[int, bytes]] = deque()
        self._paused = False
        self._gone: deque[tuple[int, str]] = deque()
        self._bodies_since = 0
        self._snapshot_due_offset = 0
        metadata.follow_log()
        self._base = encode_ops([metadata.whole()])

    def begin_anew(self) -> None:
        """Let the tables count as they are, and skip the log's records so far.

        For a conversion (`trioha raft convert`): the log may have been a group's before it was a
        master's, and then its old records are out of date.
        """
        self._commit = self._store.max_phy_offset
        _, self._next = self._log.bounds()

    @property
    def is_current(self) -> bool:
        """The tables hold every metadata record of the log."""
        return self._next >= self._log.bounds()[1] and (
            self._store.dispatched_offset == self._store.max_phy_offset
        )

    def retention_floor(self) -> int:
        """Return the offset from which on the log must stay; 0 if nothing may be deleted."""
        return max(0, min(self._commit, self.snapshot_offset))

    def uncommitted_end(self) -> int:
        """Return the offset up to which the log must be committed before the tables may be shown.

        0 if everything that they show is committed; -1 if a change has no place in the log yet,
        because it is held back while the leadership is handed over.
        """
        if not self._leading:
            return 0
        self._metadata.flush()
        if self._held:
            return -1
        return self._pending[-1].end_offset if self._pending else 0

    def status(self) -> dict[str, object]:
        """Return the state of this member's tables, for the node's status."""
        return {
            "position": self._metadata.position,
            "committed_position": self._replicas.push2slave_max_metadata,
            "applied_offset": self.applied_offset,
            "snapshot_offset": self.snapshot_offset,
            "uncommitted": len(self._pending) + len(self._held),
        }

    # Leading.

    def lead(self) -> None:
        """Begin to lead: append a snapshot as the first body.

        Errors: LocalProtocolError if the tables lack records of the log.
        """
        self._apply()
        if not self.is_current:
            raise LocalProtocolError(
                f"metadata is applied up to {self.applied_offset}, the log ends at "
                f"{self._store.max_phy_offset}, committed up to {self._commit}"
            )
        metadata = self._metadata
        self._replicas.push2slave_max_metadata = metadata.position
        self._leading, self._paused = True, False
        metadata.lead_log(self._wall_ms())
        self._snapshot_due_offset = -1
        self.on_log_grown()

    def append(self, position: int, body: bytes) -> None:
        """Append a body of changes to the log, or hold it while that is not possible. HOT."""
        if not self._leading:
            return
        if self._held or not self._is_open:
            self._held.append((position, body))
            if self._is_open:
                self.resume()
        else:
            self._put(position, CHANGES, body)

    def pause(self) -> None:
        """Hold all bodies from now on, during a transfer, until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Append the bodies that were held: the transfer was given up."""
        self._paused = False
        while self._held and self._is_open:
            position, body = self._held.popleft()
            self._put(position, CHANGES, body)

    def delete_queues(self, topic: str) -> None:
        """Remove a topic's queues once the newest body, which deletes it, is committed."""
        if self._leading:
            self._gone.append((self._metadata.position, topic))

    def on_log_grown(self) -> None:
        """Write a snapshot if one is due; called once per batch. HOT."""
        if self._leading and (
            self._store.max_phy_offset > self._snapshot_due_offset
            or self._bodies_since >= BODIES_MAX
        ):
            self._metadata.flush()
            if not self._held and self._is_open:
                self._write_snapshot()

    def step_down(self) -> None:
        """Stop appending, and make the tables from the committed records alone."""
        clean = not self._pending and not self._held
        self._leading = False
        self._pending.clear()
        self._held.clear()
        self._gone.clear()
        metadata = self._metadata
        if metadata.discard():
            clean = False
        metadata.follow_log()
        if not clean:
            self._fold_anew()

    @property
    def _is_open(self) -> bool:
        return self._leading and not self._paused and self._may_append()

    def _put(self, position: int, kind: int, body: bytes) -> None:
        store, wall_ms = self._store, self._wall_ms()
        phy_offset = -1
        if len(body) > BODY_BYTES_MAX:  # no follower would take it
            self._fail(position, kind, phy_offset, f"the tables have {len(body)} bytes")
            return
        for message in messages_of(kind, body, self._part_bytes, wall_ms):
            result = store.put_message(message, wall_ms)
            if result.status is not PutStatus.PUT_OK:
                self._fail(position, kind, phy_offset, result.reason)
                return
            if phy_offset < 0:
                phy_offset = result.phy_offset
        self._next = result.queue_offset + 1
        self.applied_offset = result.end_offset
        self._bodies_since += 1
        self._pending.append(_Appended(result.end_offset, position, phy_offset, kind))

    def _fail(self, position: int, kind: int, phy_offset: int, reason: str) -> None:
        # The tables are ahead of the log now: this change must never be answered.
        self._leading = False
        self._pending.append(_Appended(_NOWHERE, position, phy_offset, kind))
        self._on_failed(f"no room for metadata: {reason}")

    def _write_snapshot(self) -> None:
        metadata = self._metadata
        first = self._store.min_phy_offset
        gone = {topic: at for topic, at in self._deleted_at.items() if at >= first}
        if self._gone:
            # These deletions commit with the snapshot, or before it.
            places = {pending.position: pending.phy_offset for pending in self._pending}
            gone.update((topic, places[position]) for position, topic in self._gone)
        self._deleted_at = {topic: at for topic, at in self._deleted_at.items() if at >= first}
        ends = QueueEnds(self._queues.ends(gone), gone)
        begin = self._store.max_phy_offset
        self._put(
            metadata.position, SNAPSHOT, encode_ops([metadata.whole(), *metadata.access(), ends])
        )
        self._bodies_since = 0
        self._snapshot_due_offset = (begin // self._segment_bytes + 1) * self._segment_bytes

    def _committed(self, appended: _Appended) -> None:
        self._replicas.push2slave_max_metadata = appended.position
        if appended.kind == SNAPSHOT:
            self.snapshot_offset = appended.phy_offset
            self._base = b""
            return
        while self._gone and self._gone[0][0] <= appended.position:
            _, topic = self._gone.popleft()
            self._delete_queues(topic, appended.phy_offset)

    def _delete_queues(self, topic: str, phy_offset: int) -> None:
        self._deleted_at[topic] = phy_offset
        self._queues.forget_before(topic, phy_offset)

    # Leading or following.

    def on_commit(self, offset: int) -> None:
        """Apply what is committed below `offset`. HOT: once per commit.

        Errors: StoreError if this version cannot read a committed record.
        """
        if offset > self._commit:
            self._commit = self._replicas.push2slave_max_offset = offset
        if not self._leading:
            self._apply()
            return
        pending = self._pending
        while pending and pending[0].end_offset <= offset:
            self._committed(pending.popleft())

    def on_dispatched(self) -> None:
        """Apply records that were committed before the store had added them to their queue."""
        if not self._leading:
            self._apply()

    def truncated(self, offset: int) -> None:
        """Note that the log was cut and ends at `offset`, at or behind the commit."""
        if self._leading or self._pending or offset < self.applied_offset:
            self.step_down()

    def reset(self) -> None:
        """Note that the log was emptied, to be copied from the leader.

        The tables stay as they are until the copy has a snapshot: nothing newer is known.
        """
        self.step_down()
        self._next = -1
        self._assembly.clear()
        self.snapshot_offset = -1

    def _fold_anew(self) -> None:
        """Make the tables from the committed records alone."""
        begin, _ = self._log.bounds()
        index = self._log.newest_snapshot(begin, self._log.end_below(self._commit, begin))
        self._deleted_at.clear()
        if index >= 0:
            self._next = index
        else:
            if self._base:
                self._metadata.fold(self._base)
            self._next = begin
        self._assembly.clear()
        self._apply()

    def _apply(self) -> None:
        """Apply the committed records that the tables lack."""
        begin, _ = self._log.bounds()
        index = max(self._next, begin)
        stop = self._log.end_below(self._commit, index)
        if stop - index > _JUMP_MIN or self._next < 0:
            index = max(index, self._log.newest_snapshot(index, stop))
        if index > self._next:
            self._assembly.clear()
            self._next = index
        while self._next < stop:
            try:
                self._take(self._next)
            except DiskFull:
                # The next commit tries this body again. The member cannot lead until then.
                self._next = self._body_index
                self._assembly.clear()
                return
            self._next += 1

    def _take(self, index: int) -> None:
        assembly = self._assembly
        phy_offset, end_offset = self._log.place(index)
        kind, part, count, piece = self._log.read(index)
        if part == 0:
            self._body_index = index
        body = assembly.add(phy_offset, kind, part, count, piece)
        self.applied_offset = end_offset
        if body is None:
            return
        metadata = self._metadata
        try:
            ops = metadata.fold(body)
        except RemoteProtocolError as error:
            raise unreadable(phy_offset, error) from error
        for op in ops:
            if isinstance(op, QueuesGone):
                self._delete_queues(op.topic, assembly.phy_offset)
            elif isinstance(op, QueueEnds):
                self._deleted_at = dict(op.gone)
                self._queues.settle(op.ends, op.gone)
        self._replicas.push2slave_max_metadata = metadata.position
        if kind == SNAPSHOT:
            self.snapshot_offset = assembly.phy_offset
            self._base = b""
