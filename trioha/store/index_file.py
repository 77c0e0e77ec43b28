"""A hash table on disk from ``topic#key`` to offsets (IndexFile.java).

Header (40 bytes), hash slots (i32 each: number of the newest entry), entries (20 bytes, numbered
from 1; each names the one before it in its slot). Nothing is ever removed from the middle, so the
newest entries can be undone one by one: that is how a file is cut back with its log, and how an
entry half added when the process died is taken out.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be

from trioha.errors import CommitLogCorrupted, StoreError
from trioha.store.mapped_file import MappedFile
from trioha.store.store_config import StoreConfig

# beginTimestamp, endTimestamp, beginPhyOffset, endPhyOffset, used slots, next entry number
_HEADER: Final = struct.Struct(">qqqqii")
_SLOT: Final = struct.Struct(">i")
# keyHash, phyOffset, seconds after beginTimestamp, previous entry in the slot
_ENTRY: Final = struct.Struct(">iqii")
_HEADER_SIZE: Final = 40
_SLOT_SIZE: Final = 4
_ENTRY_SIZE: Final = 20
_I32_MAX: Final = 0x7FFFFFFF
_GET_SLOT: Final = _SLOT.unpack_from
_PUT_SLOT: Final = _SLOT.pack_into

NAME_DIGITS: Final = 17

Keyed = tuple[int, int, str, bytes]
"""phy_offset, store timestamp, topic, one key of a record."""


class IndexFile:
    """One index file. Entries count for readers at once, for Java after `save`."""

    def __init__(self, config: StoreConfig, path: Path) -> None:
        self._slots = config.hash_slot_count
        self._entries_max = config.index_entry_count
        self._entries_at = _HEADER_SIZE + self._slots * _SLOT_SIZE
        size = self._entries_at + self._entries_max * _ENTRY_SIZE
        self.file = MappedFile(path, 0, size, config.index_chunk_bytes)
        self.begin_timestamp = 0
        self.end_timestamp = 0
        self.begin_phy_offset = 0
        self.end_phy_offset = 0
        """Offset of the newest indexed record."""
        self.used_slots = 0
        self.next_number = 1
        self.synced_number = 0
        """`next_number` when the file was last synced."""

    @property
    def path(self) -> Path:
        return self.file.path

    @property
    def is_full(self) -> bool:
        return self.next_number >= self._entries_max

    @property
    def is_empty(self) -> bool:
        return self.next_number <= 1

    def create(self) -> None:
        """Make the file, with blocks for every slot: they are written in no order.

        Errors: DiskFull, StoreError.
        """
        self.file.create()
        try:
            self.file.reserve(self._entries_at + _ENTRY_SIZE)
        except StoreError:
            self.file.unlink()
            raise
        self.save()

    def load(self) -> None:
        """Read the header.

        Errors: CommitLogCorrupted when the file has another size.
        """
        size = self.path.stat().st_size
        if size != self.file.size:
            raise CommitLogCorrupted(
                f"{self.path} has {size} bytes, not {self.file.size}: set maxHashSlotNum and "
                "maxIndexNum to what the store was written with, or remove the file"
            )
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.used_slots,
            self.next_number,
        ) = _HEADER.unpack_from(self.file.buffer, 0)
        self.next_number = min(max(self.next_number, 1), self._entries_max)

    def save(self) -> None:
        """Write the header."""
        _HEADER.pack_into(
            self.file.buffer,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.used_slots,
            self.next_number,
        )

    def add(self, keyed: Sequence[Keyed], hashes: Sequence[int], begin: int) -> int:
        """Add the rows from `begin` on, as many as there is room for; returns how many.

        Errors: DiskFull; nothing has changed then.
        """
        buffer = self.file.buffer
        slots = self._slots
        number = self.next_number
        end = min(len(hashes), begin + self._entries_max - number)
        at = self._entries_at + number * _ENTRY_SIZE
        stop = at + (end - begin) * _ENTRY_SIZE
        if stop > self.file.reserved:
            # Slots were reserved when the file was made.
            self.file.reserve(stop, at)
        if number == 1:
            self.begin_phy_offset, self.begin_timestamp = keyed[begin][:2]
        begin_timestamp = self.begin_timestamp
        phy_offset = timestamp = 0
        entries = BytesWriter()
        newest: dict[int, int] = {}  # by where their slots lie
        for row in range(begin, end):
            phy_offset, timestamp, _, _ = keyed[row]
            key_hash = hashes[row]
            seconds = (timestamp - begin_timestamp) // 1000
            if seconds < 0 or seconds > _I32_MAX:
                seconds = min(max(seconds, 0), _I32_MAX)
            slot_at = _HEADER_SIZE + key_hash % slots * _SLOT_SIZE
            previous = newest.get(slot_at, 0)
            if not previous:
                previous = _GET_SLOT(buffer, slot_at)[0]
                if previous <= 0 or previous >= number:
                    previous = 0
                    self.used_slots += 1
            newest[slot_at] = number
            write_i32_be(entries, key_hash)
            write_i64_be(entries, phy_offset)
            write_i32_be(entries, seconds)
            write_i32_be(entries, previous)
            number += 1
        # The entries before their slots: those half added can then be undone.
        buffer[at:stop] = entries.getvalue()
        for slot_at, slot_number in newest.items():
            _PUT_SLOT(buffer, slot_at, slot_number)
        self.next_number = number
        self.end_phy_offset = phy_offset
        self.end_timestamp = timestamp
        return end - begin

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Offsets of records with that hash, newest first."""
        buffer = self.file.buffer
        slot_at = _HEADER_SIZE + key_hash % self._slots * _SLOT_SIZE
        (number,) = _SLOT.unpack_from(buffer, slot_at)
        bound = self.next_number
        while 0 < number < bound:
            entry_hash, phy_offset, seconds, previous = _ENTRY.unpack_from(
                buffer, self._entries_at + number * _ENTRY_SIZE
            )
            timestamp = self.begin_timestamp + seconds * 1000
            if timestamp + 999 < begin_ms:
                return
            if entry_hash == key_hash and timestamp <= end_ms:
                yield phy_offset
            # Strictly downwards, or a damaged chain would never end.
            bound, number = number, previous

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.begin_timestamp <= end_ms and self.end_timestamp >= begin_ms

    # Recovery.

    def truncate_phy(self, phy_offset: int) -> None:
        """Undo the entries of records at or behind `phy_offset`, and what was not yet counted."""
        number = self._first_unused()
        while number > 1:
            _, entry_offset, _, _ = self._entry(number - 1)
            if number <= self.next_number and entry_offset < phy_offset:
                break
            number -= 1
            self._undo(number)
        self._settle(number)

    def rebuild_slots(self, next_number: int) -> None:
        """Make the slots anew from the entries below `next_number`; the rest is forgotten.

        After a power cut entries are on disk up to the last flush, slots in any state.
        """
        entries_end = self._entries_at + next_number * _ENTRY_SIZE
        slots = array("i", bytes(self._slots * _SLOT_SIZE))
        first = self._entries_at + _ENTRY_SIZE
        entries = _ENTRY.iter_unpack(self.file.view[first:entries_end])
        for number, (key_hash, _, _, _) in enumerate(entries, 1):
            slots[key_hash % self._slots] = number
        self.used_slots = self._slots - slots.count(0)
        if sys.byteorder == "little":
            slots.byteswap()
        self.file.buffer[_HEADER_SIZE : self._entries_at] = slots.tobytes()
        self.file.clear(entries_end)
        self._settle(next_number)

    def _first_unused(self) -> int:
        # Entries written after the header was last saved: their bytes are not all zero.
        number = self.next_number
        while number < self._entries_max and any(self._entry(number)):
            number += 1
        return number

    def _undo(self, number: int) -> None:
        buffer = self.file.buffer
        key_hash, _, _, previous = self._entry(number)
        slot_at = _HEADER_SIZE + key_hash % self._slots * _SLOT_SIZE
        if _SLOT.unpack_from(buffer, slot_at)[0] == number:
            _SLOT.pack_into(buffer, slot_at, previous)
            if previous == 0 and number < self.next_number:
                self.used_slots -= 1
        at = self._entries_at + number * _ENTRY_SIZE
        buffer[at : at + _ENTRY_SIZE] = bytes(_ENTRY_SIZE)

    def _settle(self, next_number: int) -> None:
        self.next_number = next_number
        self.synced_number = 0
        if next_number > 1:
            _, self.end_phy_offset, seconds, _ = self._entry(next_number - 1)
            # Whole seconds only; up to one too late does no harm to a query.
            newest = self.begin_timestamp + seconds * 1000 + 999
            self.end_timestamp = min(self.end_timestamp, newest)
        else:
            self.begin_timestamp = self.end_timestamp = 0
            self.begin_phy_offset = self.end_phy_offset = 0
        self.save()

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        entry: tuple[int, int, int, int] = _ENTRY.unpack_from(
            self.file.buffer, self._entries_at + number * _ENTRY_SIZE
        )
        return entry
