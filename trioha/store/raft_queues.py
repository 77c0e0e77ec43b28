"""Consume queues for the metadata of a Raft group, whatever consumers may see of them.

Readers are held below the commit (`readable_offset`); here every entry shows, for the group's own
tables are made of records that this node finds by their queue, and it compares with the commit
itself.

A topic's deletion is a record of the log like any other, at some offset P, and means: what lies
before P is gone. As a rule about bytes it gives every member the same queues whenever it is
applied, before or after the records behind P have arrived: entries before P are forgotten, those
behind stay, and a queue with nothing left is gone and begins at 0 again. A member that has not
come so far meets a record whose queue offset is 0, and the dispatcher begins the queue anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from trioha.store.commitlog import CommitLog
from trioha.store.consume_queues import ConsumeQueues, is_storable
from trioha.wire.names import RAFT_TOPICS


class RaftQueues:
    """Consume queues by what they hold, committed or not."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues) -> None:
        self._log = log
        self._queues = queues

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first index that is held, and the one behind the last."""
        queue = self._queues.table.get((topic, queue_id))
        return (0, 0) if queue is None else (queue.min_index, queue.next_index)

    def entry(self, topic: str, queue_id: int, index: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags_code) of one entry, or None."""
        queue = self._queues.table.get((topic, queue_id))
        return None if queue is None else queue.entry(index)

    def index_at(self, topic: str, queue_id: int, phy_offset: int) -> int:
        """The first index whose record begins at `phy_offset` or behind."""
        queue = self._queues.table.get((topic, queue_id))
        if queue is None:
            return 0
        return queue.bisect(
            queue.min_index, queue.next_index, lambda offset, size: offset < phy_offset
        )

    def last_tagged(self, topic: str, queue_id: int, tags_code: int, before: int) -> int:
        """The newest index below `before` whose entry carries the code, or -1."""
        queue = self._queues.table.get((topic, queue_id))
        return -1 if queue is None else queue.last_tagged(tags_code, before)

    def record(self, phy_offset: int, size: int) -> memoryview:
        """The bytes of one record.

        Errors: OffsetOutOfRange when the log does not hold them.
        """
        return self._log.read(phy_offset, size)

    def ends(self, gone: Mapping[str, int]) -> dict[str, dict[int, int]]:
        """Return the index of the next message of every queue: topic -> queue id -> index.

        `gone`: topics that are deleted by the record at this offset, sooner or later; a queue that
        lists nothing behind it begins anew then. The group's own two are numbered by each store
        for itself.
        """
        ends: dict[str, dict[int, int]] = {}
        for (topic, queue_id), queue in self._queues.table.items():
            if (
                queue.next_index
                and topic not in RAFT_TOPICS
                and queue.max_phy_offset > gone.get(topic, -2)
            ):
                ends.setdefault(topic, {})[queue_id] = queue.next_index
        return ends

    def forget_before(self, topic: str, phy_offset: int) -> None:
        """The topic was deleted by the record at `phy_offset`; durable when it returns.

        Errors: StoreError.
        """
        for queue_id in [queue_id for name, queue_id in self._queues.table if name == topic]:
            self._queues.forget_before(topic, queue_id, phy_offset)

    def settle(self, ends: Mapping[str, Mapping[int, int]], gone: Mapping[str, int]) -> None:
        """Set up the queues of a snapshot, on a member that did not read the whole log before it.

        A queue whose records have all expired is told by nothing else: on a member that copied the
        log it would begin at 0 again, and give offsets that were given before.

        Errors: StoreError; DiskFull.
        """
        queues, table = self._queues, self._queues.table
        for topic, queue_id in list(table):
            queue = table[topic, queue_id]
            if topic in gone:
                queues.forget_before(topic, queue_id, gone[topic])
            elif queue.min_index == queue.next_index and queue_id not in ends.get(topic, ()):
                # It was deleted, and even that has expired.
                queues.forget_before(topic, queue_id, queue.max_phy_offset)
        for topic, queue_ids in ends.items():
            for queue_id, end in queue_ids.items():
                known = table.get((topic, queue_id))
                if (known is None or not known.next_index) and is_storable(topic, queue_id):
                    queues.find_or_make(topic, queue_id).start_at(end)
