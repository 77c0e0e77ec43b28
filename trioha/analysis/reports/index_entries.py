"""Index files against the log: does every key have its entry, and every entry its key?

Theory of operation (IndexFile.java). A file is a header, hash slots, then entries in the order of
the log: key hash, phy_offset, seconds, previous entry of the slot. Slots and entries are as many as
the broker was told, which no header says: the layout is found by what it must hold. Entries of a
range of the log are found by bisection and compared with the keys of its records: in the same
order, else as sets of (phy_offset, hash). The local engine finds the keys while it decodes the log.
Else the log is read here, and beyond `BYTES_MAX` only evenly spread ranges of it; the report says
how many.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from trioha.analysis.index_keys import (
    COLUMNS,
    HASH_BITS,
    HASH_MASK,
    Keys,
    load_keys,
    scan_keys,
)
from trioha.analysis.scan import ScanFilter, scan_split
from trioha.analysis.store_files import LogSplit, StoreFiles
from trioha.wire.java_hash import index_key_hash

BYTES_MAX = 2 << 30
WRONG_MAX = 200
NAME_DIGITS = 17
_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_SLOT = struct.Struct(">i")
_DEFAULT_SLOTS = 5_000_000
_ENTRIES = np.dtype(
    [("key_hash", ">i4"), ("phy_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)

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
    """Result of comparing one store's index with its log."""

    store: str
    files: int = 0
    entries: int = 0
    begin: int = 0
    end: int = -1
    """Records from `begin` through `end` are indexed."""
    splits: int = 0
    splits_checked: int = 0
    keys_checked: int = 0
    """A key that its record has twice counts twice, as it has two entries."""
    missing: int = 0
    dangling: int = 0
    not_yet: int = 0
    """Keys of records behind the newest indexed one."""
    wrong: list[WrongEntry] = attrs.field(factory=list)
    unreadable: list[str] = attrs.field(factory=list)
    """Sentences on files that are no index files."""
    explained: int = 0
    """Wrong entries of records whose damage is told already."""


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
        """Return the position of entry 1. Errors: ValueError when no layout fits the file."""
        if self._fits(at := 40 + 4 * _DEFAULT_SLOTS + 20, size):
            return at
        needle = struct.pack(">q", self.begin)
        fitting = []
        place = self._map.find(needle, 40)
        while place >= 0:
            if self._fits(place - 4, size):
                fitting.append(place - 4)
            place = self._map.find(needle, place + 1)
        if not fitting:
            raise ValueError("neither its header nor its size fit its entries")
        return max(fitting, key=self._slots_that_agree)

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

    def _slots_that_agree(self, at: int) -> int:
        """Count the slots that lead to an entry whose hash is theirs.

        In a short file whose log begins at 0, zeros before the entries may pass for the first one.
        """
        slots = (at - 60) // 4
        heads = np.frombuffer(self._map, ">i4", slots, 40).astype(np.int64)
        hashes = np.frombuffer(self._map, _ENTRIES, self.count, at)["key_hash"]
        used = np.flatnonzero((heads > 0) & (heads <= self.count))
        return int(np.count_nonzero(hashes[heads[used] - 1] % slots == used))

    def between(self, begin: int, end: int) -> NDArray[np.void]:
        """Entries of records in begin..end."""
        first, count = self._bisect(begin), self._bisect(end) - self._bisect(begin)
        entries = np.frombuffer(self._map, _ENTRIES, count, self._at + first * _ENTRY.size)
        return entries.copy()  # else the file could not be closed

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


def has_index(store: StoreFiles) -> bool:
    """Return whether there may be index files."""
    return store.root is not None and (store.root / "index").is_dir()


def check_index(
    store: StoreFiles,
    decoded: Sequence[tuple[LogSplit, Path]] = (),
    bytes_max: int = BYTES_MAX,
    is_explained: Callable[[int], bool] = lambda phy_offset: False,
) -> IndexCheck:
    """Compare a store's index with its log; `is_explained` tells places of known damage.

    `decoded` are all ranges of the log and the files of their keys; without them the log is read.

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
            splits = [split for split, _ in decoded] or store.splits()
            chosen = splits if decoded else _spread(splits, bytes_max)
            check.splits, check.splits_checked = len(splits), len(chosen)
            paths = dict(decoded)
            for split in chosen:
                path = paths.get(split)
                keys = scan_keys(split) if path is None else load_keys(path)
                _check_split(split, keys, files, check, is_explained)
    finally:
        for file in files:
            file.close()
    return check


def _open_files(store: StoreFiles, check: IndexCheck) -> list[_IndexFile]:
    if store.root is None or not has_index(store):
        return []
    files = []
    for path in sorted((store.root / "index").iterdir()):
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
    """Return all splits, or evenly spread ones; the last, which is the newest, is always there."""
    total = sum(split.end - split.begin for split in splits)
    count = max(1, len(splits) * bytes_max // total) if total > bytes_max else len(splits)
    return [splits[(i + 1) * len(splits) // count - 1] for i in range(count)] if splits else []


def _check_split(
    split: LogSplit,
    keys: Keys,
    files: Sequence[_IndexFile],
    check: IndexCheck,
    is_explained: Callable[[int], bool],
) -> None:
    """Compare the keys of one range with its entries: number by number, else as sets."""
    begin = split.first_offset
    places = keys >> HASH_BITS
    check.not_yet += int(np.count_nonzero(places > check.end - begin))
    is_covered = (places >= check.begin - begin) & (places <= check.end - begin)
    expected = keys[is_covered]
    check.keys_checked += len(expected)
    entries = np.concatenate(
        [file.between(begin, begin + split.end - split.begin) for file in files]
    )
    offsets = entries["phy_offset"].astype(np.int64) - begin
    # An entry out of order belongs to no range: its place cannot be packed.
    is_in = (offsets >= 0) & (offsets < split.end - split.begin)
    hashes = entries["key_hash"].astype(np.int64)
    found = offsets[is_in] << HASH_BITS | hashes[is_in] & HASH_MASK
    if is_in.all() and np.array_equal(expected, found):
        return
    expected, found = _distinct(expected), _distinct(found)
    missing = _unpacked(np.setdiff1d(expected, found, assume_unique=True), begin)
    dangling = _unpacked(np.setdiff1d(found, expected, assume_unique=True), begin)
    odd = zip((offsets[~is_in] + begin).tolist(), hashes[~is_in].tolist(), strict=True)
    for kind, wrong in ((MISSING, missing), (DANGLING, sorted({*dangling, *odd}))):
        _note(split, kind, wrong, check, is_explained)


def _distinct(keys: Keys) -> Keys:
    """Return each key once, in order. np.unique would hash them, which takes ten times as long."""
    keys = np.sort(keys)
    found: Keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    return found


def _unpacked(keys: Keys, begin: int) -> list[tuple[int, int]]:
    """phy_offset and hash of keys in a range that begins there."""
    offsets = (keys >> HASH_BITS) + begin
    hashes = (keys & HASH_MASK).astype(np.uint32).view(np.int32)
    return list(zip(offsets.tolist(), hashes.tolist(), strict=True))


def _note(
    split: LogSplit,
    kind: str,
    wrong: Sequence[tuple[int, int]],
    check: IndexCheck,
    is_explained: Callable[[int], bool],
) -> None:
    """Count wrong places, and list the first with what their records say."""
    untold = [each for each in wrong if not is_explained(each[0])]
    check.explained += len(wrong) - len(untold)
    if kind == MISSING:
        check.missing += len(untold)
    else:
        check.dangling += len(untold)
    listed = untold[: WRONG_MAX - len(check.wrong)]
    records = _records(split, sorted({phy_offset for phy_offset, _ in listed}))
    for phy_offset, key_hash in listed:
        topic, words = records.get(phy_offset, ("", []))
        key = ""
        if kind == MISSING:
            key = next(word for word in words if index_key_hash(topic, word) == key_hash)
        check.wrong.append(WrongEntry(check.store, kind, phy_offset, topic, key, key_hash))


def _records(split: LogSplit, offsets: Sequence[int]) -> dict[int, tuple[str, list[str]]]:
    """Topic and keys of the records at these offsets; what is no record is left out."""
    if not offsets:
        return {}
    between = ScanFilter(phy_offset_from=offsets[0], phy_offset_to=offsets[-1] + 1)
    return {
        phy_offset: (topic, [unique_key or "", *(keys or "").split(" ")])
        for batch in scan_split(split, columns="full", filters=between, checks_bodies=False)
        for phy_offset, topic, unique_key, keys in batch.only(
            np.isin(batch.numbers("phy_offset"), offsets)
        ).rows(("phy_offset", "topic", *COLUMNS))
    }
