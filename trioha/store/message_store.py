"""The store as the rest of trioha sees it (DefaultMessageStore.java): log, queues, index in one.

A put writes the record and its consume queue entry at once, so a message is readable when the put
returns; keys go to the index later, in `dispatch`. Bytes from a master are only copied by
`append_log`; `dispatch` then makes them readable.

One thread calls everything, save for `flush` and `flush_queues`, which one other thread may call.
"""

from __future__ import annotations

import threading

from trioha.errors import OffsetOutOfRange, StoreError
from trioha.journal import EventSink
from trioha.store.checkpoint import Checkpoint, RecoveryPoint, write_checkpoint
from trioha.store.commitlog import CommitLog
from trioha.store.consume_queues import ConsumeQueues
from trioha.store.dispatcher import Dispatcher
from trioha.store.extent_file import ExtentFile
from trioha.store.index_files import IndexFiles
from trioha.store.interface import DiskBlock, DispatchListener, MissingBytes, StoreStatistics
from trioha.store.lookup import Lookup
from trioha.store.mapped_file import disk_error, fsync_directory
from trioha.store.raft_queues import RaftQueues
from trioha.store.recovery import Progress, Recovery, RecoveryReport
from trioha.store.retention import DiskUsage, measure_disk
from trioha.store.segment_cleaner import Retention, SegmentCleaner
from trioha.store.store_config import StoreConfig
from trioha.store.store_lock import StoreLock
from trioha.store.store_mode import begin_files_at, check_mode
from trioha.store.write_gate import WriteGate
from trioha.store.writer import Writer
from trioha.wire.record import (
    dispatch_fields,
    peek,
)
from trioha.wire.remoting_command import Buffer

__all__ = ["FileMessageStore", "StoreConfig"]

_EVERYTHING = 1 << 62


class FileMessageStore:
    """RocketMQ's files in a directory. Made by `open`."""

    def __init__(
        self, config: StoreConfig, events: EventSink, missing_bytes: MissingBytes | None
    ) -> None:
        self.config = config
        self._events = events
        self._log = CommitLog(config)
        self._extent = ExtentFile(config)
        self._queues = ConsumeQueues(config, self._extent.void)
        self._index = IndexFiles(config)
        self._dispatcher = Dispatcher(config, self._log, self._queues, self._index)
        self._lookup = Lookup(config, self._log, self._queues, missing_bytes)
        self._table = self._queues.table
        self._lock: StoreLock | None = None
        self._checkpoint = Checkpoint()
        self._checkpoint_lock = threading.Lock()  # flush_queues against truncate and restart
        self._disk = DiskUsage(0, 0)
        self._cleaner = SegmentCleaner(config, self._log, events, self._save_extent)
        self._gate = WriteGate(config, events, self._log.probe)
        self._writer = Writer(
            config, self._log, self._queues, self._index, self._dispatcher, self._gate
        )
        # Bound here, so that a put or a pull is not one more call deep.
        self.put_message = self._writer.put_message
        self.put_batch = self._writer.put_batch
        self.get_message = self._lookup.get_message
        self.offset_by_time = self._lookup.offset_by_time
        self.store_time = self._lookup.store_time
        self.read_log = self._log.read
        self.is_boundary = self._log.is_boundary
        self.reserve_ahead = self._log.reserve_ahead
        self.appended_record = self._log.record_at
        self.queues = self._queues.keys
        self.delete_topic = self._queues.delete_topic
        self.delete_expired_soon = self._cleaner.expire_soon
        self.recovery: RecoveryReport | None = None
        """Report of the recovery at opening."""

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        events: EventSink,
        *,
        wall_ms: int,
        missing_bytes: MissingBytes | None = None,
        progress: Progress | None = None,
        begin_at: int | None = None,
    ) -> FileMessageStore:
        """Lock the directory and recover what is in it; may take seconds.

        With `missing_bytes` reads can be limited to what is in memory, which it tells. With
        `begin_at` whatever is in it goes, and an empty log begins there.

        Errors: StoreLocked, CommitLogCorrupted, DiskFull, StoreError: each text names the file and
        the cure.
        """
        store = cls(config, events, missing_bytes)
        store._lock = StoreLock(config.lock_path)
        try:
            check_mode(config)
            if begin_at is not None:
                begin_files_at(config, begin_at)
            store._recover(progress)
            store._lookup.begin()
            store.check_disk(wall_ms)
        except BaseException:
            store._lock.release()
            raise
        return store

    def _recover(self, progress: Progress | None) -> None:
        config = self.config
        if not config.index_enable:
            self._index.following = False
        recovery = Recovery(
            config,
            self._log,
            self._queues,
            self._index,
            self._dispatcher,
            self._events,
            progress,
            self._extent,
        )
        self.recovery = recovery.run()
        try:
            config.commitlog_path.mkdir(parents=True, exist_ok=True)
            config.consume_queue_path.mkdir(parents=True, exist_ok=True)
            config.abort_path.touch()
            fsync_directory(config.root)
        except OSError as error:
            raise disk_error(error, f"cannot prepare {config.root}") from error
        self._write_checkpoint(force=True)

    def tell_dispatches(self, listener: DispatchListener | None) -> None:
        """Tell `listener` of every message that becomes readable from now on.

        No argument of the constructor: a store is opened, and recovers, in a thread, before the
        broker exists that reads it and is told of its messages.
        """
        self._dispatcher.listener = listener

    # Replication.

    @property
    def min_phy_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_phy_offset(self) -> int:
        return self._log.end

    def append_log(self, phy_offset: int, data: Buffer) -> None:
        """Append raw bytes at the end (slaves); on an empty log any segment start will do.

        Errors: StoreError when `phy_offset` is not the end; DiskFull, with `max_phy_offset` at what
        was kept.
        """
        log = self._log
        if phy_offset != log.end and log.can_restart_at(phy_offset):
            self._restart_at(phy_offset)
        log.append_raw(phy_offset, data)

    def dispatch(self, bytes_max: int) -> bool:
        """Read on in the log and bring consume queues and index up to it; True if more is left.

        Errors: DiskFull (call again later), CommitLogCorrupted.
        """
        dispatcher = self._dispatcher
        if dispatcher.offset != self._log.end and dispatcher.run(bytes_max):
            return True
        if not self.config.index_enable:
            return False
        return self._index.drain(dispatcher.offset, bytes_max, dispatcher.read_keyed)

    @property
    def dispatched_offset(self) -> int:
        """Consume queues hold everything below; a record begins here, or the log ends."""
        return self._dispatcher.offset

    @property
    def refusal(self) -> str | None:
        """Human-readable reason why nothing may be put at the moment; None if it may."""
        return self._gate.refusal

    def truncate_log(self, phy_offset: int, reason: str = "asked for") -> None:
        """Cut everything from `phy_offset` on: log, queues, index. Durable when it returns.

        Errors: OffsetOutOfRange; StoreError when no record begins there.
        """
        log, dispatcher = self._log, self._dispatcher
        if not log.min_offset <= phy_offset <= log.end:
            raise OffsetOutOfRange(f"offset {phy_offset} is not in {log.min_offset}..{log.end}")
        if phy_offset < dispatcher.offset and not log.is_boundary(phy_offset):
            raise StoreError(f"no record begins at {phy_offset}: the log can not be cut there")
        with self._checkpoint_lock:
            if phy_offset < dispatcher.offset:
                # First of all: a recovery point above the cut would make the cut look like damage.
                self._void_checkpoint()
                self._queues.truncate_phy(phy_offset)
                dispatcher.offset = phy_offset
                self._index.truncate_phy(phy_offset)
            last = log.truncate(phy_offset)
            if phy_offset == dispatcher.offset:
                dispatcher.store_timestamp = self._lookup.newest_timestamp()
        self._events.event("log_truncated", from_offset=last, to_offset=phy_offset, reason=reason)
        self._write_checkpoint(force=True)

    def empty_log(self, reason: str) -> None:
        """Give up everything: log, queues, index. Durable when it returns.

        Errors: StoreError.
        """
        last = self._log.end
        self._restart_at(0)
        self._log.files.sync_names()
        self._events.event("log_truncated", from_offset=last, to_offset=0, reason=reason)
        self._write_checkpoint(force=True)

    def restart_log(self, phy_offset: int, reason: str) -> None:
        """Give up everything and begin at `phy_offset`, a segment's start. Durable when it returns.

        A crash in the middle leaves anything: then `open` with `begin_at`.
        Errors: StoreError.
        """
        if phy_offset % self.config.segment_bytes:
            raise StoreError(
                f"no segment of {self.config.segment_bytes} bytes begins at {phy_offset}: set "
                "mappedFileSizeCommitLog to the same number on all members of the group"
            )
        last = self._log.end
        self._restart_at(phy_offset)
        self._log.begin_segment()
        self._log.files.sync_names()
        self._events.event("log_truncated", from_offset=last, to_offset=phy_offset, reason=reason)
        self._write_checkpoint(force=True)

    def _restart_at(self, phy_offset: int) -> None:
        # The queues and the index belong to a log that no longer exists.
        with self._checkpoint_lock:
            self._void_checkpoint()
            self._queues.delete_all()
            self._index.delete_all()
            self._log.restart_at(phy_offset)
            self._dispatcher.offset = phy_offset
            self._index.resume_offset = phy_offset

    def _save_extent(self, log_end: int) -> None:
        self._extent.keep(self._queues, self._log.min_offset, log_end)

    def _void_checkpoint(self) -> None:
        self._extent.void()
        self._checkpoint = Checkpoint()
        write_checkpoint(self.config.checkpoint_path, self._checkpoint)

    # Reading.

    @property
    def readable_offset(self) -> int:
        """Readers see no record that ends beyond it. Without bound at first."""
        return self._lookup.readable_offset

    @readable_offset.setter
    def readable_offset(self, phy_offset: int) -> None:
        self._lookup.readable_offset = phy_offset

    def look_message(self, phy_offset: int) -> memoryview | None:
        """The one record that a consume queue lists at this offset, or None."""
        return self._lookup.listed_record(phy_offset)

    def blocks_on_disk(self, places: list[tuple[int, int]]) -> list[DiskBlock]:
        """Return what has to be read from disk for records, by their offsets and sizes."""
        return self._lookup.blocks_on_disk(places)

    def query_message(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> tuple[list[memoryview], int, int]:
        """Records by key, newest first; index's last update timestamp and phy offset."""
        records: list[memoryview] = []
        for phy_offset in self._index.query(topic, key, begin_ms, end_ms):
            record = self._lookup.readable_record(phy_offset)
            if record is not None and dispatch_fields(record, 0).topic == topic:
                records.append(record)
                if len(records) >= count_max:
                    break
        return records, *self._index.last_update

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        queue = self._table.get((topic, queue_id))
        return 0 if queue is None else queue.min_index

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        queue = self._table.get((topic, queue_id))
        return 0 if queue is None else self._lookup.max_index(queue)

    def consume_queue_entry(
        self, topic: str, queue_id: int, offset: int
    ) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags_code) of one entry, or None."""
        entry = self.appended_entry(topic, queue_id, offset)
        if entry is None or entry[0] + entry[1] > self._lookup.readable_offset:
            return None
        return entry

    def queue_entries(self, topic: str, queue_id: int, offset: int, count_max: int) -> memoryview:
        """Entries from `offset` on, 20 bytes each, back to back; possibly fewer than there are."""
        queue = self._table.get((topic, queue_id))
        if queue is None or offset < queue.min_index:
            return memoryview(b"")
        count = min(count_max, self._lookup.max_index(queue) - offset)
        entries = queue.entries(offset, count) if count > 0 else None
        return memoryview(b"") if entries is None else entries

    # Reading what is in the log, whether or not readers may see it yet.

    def queue_end_offset(self, topic: str, queue_id: int) -> int:
        """The end, in the log, of the last record that the queue lists; -1 if it lists none."""
        queue = self._table.get((topic, queue_id))
        return -1 if queue is None else queue.max_phy_offset

    def appended_max_offset(self, topic: str, queue_id: int) -> int:
        """Return the max offset of a queue, readable or not; 0 if there is no such queue."""
        queue = self._table.get((topic, queue_id))
        return 0 if queue is None else queue.next_index

    def appended_entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Return (phy_offset, size, tags_code) of one entry, readable or not, or None."""
        queue = self._table.get((topic, queue_id))
        return None if queue is None else queue.entry(offset)

    def raft_queues(self) -> RaftQueues:
        """Consume queues as the metadata of a Raft group needs them."""
        return RaftQueues(self._log, self._queues)

    def is_in_memory_window(self, phy_offset: int) -> bool:
        return phy_offset >= self._log.end - self.config.memory_window_bytes

    # Keeping.

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    def flush(self) -> int:
        """fsync what is dirty and return the offset now durable. Thread-safe; blocks.

        Errors: StoreError when fsync fails: the page cache may have lied, the node must stop.
        """
        try:
            return self._log.flush()
        except StoreError as error:
            self._gate.shut(str(error))
            raise

    def flush_queues(self) -> None:
        """Consume queues, index and checkpoint to disk. Thread-safe against the loop; blocks.

        Errors: StoreError.
        """
        self._write_checkpoint(force=False)

    def _write_checkpoint(self, *, force: bool) -> None:
        with self._checkpoint_lock:
            # In this order: a timestamp no younger than the records below the offset.
            timestamp = self._dispatcher.store_timestamp
            offset = self._dispatcher.offset
            indexed = self._index.indexed_offset(offset)
            files_changed = self._queues.flush()
            synced, index_file, index_number = self._index.flush(offset, force=force)
            if self._log.flushed_offset < offset or force:
                self.flush()
            if force or files_changed or self._extent.is_stale:
                self._save_extent(offset)
            checkpoint = Checkpoint(
                physic_msg_timestamp=timestamp,
                logics_msg_timestamp=timestamp,
                index_msg_timestamp=self._index.synced_timestamp,
                recovery_point=RecoveryPoint(
                    phy_offset=offset,
                    store_timestamp=timestamp,
                    indexed_offset=indexed,
                    index_synced_offset=synced,
                    index_file=index_file,
                    index_next_number=index_number,
                    queue_count=len(self._queues.keys()),
                ),
            )
            if checkpoint != self._checkpoint:
                write_checkpoint(self.config.checkpoint_path, checkpoint)
                self._checkpoint = checkpoint

    def check_disk(self, wall_ms: int, retention: Retention | None = None) -> list[str]:
        """Measure the disk, delete expired segments, update `writable`; returns what went."""
        config, log = self.config, self._log
        try:
            self._disk = measure_disk(config.commitlog_path)
        except OSError as error:
            raise StoreError(f"cannot measure {config.commitlog_path}: {error.strerror}") from error
        point = self._checkpoint.recovery_point
        gone, self._disk = self._cleaner.clean(
            self._disk, 0 if point is None else point.phy_offset, wall_ms, retention
        )
        if gone:
            self._queues.correct_min(log.min_offset)
            gone += [str(path) for path in self._index.delete_before(log.min_offset)]
        self._gate.judge(self._disk, wall_ms)
        return gone

    def statistics(self) -> StoreStatistics:
        log = self._log
        first = log.record_at(log.min_offset)
        return StoreStatistics(
            min_phy_offset=log.min_offset,
            max_phy_offset=log.end,
            flushed_offset=log.flushed_offset,
            dispatched_offset=self._dispatcher.offset,
            disk_ratio=self._disk.ratio,
            writable=self._gate.refusal is None,
            put_total=self._writer.put_total,
            put_bytes=self._writer.put_bytes,
            get_total=self._lookup.get_total,
            get_bytes=self._lookup.get_bytes,
            earliest_store_timestamp=-1 if first is None else peek(first, 0).store_timestamp,
            indexed_offset=self._index.indexed_offset(self._dispatcher.offset),
        )

    def abandon(self) -> None:
        """Unlock and leave the files as a killed process leaves them."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def close(self) -> None:
        """Flush everything, write the checkpoint, remove `abort` if dispatch caught up, unlock.

        Errors: StoreError; the store is unlocked all the same, and will recover when opened.
        """
        lock, self._lock = self._lock, None
        if lock is None:
            return
        self._gate.shut("the broker is shutting down")
        try:
            while self._dispatcher.run(_EVERYTHING):
                pass
            if self.config.index_enable and self._index.following:
                self._index.drain(self._dispatcher.offset, _EVERYTHING, self._dispatcher.read_keyed)
            self._write_checkpoint(force=True)
            if self._dispatcher.offset == self._log.end:
                self.config.abort_path.unlink(missing_ok=True)
                fsync_directory(self.config.root)
        finally:
            lock.release()
