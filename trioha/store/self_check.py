"""Checks at start that a store holds all that its own files tell of.

Theory of operation. The checkpoint's recovery point and the file `extent` tell how far the log was
on disk; entries of consume queues tell how far it was written. A log that ends before that lacks a
file, most often since its disk is not mounted. Such a store does not open: as an empty one it would
give out offsets a second time, and its node could become master of a set whose messages it lost.

A loss of power takes only what was not on disk. So the checkpoint and `extent` always count. What
queues list counts after an orderly stop and while the machine stayed up, for then the page cache
has kept both.

A consume queue holds nothing that the log does not tell. One that lacks entries is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

from trioha.errors import CommitLogCorrupted, StoreError
from trioha.store.checkpoint import Checkpoint, boot_id
from trioha.store.consume_queue import PADDING_SIZE, ConsumeQueue
from trioha.store.consume_queues import ConsumeQueues, QueueKey
from trioha.store.extent_file import QueueEnd, StoreExtent, measure_extent
from trioha.store.mapped_file_queue import MappedFileQueue
from trioha.store.store_config import QUEUE_ENTRY_BYTES, StoreConfig
from trioha.store.store_mode import EPOCHS_STEM, has_slots

UNKNOWN_INDEX = 1 << 62
"""Next index in an `extent` of a queue that is being rebuilt: its end is unknown."""

Entry = tuple[int, int, int]


def counted_extent(extent: StoreExtent | None, checkpoint: Checkpoint) -> StoreExtent | None:
    """The extent, unless a Java broker has written the store since."""
    is_foreign = checkpoint != Checkpoint() and checkpoint.recovery_point is None
    return None if is_foreign and not checkpoint.is_garbled else extent


def is_same_boot(checkpoint: Checkpoint) -> bool:
    """Has the machine stayed up since the checkpoint was written?"""
    point = checkpoint.recovery_point
    return point is not None and point.boot == boot_id() != bytes(16)


def check_epochs(config: StoreConfig, extent: StoreExtent | None) -> None:
    """The file that says whether this node is master is there if it ever was.

    Errors: StoreError.
    """
    if config.is_dledger or extent is None or not extent.has_epochs:
        return
    if not has_slots(config.root, EPOCHS_STEM):
        raise StoreError(
            f"{config.root / EPOCHS_STEM}.0 and .1 are missing, which say whether this node is "
            f"master of its set: put one of them back; or, {config.accept_cure}"
        )


def proven_end(
    config: StoreConfig, checkpoint: Checkpoint, extent: StoreExtent | None
) -> tuple[int, Path]:
    """The offset below which the log was on disk, and the file that says so."""
    proofs = [(0, config.checkpoint_path)]
    if checkpoint.recovery_point is not None:
        proofs.append((checkpoint.recovery_point.phy_offset, config.checkpoint_path))
    if extent is not None and not config.is_dledger:
        proofs.append((extent.log_end, config.extent_path))
    return max(proofs)


def check_log(
    config: StoreConfig,
    files: MappedFileQueue,
    queues: ConsumeQueues,
    checkpoint: Checkpoint,
    extent: StoreExtent | None,
    *,
    clean: bool,
) -> None:
    """The log has every file that its own store tells of.

    Errors: CommitLogCorrupted with the cure.
    """
    end, witness = proven_end(config, checkpoint, extent)
    if files.files:
        if end > files.end_offset:
            raise log_is_short(config, files.end_offset, end, witness)
        return
    # A checkpoint is on disk from the first opening on, and what voids it keeps the file.
    tells_queues = clean or is_same_boot(checkpoint) or not config.checkpoint_path.exists()
    if end == 0 and tells_queues and not config.is_dledger:
        for queue in queues.table.values():
            if (queue.topic, queue.queue_id) not in queues.damaged:
                queue.recover(None, foreign=True)
                if queue.max_phy_offset > end:
                    end, witness = queue.max_phy_offset, queue.directory
    is_written = checkpoint.recovery_point is None and checkpoint.physic_msg_timestamp > 0
    if end > 0:
        raise CommitLogCorrupted(
            f"{config.commitlog_path} is empty, but by {witness} bytes up to {end} were in it: "
            f"mount its disk or put its files back; or, {config.accept_cure}"
        )
    if is_written and not config.is_dledger:
        raise CommitLogCorrupted(
            f"{config.commitlog_path} is empty, but by {config.checkpoint_path} messages were in "
            f"it: mount its disk or put its files back; or, {config.accept_cure}"
        )


def log_is_short(config: StoreConfig, end: int, proven: int, witness: Path) -> CommitLogCorrupted:
    """The error for a log without its newest files."""
    return CommitLogCorrupted(
        f"{config.commitlog_path} ends at {end}, but by {witness} bytes up to {proven} were in it: "
        f"put the missing segment back; or, {config.accept_cure}"
    )


def check_queue_sizes(
    config: StoreConfig, queues: ConsumeQueues, extent: StoreExtent | None
) -> None:
    """Files of a wrong size are damage; but not if all of them are as another setting makes them.

    Errors: CommitLogCorrupted.
    """
    if not queues.damaged:
        return
    if extent is not None:
        is_setting = extent.queue_file_bytes != config.queue_file_bytes
    else:
        is_setting = set(queues.keys()) <= queues.damaged.keys()
    if is_setting:
        raise next(iter(queues.damaged.values()))


def lacking_queues(
    queues: ConsumeQueues,
    extent: StoreExtent | None,
    log_begin: int,
    start: int,
    matches: Callable[[str, int, Entry], bool],
) -> dict[QueueKey, str]:
    """Queues without all entries of records below `start`, and why that is known.

    Every queue is settled there. `matches` compares a queue's entry with the log.
    """
    found = {key: str(error) for key, error in queues.damaged.items()}
    rows, begin_of_rows = ({}, -1) if extent is None else (extent.queues, extent.log_begin)
    # One that came after the extent was written has nothing but records behind `start`.
    is_listed = extent is not None and not extent.is_void
    for key, row in rows.items():
        queue = queues.table.get(key)
        if row.end_phy_offset > start:
            continue
        if queue is None or not queue.files.files:
            found.setdefault(key, "its files are missing")
        elif queue.next_index < row.next_index:
            reason = f"it ends at {queue.next_index}, not at {row.next_index}"
            if row.next_index == UNKNOWN_INDEX:
                reason = "its rebuilding was interrupted"
            found.setdefault(key, reason)
        elif log_begin == begin_of_rows and queue.first_index > row.first_index:
            found.setdefault(key, f"it begins at {queue.first_index}, not at {row.first_index}")
    for key, queue in queues.table.items():
        if key in found:
            continue
        wrong = _wrong_entry(queue, matches)
        if wrong >= 0:
            found[key] = f"its entry {wrong} points to no message of it"
        elif not is_listed and queue.next_index == 0 and queue.written_end < 0:
            found[key] = "it is empty"
    return found


def _wrong_entry(queue: ConsumeQueue, matches: Callable[[str, int, Entry], bool]) -> int:
    """The first index that contradicts the log, of the entries at both ends of each file; or -1."""
    for file in queue.files.files:
        begin = file.from_offset // QUEUE_ENTRY_BYTES
        last = min(begin + queue.entries_per_file, queue.next_index) - 1
        for index in (begin, last) if last > begin else (last,) if last == begin else ():
            phy_offset, size, tags_code = queue.entry(index) or (0, 0, 0)
            if size == PADDING_SIZE and phy_offset == 0:
                continue
            if phy_offset < 0 or size <= 0:
                return index
            if not matches(queue.topic, queue.queue_id, (phy_offset, size, tags_code)):
                return index
    return -1


def rebuilding_extent(
    config: StoreConfig,
    queues: ConsumeQueues,
    extent: StoreExtent | None,
    *,
    lacking: dict[QueueKey, str] | None,
    log_begin: int,
    log_end: int,
) -> StoreExtent:
    """Return what the file holds while `lacking` queues, or all of them, are rebuilt.

    After a crash it tells that they are incomplete.
    """
    measured = measure_extent(config, queues, log_begin, log_end)
    rows = dict(measured.queues)
    if extent is not None:
        rows.update(extent.queues)
    for key in lacking or ():
        if extent is None or key not in extent.queues:
            rows[key] = QueueEnd(UNKNOWN_INDEX, -1)
    return attrs.evolve(
        measured if extent is None else extent, queues=rows, is_rebuilding=lacking is None
    )


def restore_ends(queues: ConsumeQueues, extent: StoreExtent, log_end: int) -> None:
    """Let queues whose records have all expired go on where they had been.

    Errors: StoreError, DiskFull.
    """
    for (topic, queue_id), row in extent.queues.items():
        if row.next_index == UNKNOWN_INDEX or row.end_phy_offset > log_end:
            continue
        queue = queues.table.get((topic, queue_id))
        if queue is None or (queue.last_entry() is None and queue.next_index < row.next_index):
            queues.find_or_make(topic, queue_id).start_at(row.next_index)
