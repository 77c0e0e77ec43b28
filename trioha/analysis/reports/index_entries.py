"""Index files against the log: does every key have its entry, and every entry its key?

Theory of operation (IndexFile.java). A file is a header, hash slots, then entries in the order of
the log: key hash, phy_offset, seconds, previous entry of the slot. Slots and entries are as many as
the broker was told, which no header says: the layout is found by what it must hold. Entries of a
range of the log are found by bisection and compared with the keys of its records as sets of
(phy_offset, hash). Files are read here, whatever the engine; of a log beyond `BYTES_MAX` only
evenly spread ranges, and the report says how many.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from trioha.analysis.scan import scan_split
from trioha.analysis.store_files import LogSplit, StoreFiles
from trioha.wire.codes import SysFlag
from trioha.wire.java_hash import index_key_hash

BYTES_MAX = 2 << 30
WRONG_MAX = 200
NAME_DIGITS = 17
_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_SLOT = struct.Struct(">i")
_DEFAULT_SLOTS = 5_000_000
_COLUMNS = ("phy_offset", "topic", "sys_flag", "unique_key", "keys")

MISSING, DANGLING = "key without entry", "entry without key"


@attrs.frozen
class WrongEntry:
    """A key that cannot be found, or an entry that leads nowhere."""

    store: str
    kind: str
    phy_offset: int
    topic: str
    key: str
    """Empty for an entry: it holds only a hash."""
    key_hash: int


@attrs.define
class IndexCheck:
    """What the comparison of one store found."""

    store: str
    files: int = 0
    entries: int = 0
    begin: int = 0
    end: int = -1
    """Records from `begin` through `end` are indexed."""
    splits: int = 0
    splits_checked: int = 0
    keys_checked: int = 0
    missing: int = 0
    dangling: int = 0
    not_yet: int = 0
    """Keys of records behind the newest indexed one."""
    wrong: list[WrongEntry] = attrs.field(factory=list)
    unreadable: list[str] = attrs.field(factory=list)
    """Sentences on files that are no index files."""
    explained: int = 0
    """Wrong entries of records whose damage is told already."""

    def note(self, wrong: WrongEntry, is_explained: Callable[[int], bool]) -> None:
        if is_explained(wrong.phy_offset):
            self.explained += 1
            return
        if wrong.kind == MISSING:
            self.missing += 1
        else:
            self.dangling += 1
        if len(self.wrong) < WRONG_MAX:
            self.wrong.append(wrong)


class _IndexFile:
    """Entries of one file, in the order of the log."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._map = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        _, _, self.begin, self.end, _, self._next = _HEADER.unpack_from(self._map, 0)
        self.count = max(0, self._next - 1)
        self._at = 0
        if self.count:
            self._at = self._first_entry(size)

    def close(self) -> None:
        self._map.close()

    def _first_entry(self, size: int) -> int:
        """Where entry 1 lies. Errors: ValueError when the file has no layout that fits."""
        if self._fits(at := 40 + 4 * _DEFAULT_SLOTS + 20, size):
            return at
        needle = struct.pack(">q", self.begin)
        place = self._map.find(needle, 40)
        while place >= 0:
            if self._fits(place - 4, size):
                return place - 4
            place = self._map.find(needle, place + 1)
        raise ValueError("neither its header nor its size fit its entries")

    def _fits(self, at: int, size: int) -> bool:
        slots, odd = divmod(at - 60, 4)
        last = at + (self.count - 1) * 20
        if odd or slots <= 0 or (size - at) % 20 or last + 20 > size:
            return False
        first_hash, first_offset, _, previous = _ENTRY.unpack_from(self._map, at)
        last_hash, last_offset, _, _ = _ENTRY.unpack_from(self._map, last)
        if (first_offset, last_offset, previous) != (self.begin, self.end, 0):
            return False
        # The newest entry is the head of its slot, and the oldest is in a slot that is used.
        (head,) = _SLOT.unpack_from(self._map, 40 + last_hash % slots * 4)
        (used,) = _SLOT.unpack_from(self._map, 40 + first_hash % slots * 4)
        return bool(head == self.count and 0 < used <= self.count)

    def between(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """(phy_offset, hash) of the entries of records in begin..end."""
        for number in range(self._bisect(begin), self.count):
            key_hash, phy_offset, _, _ = _ENTRY.unpack_from(self._map, self._at + number * 20)
            if phy_offset >= end:
                return
            yield phy_offset, key_hash

    def _bisect(self, offset: int) -> int:
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            _, phy_offset, _, _ = _ENTRY.unpack_from(self._map, self._at + middle * 20)
            if phy_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


def check_index(
    store: StoreFiles,
    bytes_max: int = BYTES_MAX,
    is_explained: Callable[[int], bool] = lambda phy_offset: False,
) -> IndexCheck:
    """Compare a store's index with its log; `is_explained` tells places of known damage.

    Errors: AnalysisError when the log cannot be read.
    """
    check = IndexCheck(store.label)
    files = _open_files(store, check)
    try:
        if files:
            check.files = len(files)
            check.entries = sum(file.count for file in files)
            check.begin = min(file.begin for file in files)
            check.end = max(file.end for file in files)
            splits = store.splits()
            chosen = _spread(splits, bytes_max)
            check.splits, check.splits_checked = len(splits), len(chosen)
            for split in chosen:
                _check_split(split, files, check, is_explained)
    finally:
        for file in files:
            file.close()
    return check


def _open_files(store: StoreFiles, check: IndexCheck) -> list[_IndexFile]:
    if store.root is None or not (directory := store.root / "index").is_dir():
        return []
    files = []
    for path in sorted(directory.iterdir()):
        if len(path.name) != NAME_DIGITS or not path.name.isdecimal():
            continue
        try:
            file = _IndexFile(path)
        except (OSError, ValueError, struct.error) as error:
            check.unreadable.append(f"{path} cannot be read: {error}")
            continue
        if file.count:
            files.append(file)
        else:
            file.close()
    return files


def _spread(splits: Sequence[LogSplit], bytes_max: int) -> list[LogSplit]:
    """All splits, or evenly spread ones; the last, which is the newest, is always there."""
    total = sum(split.end - split.begin for split in splits)
    count = max(1, len(splits) * bytes_max // total) if total > bytes_max else len(splits)
    return [splits[(i + 1) * len(splits) // count - 1] for i in range(count)] if splits else []


def _check_split(
    split: LogSplit,
    files: Sequence[_IndexFile],
    check: IndexCheck,
    is_explained: Callable[[int], bool],
) -> None:
    expected: dict[tuple[int, int], tuple[str, str]] = {}
    topics: dict[int, str] = {}
    for batch in scan_split(split, columns="full"):
        for phy_offset, topic, sys_flag, unique_key, keys in batch.rows(_COLUMNS):
            topics[phy_offset] = topic
            if sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK:
                continue
            words = [unique_key] if unique_key else []
            words += [word for word in (keys or "").split(" ") if word]
            if phy_offset > check.end:
                check.not_yet += len(words)
            elif phy_offset >= check.begin:
                for word in words:
                    expected[phy_offset, index_key_hash(topic, word)] = (topic, word)
    base = split.segment.from_offset
    found = {
        entry for file in files for entry in file.between(base + split.begin, base + split.end)
    }
    check.keys_checked += len(expected)
    for phy_offset, key_hash in sorted(expected.keys() - found):
        topic, word = expected[phy_offset, key_hash]
        check.note(
            WrongEntry(check.store, MISSING, phy_offset, topic, word, key_hash), is_explained
        )
    for phy_offset, key_hash in sorted(found - expected.keys()):
        topic = topics.get(phy_offset, "")
        check.note(WrongEntry(check.store, DANGLING, phy_offset, topic, "", key_hash), is_explained)
