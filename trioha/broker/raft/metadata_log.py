"""The metadata records of a group's log as a list: offsets, contents, and the newest snapshot."""

from __future__ import annotations

from trioha.broker.raft.records import QUEUE_ID, SNAPSHOT_CODE, read_part
from trioha.errors import RemoteProtocolError, StoreError
from trioha.store.raft_queues import RaftQueues
from trioha.wire.names import METADATA_TOPIC


class MetadataLog:
    """Records by their index in this node's consume queue; other members may have other indexes."""

    def __init__(self, queues: RaftQueues) -> None:
        self._queues = queues

    def bounds(self) -> tuple[int, int]:
        """Return the first index that the log still holds, and the one behind the last."""
        return self._queues.bounds(METADATA_TOPIC, QUEUE_ID)

    def place(self, index: int) -> tuple[int, int]:
        """Return the offsets at which a record begins and ends in the log."""
        entry = self._queues.entry(METADATA_TOPIC, QUEUE_ID, index)
        assert entry is not None, (index, self.bounds())
        return entry[0], entry[0] + entry[1]

    def read(self, index: int) -> tuple[int, int, int, bytes]:
        """Return kind, part, number of parts, and the record's piece of the body.

        Errors: StoreError if this version cannot read it.
        """
        begin, end = self.place(index)
        try:
            return read_part(self._queues.record(begin, end - begin))
        except RemoteProtocolError as error:
            raise unreadable(begin, error) from error

    def end_below(self, phy_offset: int, index: int) -> int:
        """Return the first index from `index` on whose record ends behind `phy_offset`. HOT."""
        _, end = self.bounds()
        if index >= end or self.place(index)[1] > phy_offset:
            return index
        index += 1
        if index >= end or self.place(index)[1] > phy_offset:
            return index
        stop = self._queues.index_at(METADATA_TOPIC, QUEUE_ID, phy_offset)
        return stop if self.place(stop - 1)[1] <= phy_offset else stop - 1

    def newest_snapshot(self, begin: int, stop: int) -> int:
        """Return the index of the newest whole snapshot from `begin` to before `stop`, or -1."""
        index = stop
        while True:
            index = self._queues.last_tagged(METADATA_TOPIC, QUEUE_ID, SNAPSHOT_CODE, index)
            if index < begin:
                return -1
            if self._is_whole(index, stop):
                return index

    def _is_whole(self, index: int, stop: int) -> bool:
        """Return whether a snapshot has all its parts: its leader may have died before the last."""
        kind, _, count, _ = self.read(index)
        return index + count <= stop and all(
            self.read(index + part)[:3] == (kind, part, count) for part in range(1, count)
        )


def unreadable(phy_offset: int, error: Exception) -> StoreError:
    """Return the error that ends a member which cannot read its log.

    A member that skipped a record would have other tables than the rest of the group.
    """
    return StoreError(
        f"the metadata at offset {phy_offset} of the log cannot be read: {error}; another "
        "version of trioha may have written it: start that one"
    )
