"""The index of a store: files one behind the other, and what is still to go into them
(IndexService.java).

A put only notes its keys in a list; `drain` hashes and files them off the hot path. The list is
bounded. When it overflows the index stops following, and `drain` reads the log again from where
it left off, until it has caught up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from trioha.errors import CommitLogCorrupted, DiskFull, StoreError
from trioha.store.checkpoint import RecoveryPoint
from trioha.store.index_file import NAME_DIGITS, IndexFile, Keyed
from trioha.store.index_hash import IndexHasher
from trioha.store.mapped_file import disk_error, fsync_directory
from trioha.store.store_config import StoreConfig
from trioha.wire.java_hash import index_key_hash
from trioha.wire.properties import KEYS, UNIQ_KEY, decode_properties
from trioha.wire.unique_id import id_place

LogReader = Callable[[int, int], tuple[list[Keyed], int]]
"""(offset, bytes_max) -> the keys of the records from there on, and where to read on."""

_SYNC_INTERVAL_S: Final = 30
"""Slots are dirty all over the file, so syncing it costs up to its 20 MB of slots each time."""
_QUERY_DRAIN_MAX: Final = 8192


def keys_of(properties: bytes) -> list[bytes]:
    """Return the keys under which a record is indexed: UNIQ_KEY, then each of KEYS."""
    begin, end = id_place(properties)
    if begin < end:
        return [properties[begin:end]]
    values = decode_properties(properties)
    found = [key.encode() for key in values.get(KEYS, "").split(" ") if key]
    unique = values.get(UNIQ_KEY)
    return [unique.encode(), *found] if unique else found


class IndexFiles:
    """The loop adds and queries; the flush thread syncs."""

    def __init__(self, config: StoreConfig) -> None:
        self.files: list[IndexFile] = []
        self.pending: list[Keyed] = []
        self.following = True
        """Every dispatched record is in the files or in `pending`."""
        self.resume_offset = 0
        """Offset from which the log is read again when not following."""
        self._config = config
        self._pending_max = config.index_pending_max
        self._hasher = IndexHasher()
        self._synced_at_s = 0.0
        self.synced_timestamp = 0
        """Store timestamp in ms of the newest record at the last sync; 0 before the first sync."""
        self._synced: tuple[int, int, int] = (0, 0, 0)

    # Filling.

    def note(self, phy_offset: int, timestamp: int, topic: str, key: bytes) -> None:
        """A key of a record that has become readable; it goes into the files at the next drain."""
        if not self.following:
            return
        if len(self.pending) < self._pending_max:
            self.pending.append((phy_offset, timestamp, topic, key))
        else:
            self._stop_following(phy_offset)

    def note_all(self, keyed: list[Keyed]) -> None:
        """`note` for the keys of several records in a row."""
        if not self.following or not keyed:
            return
        if len(self.pending) + len(keyed) <= self._pending_max:
            self.pending += keyed
        else:
            self._stop_following(keyed[0][0])

    def _stop_following(self, phy_offset: int) -> None:
        self.following = False
        self.resume_offset = phy_offset
        while self.pending and self.pending[-1][0] == phy_offset:
            # Other keys of the same record: it will be read again as a whole.
            self.pending.pop()

    def drain(self, dispatched_offset: int, bytes_max: int, read: LogReader) -> bool:
        """File what is pending, or read on in the log; True if more is left.

        A full disk stops the index, not the store: False then, and the next call tries again.
        """
        try:
            if self.pending:
                self._file(self.pending, max(64, bytes_max // 128))
            elif not self.following:
                records, offset = read(self.resume_offset, bytes_max)
                try:
                    self._file(records, len(records))
                finally:
                    self.resume_offset = records[0][0] if records else offset
                self.following = offset >= dispatched_offset
        except DiskFull:
            return False
        return bool(self.pending) or not self.following

    def _file(self, keyed: list[Keyed], count: int) -> None:
        # Entries first, then the header, and only then are they no longer pending: the flush
        # thread may look at any moment.
        rows = keyed[:count]
        hashes = self._hasher.hashes(rows)
        done = 0
        file = self.files[-1] if self.files else None
        try:
            while done < len(rows):
                if file is None or file.is_full:
                    if file is not None:
                        file.save()
                    file = self._create()
                done += file.add(rows, hashes, done)
        finally:
            if file is not None:
                file.save()
            del keyed[:done]

    def _create(self) -> IndexFile:
        directory = self._config.index_path
        stamp_ms = time.time_ns() // 1_000_000
        while True:
            local = time.localtime(stamp_ms // 1000)
            path = directory / f"{time.strftime('%Y%m%d%H%M%S', local)}{stamp_ms % 1000:03d}"
            if not self.files or path.name > self.files[-1].path.name:
                break
            stamp_ms += 1
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, f"cannot create {directory}") from error
        file = IndexFile(self._config, path)
        file.create()
        self.files.append(file)
        return file

    # Asking.

    def query(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterable[int]:
        """Offsets of records, newest first; other keys of the same hash may be among them."""
        # Keys that lack disk space now are found once there is some.
        with suppress(DiskFull):
            self._file(self.pending, _QUERY_DRAIN_MAX)
        key_hash = index_key_hash(topic, key)
        last = -1
        for file in reversed(self.files):
            if not file.is_empty and file.overlaps(begin_ms, end_ms):
                for phy_offset in file.find(key_hash, begin_ms, end_ms):
                    if phy_offset != last:
                        yield phy_offset
                    last = phy_offset

    @property
    def last_update(self) -> tuple[int, int]:
        """Store timestamp and offset of the newest indexed record."""
        if not self.files:
            return (0, 0)
        return (self.files[-1].end_timestamp, self.files[-1].end_phy_offset)

    # Keeping.

    def indexed_offset(self, dispatched_offset: int) -> int:
        """Return the offset below which all records are in the files.

        Thread-safe when given an earlier reading.
        """
        if not self.following:
            dispatched_offset = min(dispatched_offset, self.resume_offset)
        oldest = self.pending[:1]
        return min(dispatched_offset, oldest[0][0]) if oldest else dispatched_offset

    def flush(self, dispatched_offset: int, *, force: bool = False) -> tuple[int, int, int]:
        """Sync now and then; returns (offset, file name, next entry) of the last sync. Thread-safe.

        Errors: StoreError.
        """
        now_s = time.monotonic()
        if force or now_s - self._synced_at_s >= _SYNC_INTERVAL_S:
            self._synced_at_s = now_s
            offset = self.indexed_offset(dispatched_offset)
            files = list(self.files)
            name, number = 0, 1
            if files:
                name, number = int(files[-1].path.name), files[-1].next_number
            dirty = [file for file in files if file.next_number != file.synced_number]
            newest = files[-1].end_timestamp if files else 0
            for file in dirty:
                synced_number = file.next_number
                file.file.sync()
                file.synced_number = synced_number
            if dirty:
                try:
                    fsync_directory(self._config.index_path)
                    fsync_directory(self._config.root)
                except OSError as error:
                    raise StoreError(f"fsync of the index failed: {error.strerror}") from error
            self.synced_timestamp = newest
            self._synced = (offset, name, number)
        return self._synced

    def delete_before(self, min_phy_offset: int) -> list[Path]:
        """Delete the files that only speak of records no longer in the log."""
        gone = []
        while len(self.files) > 1 and self.files[0].end_phy_offset < min_phy_offset:
            file = self.files.pop(0)
            file.file.unlink()
            gone.append(file.path)
        return gone

    def delete_all(self) -> None:
        """Remove all files and pending rows."""
        self.pending.clear()
        for file in self.files:
            file.file.unlink()
        self.files.clear()

    def truncate_phy(self, phy_offset: int) -> None:
        """Forget the records at or behind `phy_offset`."""
        self.pending = [row for row in self.pending if row[0] < phy_offset]
        self.resume_offset = min(self.resume_offset, phy_offset)
        while self.files:
            file = self.files[-1]
            file.truncate_phy(phy_offset)
            if not file.is_empty:
                break
            self.files.pop()
            file.file.unlink()

    # Recovery.

    def load(self, *, is_size_known: bool = False) -> CommitLogCorrupted | None:
        """Find the files; one of a wrong size and all younger ones are removed, to be made anew.
        Returns what was wrong with it.

        `is_size_known`: they were written with the sizes of our configuration.
        Errors: StoreError for what does not belong there; CommitLogCorrupted where sizes look like
        another configuration's; the text names the file and the cure.
        """
        directory = self._config.index_path
        if not directory.is_dir():
            return None
        damage: CommitLogCorrupted | None = None
        damaged: list[Path] = []
        for path in sorted(directory.iterdir()):
            if len(path.name) != NAME_DIGITS or not path.name.isdecimal():
                raise StoreError(f"{path} does not belong here: move it away")
            if path.stat().st_size == 0:
                path.unlink()  # we died between making it and giving it its size
                continue
            file = IndexFile(self._config, path)
            try:
                file.load()
            except CommitLogCorrupted as error:
                damage = damage or error
            if damage is None:
                self.files.append(file)
            else:
                damaged.append(path)
        if damage is not None and not (is_size_known or self.files):
            raise damage
        for path in reversed(damaged):
            path.unlink()
        return damage

    def recover(self, point: RecoveryPoint | None, *, same_boot: bool, limit: int) -> None:
        """Bring the files in a state that equals the log below `resume_offset`.

        `point` is our own checkpoint, if it stands. While the machine was up the page cache kept
        all that was written. After a power cut only what was synced counts. Records from `limit` on
        may differ from what was indexed.
        """
        self.following = False
        names = [int(file.path.name) for file in self.files]
        if point is not None and point.index_file and point.index_file not in names:
            # Removed by hand: made again from where the one before it ends.
            point = None
        if point is not None and not same_boot:
            while self.files and int(self.files[-1].path.name) > point.index_file:
                self.files.pop().file.unlink()
            if self.files:
                self.files[-1].rebuild_slots(point.index_next_number)
            self.resume_offset = point.index_synced_offset
        else:
            indexed = [0 if point is None else point.indexed_offset]
            indexed += [file.end_phy_offset for file in self.files if not file.is_empty]
            self.resume_offset = max(indexed)
        self.resume_offset = min(self.resume_offset, limit)
        self.truncate_phy(self.resume_offset)

    def delete_after(self, timestamp: int) -> None:
        """Java's rule for an unclean stop: a file newer than the checkpoint is not trusted."""
        while self.files and self.files[-1].end_timestamp > timestamp:
            self.files.pop().file.unlink()
