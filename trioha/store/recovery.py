"""Recovery of a store: makes its consume queues and index equal to its log, and cuts a torn end.

Theory of operation. RocketMQ reads every record of the last segments again
(CommitLog.recoverAbnormally). Python would take half a minute for a full segment, so our checkpoint
also names a *recovery point* (docs/decisions/0005-recovery-point.md): below it the log is on disk,
sound, and in the consume queues on disk. Only the log behind it is read record by record. A store
that a Java broker wrote last has no recovery point; then the start is derived from the consume
queues after a clean stop, else from the checkpoint's timestamps.

Damage behind the recovery point is a torn end: it is cut, and zeroed, so that its bytes never come
back. Damage before it is damage to acknowledged messages: then the store does not open.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs

from trioha.errors import CommitLogCorrupted
from trioha.journal import EventSink
from trioha.store.accept_loss import is_noted
from trioha.store.checkpoint import Checkpoint, read_checkpoint
from trioha.store.commitlog import CommitLog
from trioha.store.consume_queue import PADDING_SIZE, ConsumeQueue
from trioha.store.consume_queues import ConsumeQueues, QueueKey
from trioha.store.dispatcher import Dispatcher
from trioha.store.extent_file import ExtentFile, StoreExtent, index_file_bytes, write_extent
from trioha.store.index_files import IndexFiles
from trioha.store.mapped_file import MappedFile
from trioha.store.record_scan import Walk, walk
from trioha.store.self_check import (
    check_epochs,
    check_log,
    check_queue_sizes,
    counted_extent,
    is_same_boot,
    lacking_queues,
    log_is_short,
    proven_end,
    rebuilding_extent,
    restore_ends,
)
from trioha.store.store_config import StoreConfig
from trioha.wire.record import MAGIC, RecordError, dispatch_fields, peek

Progress = Callable[[int, int], None]
"""Callback with two numbers of bytes: read so far, and in all."""

_VERIFY_BYTES = 4 << 20
"""Bytes before the recovery point that are verified too: cheap, and finds a disk's lost writes."""
_STEP_BYTES = 64 << 20
_NEVER = 1 << 62
_REPAIR = "trioha raft repair"


@attrs.frozen(kw_only=True)
class RecoveryReport:
    clean: bool
    start_offset: int
    """Offset from which on records were read one by one."""
    end_offset: int
    cut_bytes: int
    records: int
    is_whole: bool
    """False if an operator has accepted a loss and no master has filled the store since."""
    rebuilt: bool
    """Every consume queue and the index were rebuilt from the whole log."""
    elapsed_ms: int


@attrs.define(eq=False)
class Recovery:
    """One recovery of a store, before it opens.

    Errors: StoreError, CommitLogCorrupted, DiskFull; the text names the file and the cure.
    """

    _config: StoreConfig
    _log: CommitLog
    _queues: ConsumeQueues
    _index: IndexFiles
    _dispatcher: Dispatcher
    _events: EventSink
    _progress: Progress | None
    _extent_file: ExtentFile = attrs.field(alias="extent")
    _extent: StoreExtent | None = attrs.field(default=None, init=False)
    _lacking: dict[QueueKey, str] = attrs.field(factory=dict, init=False)
    """Queues to rebuild, each with the reason."""
    _records: int = attrs.field(default=0, init=False)

    def run(self) -> RecoveryReport:
        started_s = time.perf_counter()
        config, log = self._config, self._log
        clean = not config.abort_path.exists()
        self._events.event("recovery_started", clean=clean)
        checkpoint = read_checkpoint(config.checkpoint_path)
        if checkpoint.is_garbled:
            self._events.event("checkpoint_garbled", file=str(config.checkpoint_path))
        extent = self._extent = counted_extent(self._extent_file.load(), checkpoint)
        check_epochs(config, extent)
        log.files.load()
        self._queues.load()
        check_log(config, log.files, self._queues, checkpoint, extent, clean=clean)
        check_queue_sizes(config, self._queues, extent)
        self._load_index(extent)
        cut_bytes = start = 0
        rebuilt = False
        if not log.files.files:
            # RocketMQ's rule (CommitLog.recoverNormally): without a log there are no queues.
            self._queues.delete_all()
            self._index.delete_all()
        else:
            start, rebuilt = self._recover_queues(checkpoint, clean)
            floor = max(start, proven_end(config, checkpoint, extent)[0])
            end, reason = self._find_end(start, floor)
            last = log.truncate(end)
            cut_bytes = last - end
            if cut_bytes:
                self._events.event("log_truncated", from_offset=last, to_offset=end, reason=reason)
            self._recover_index(checkpoint, clean, rebuilt, start)
            self._queues.correct_min(log.min_offset)
            self._rebuild_queues()
            started_s = time.perf_counter()
            self._dispatch(start)
            if rebuilt and self._queues.table:
                reason = "files of queues were missing, and no file tells which"
                self._say_rebuilt(dict.fromkeys(self._queues.table, reason), started_s)
            if self._extent is not None:
                restore_ends(self._queues, self._extent, log.end)
        report = RecoveryReport(
            clean=clean,
            start_offset=start,
            end_offset=log.end,
            cut_bytes=cut_bytes,
            records=self._records,
            is_whole=not is_noted(config),
            rebuilt=rebuilt,
            elapsed_ms=int((time.perf_counter() - started_s) * 1000),
        )
        self._events.event(
            "recovery_finished",
            clean=clean,
            cut_bytes=cut_bytes,
            records=self._records,
            elapsed_ms=report.elapsed_ms,
            max_phy_offset=log.end,
        )
        return report

    def _load_index(self, extent: StoreExtent | None) -> None:
        size = index_file_bytes(self._config)
        damage = self._index.load(
            is_size_known=extent is not None and extent.index_file_bytes == size
        )
        if damage is not None:
            self._events.event("index_rebuilt", reason=str(damage))

    # The start offset.

    def _recover_queues(self, checkpoint: Checkpoint, clean: bool) -> tuple[int, bool]:
        """Bring every queue to the start offset; return that, and whether all is rebuilt."""
        log, queues = self._log, self._queues
        first, end = log.files.first_offset, log.files.end_offset
        point = checkpoint.recovery_point
        # The counts of the recovery point and the extent prove which queue files are missing
        # (decision 5): without them a queue's next index would begin at 0 again.
        lost = not queues.keys() and (point is None or point.queue_count > 0)
        if self._extent is None:
            lost = lost or (point is not None and point.queue_count > len(queues.keys()))
        elif not self._extent.is_void:
            # `lacking_queues` finds single ones by the extent, which outlives a crash in a rebuild.
            lost = self._extent.is_rebuilding or (lost and point is None)
        # Queues that end before the log's first record have nothing to go on from.
        if lost or (point is not None and point.phy_offset < first):
            return self._start_anew()
        sound = [queue for key, queue in queues.table.items() if key not in queues.damaged]
        if point is not None:
            start = point.phy_offset
            self._dispatcher.store_timestamp = point.store_timestamp
            for queue in sound:
                queue.recover(start)
                # The page cache outlives a process: only a lost log file explains a longer queue.
                if is_same_boot(checkpoint) and queue.written_end > end:
                    raise log_is_short(self._config, end, queue.written_end, queue.directory)
        else:
            for queue in sound:
                queue.recover(None, foreign=True)
            # RocketMQ's store: it has no recovery point. DefaultMessageStore.load trusts its queues
            # when there is no abort file; a garbled checkpoint has lived through a power loss.
            is_clean = clean and not checkpoint.is_garbled
            start = self._start_by_queues(sound) if is_clean else self._start_by_time(checkpoint)
            for queue in sound:
                queue.truncate_phy(start)
        log.settle(start)
        self._lacking = lacking_queues(queues, self._extent, first, start, self._entry_matches)
        self._prepare_rebuild(start)
        self._verify_before(start)
        for queue in queues.table.values():
            queue.truncate(queue.next_index)
        return start, False

    def _prepare_rebuild(self, start: int) -> None:
        if not self._lacking:
            return
        kept = rebuilding_extent(
            self._config,
            self._queues,
            self._extent,
            lacking=self._lacking,
            log_begin=self._log.min_offset,
            log_end=start,
        )
        write_extent(self._extent_file.path, kept)
        for key in self._lacking:
            self._queues.begin_anew(*key)

    def _rebuild_queues(self) -> None:
        """Rebuild the entries of the lacking queues from the log."""
        lacking, log = self._lacking, self._log
        if not lacking:
            return
        started_s = time.perf_counter()
        for offset in self._dispatcher.rebuild(frozenset(lacking), _STEP_BYTES):
            if self._progress is not None:
                self._progress(offset - log.min_offset, log.end - log.min_offset)
        self._say_rebuilt(lacking, started_s)

    def _say_rebuilt(self, queues: dict[QueueKey, str], started_s: float) -> None:
        (topic, queue_id), reason = next(iter(queues.items()))
        self._events.event(
            "queues_rebuilt",
            count=len(queues),
            first=f"{topic}/{queue_id}",
            reason=reason,
            elapsed_ms=int((time.perf_counter() - started_s) * 1000),
        )

    def _start_anew(self) -> tuple[int, bool]:
        # `rebuilding_extent` measures the queues: they must know their ends.
        for key, queue in self._queues.table.items():
            if key not in self._queues.damaged:
                queue.recover(None, foreign=True)
        files = self._log.files
        kept = rebuilding_extent(
            self._config,
            self._queues,
            self._extent,
            lacking=None,
            log_begin=files.first_offset,
            log_end=files.end_offset,
        )
        write_extent(self._extent_file.path, kept)
        self._extent = kept
        self._queues.delete_all()
        self._index.delete_all()
        return self._log.files.first_offset, True

    def _start_by_queues(self, queues: list[ConsumeQueue]) -> int:
        """Return the start after a clean stop: queues have all records but last transaction marks.
        Errors: CommitLogCorrupted if a queue has more than the log.
        """
        files = self._log.files
        start = files.first_offset
        for queue in queues:
            if queue.max_phy_offset > files.end_offset:  # a log file is missing
                raise log_is_short(
                    self._config, files.end_offset, queue.max_phy_offset, queue.directory
                )
            start = max(start, queue.max_phy_offset)
        return start

    def _start_by_time(self, checkpoint: Checkpoint) -> int:
        """Return the start after a crash, by RocketMQ's rule (CommitLog.recoverAbnormally).

        A record stored at the checkpoint's time or before is on disk in log and queues. RocketMQ
        starts at the last segment that begins with such a record. A later record will do too, and
        queues tell where records begin.
        """
        log = self._log
        timestamp = checkpoint.recover_timestamp
        # CommitLog.isMappedFileMatchedRecover: only a safe index has to be up to the start.
        if self._config.index_enable and self._config.index_safe:
            timestamp = min(timestamp, checkpoint.index_msg_timestamp)
        log.settle(log.files.end_offset)
        for segment in reversed(log.files.files):
            header = peek(segment.buffer, 0)
            if header.magic == MAGIC and 0 < header.store_timestamp <= timestamp:
                start = segment.from_offset
                break
        else:
            return log.files.first_offset
        for queue in self._queues.table.values():
            after = queue.bisect(
                queue.min_index,
                queue.next_index,
                lambda offset, size: size == PADDING_SIZE or self._time_of(offset) <= timestamp,
            )
            entry = queue.entry(after - 1)
            # The entry itself may be damaged: it counts only if its record is there.
            if entry is not None and start < entry[0] and 0 < self._time_of(entry[0]) <= timestamp:
                start = entry[0]
        return start

    def _time_of(self, phy_offset: int) -> int:
        """Return the store timestamp of a record: 0 if expired, `_NEVER` if there is none."""
        if phy_offset < self._log.min_offset:
            return 0
        record = self._log.record_at(phy_offset)
        return _NEVER if record is None else peek(record, 0).store_timestamp

    def _entry_matches(self, topic: str, queue_id: int, entry: tuple[int, int, int]) -> bool:
        phy_offset, size, _ = entry
        if phy_offset < self._log.min_offset:
            return True  # its segment has expired
        record = self._log.record_at(phy_offset)
        if record is None or len(record) != size:
            return False
        try:
            fields = dispatch_fields(record, 0)
        except RecordError:
            return False
        self._dispatcher.store_timestamp = max(
            self._dispatcher.store_timestamp, fields.store_timestamp
        )
        return fields.topic == topic and fields.queue_id == queue_id

    # The end offset.

    def _verify_before(self, offset: int) -> None:
        """Check that the last `_VERIFY_BYTES` before `offset` are sound and end exactly there.

        Errors: CommitLogCorrupted if not: they were safe on disk once, so the disk lost writes.
        """
        segment = self._log.files.find(offset - 1)
        if segment is None:
            return
        begin = segment.from_offset
        target = offset - _VERIFY_BYTES
        if target > begin:
            # Only a queue tells where a record begins: bytes that look like one may be a body.
            for queue in self._queues.table.values():
                after = queue.bisect(
                    queue.min_index, queue.next_index, lambda at, size: at <= target
                )
                entry = queue.entry(after - 1)
                if entry is not None and entry[1] != PADDING_SIZE:
                    begin = max(begin, entry[0])
        position = begin - segment.from_offset
        limit = offset - segment.from_offset
        while position < limit:
            walked = self._walk(segment, position, limit)
            if walked.reason:
                raise self._corrupted(segment, walked)
            position = walked.position
        if position > limit:
            raise self._corrupted(segment, Walk(limit, 0, "no record begins there", -1))

    def _find_end(self, start: int, floor: int) -> tuple[int, str]:
        """Return the end of the sound records from `start` on, and why they end there.

        Errors: CommitLogCorrupted if that is below `floor`, up to which the log was once proved.
        """
        log = self._log
        total = log.files.end_offset - start
        offset = start
        for segment in log.files.files:
            if segment.end_offset <= start:
                continue
            position = offset - segment.from_offset
            while position < segment.size:
                walked = self._walk(segment, position, position + _STEP_BYTES)
                self._records += walked.records
                position = walked.position
                offset = segment.from_offset + position
                if self._progress is not None:
                    self._progress(offset - start, total)
                if walked.reason:
                    if offset < floor:  # acknowledged messages: never cut them in silence
                        raise self._corrupted(segment, walked)
                    return offset, walked.reason
                if walked.blank_position >= 0 and segment is log.files.files[-1]:
                    # No record follows the blank: the master's log may end before it.
                    return segment.from_offset + walked.blank_position, "blank at the end"
        return offset, ""

    def _walk(self, segment: MappedFile, position: int, stop: int) -> Walk:
        return walk(
            segment.buffer,
            position,
            segment.size,
            segment.from_offset,
            check_crc=self._config.check_crc_on_recover,
            stop=stop,
        )

    def _corrupted(self, segment: MappedFile, walked: Walk) -> CommitLogCorrupted:
        cure = (
            "Copy the store from its replica; or look with `trioha log verify`, and to give up "
            f"everything from there on remove {self._config.checkpoint_path}, "
            f"{self._config.extent_path} and {self._config.consume_queue_path}"
        )
        if self._config.is_dledger:
            # This member acknowledged those bytes (Raft 5.3): it must not vote after a cut.
            cure = f"Run `{_REPAIR} {self._config.root}`"
        return CommitLogCorrupted(
            f"{segment.path} is damaged at byte {walked.position} (offset "
            f"{segment.from_offset + walked.position}): {walked.reason}; messages there had been "
            f"safe on disk. {cure}"
        )

    # Index and queues, up to the log's end.

    def _recover_index(
        self, checkpoint: Checkpoint, clean: bool, rebuilt: bool, start: int
    ) -> None:
        index = self._index
        if not self._config.index_enable:
            return
        point = None if rebuilt else checkpoint.recovery_point
        if point is None and not clean:
            index.delete_after(checkpoint.index_msg_timestamp)
        same_boot = clean or (point is not None and is_same_boot(checkpoint))
        index.recover(point, same_boot=same_boot, limit=min(start, self._log.end))

    def _dispatch(self, start: int) -> None:
        dispatcher, log = self._dispatcher, self._log
        dispatcher.offset = start
        while dispatcher.run(_STEP_BYTES):
            if self._progress is not None:
                self._progress(dispatcher.offset - start, log.end - start)
        assert dispatcher.offset == log.end, (dispatcher.offset, log.end)
        self._index.following = self._index.resume_offset >= log.end
