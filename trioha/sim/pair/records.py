"""A log of small records over a simulated disk: what replication and recovery see of a store.

A record is smaller than RocketMQ's and has what matters of it: size and magic where the HA machines
look, queue and queue offset, whose message it is, and a CRC that shows a torn one.
"""

from __future__ import annotations

import struct
from random import Random

import attrs

from trioha.checksum import crc32
from trioha.errors import OffsetOutOfRange, StoreError
from trioha.sim.disk import LogFile
from trioha.wire import record
from trioha.wire.remoting_command import Buffer

_HEAD = struct.Struct(">iIiqqI")
HEAD_BYTES = _HEAD.size
PADDING_BYTES_MAX = 48
SEGMENT_BYTES = 1 << 30


@attrs.frozen
class StoredMessage:
    """One message where a log has it."""

    phy_offset: int
    size: int
    queue_id: int
    queue_offset: int
    message_id: int

    @property
    def end(self) -> int:
        return self.phy_offset + self.size


class RecordLog:
    """The log of one node while its process lives. The file is the machine's and outlives it."""

    def __init__(self, file: LogFile) -> None:
        self.entries: list[StoredMessage] = []
        self.by_message: dict[int, StoredMessage] = {}
        self.queue_ends: dict[int, int] = {}
        self.parsed_end = 0
        """Whole records up to here; a link may have brought half of one beyond."""
        self._file = file
        self._parse()

    @property
    def min_phy_offset(self) -> int:
        return 0

    @property
    def max_phy_offset(self) -> int:
        return len(self._file.data)

    def drop_torn_tail(self) -> int:
        """Recovery: cut what is no whole record; returns how much that was."""
        torn = self.max_phy_offset - self.parsed_end
        if torn:
            self._file.truncate(self.parsed_end)
        return torn

    def put(self, queue_id: int, message_id: int, rng: Random) -> StoredMessage:
        """A master's own append, at the end of its queue."""
        assert self.parsed_end == self.max_phy_offset, "a master's log ends in half a record"
        queue_offset = self.queue_ends.get(queue_id, 0)
        size = HEAD_BYTES + rng.randrange(PADDING_BYTES_MAX)
        crc = _crc(size, queue_id, queue_offset, message_id)
        head = _HEAD.pack(size, record.MAGIC, queue_id, queue_offset, message_id, crc)
        self._file.append(head.ljust(size, b"."))
        self._parse()
        return self.entries[-1]

    def read_log(self, phy_offset: int, size_max: int) -> memoryview:
        data = self._file.data
        if not 0 <= phy_offset <= len(data):
            raise OffsetOutOfRange(f"offset {phy_offset} is not within 0..{len(data)}")
        return memoryview(bytes(data[phy_offset : phy_offset + size_max]))

    def append_log(self, phy_offset: int, data: Buffer) -> None:
        """A slave's append."""
        if phy_offset != self.max_phy_offset:
            raise StoreError(f"append at {phy_offset}, the log ends at {self.max_phy_offset}")
        self._file.append(bytes(data))
        self._parse()

    def truncate(self, phy_offset: int) -> None:
        """Cut, and bring the queues back with it."""
        self._file.truncate(phy_offset)
        self.entries = [entry for entry in self.entries if entry.end <= phy_offset]
        self.parsed_end = self.entries[-1].end if self.entries else 0
        self.by_message = {entry.message_id: entry for entry in self.entries}
        self.queue_ends = {}
        for entry in self.entries:
            self.queue_ends[entry.queue_id] = entry.queue_offset + 1

    def _parse(self) -> None:
        data, position = self._file.data, self.parsed_end
        while len(data) - position >= HEAD_BYTES:
            fields = _HEAD.unpack_from(data, position)
            size, _, queue_id, queue_offset, message_id, crc = fields
            if len(data) - position < size or crc != _crc(*fields[:1], *fields[2:5]):
                break
            entry = StoredMessage(position, size, queue_id, queue_offset, message_id)
            self.entries.append(entry)
            self.by_message[message_id] = entry
            self.queue_ends[queue_id] = queue_offset + 1
            position += size
        self.parsed_end = position


def _crc(size: int, queue_id: int, queue_offset: int, message_id: int) -> int:
    return crc32(struct.pack(">iiqq", size, queue_id, queue_offset, message_id))
