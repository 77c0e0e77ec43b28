"""The file `checkpoint`: how far the other files are known to be on disk (StoreCheckpoint.java).

RocketMQ's part is three timestamps. Ours stands in the same 512-byte sector, which a disk writes
whole or not at all: a *recovery point*, the offset below which the log is on disk, sound, and
fully in the consume queues on disk (docs/decisions/0005-recovery-point.md). It repeats the three
timestamps: if they differ, a Java broker has written the store since, and the point is void.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import attrs

from trioha.checksum import crc32
from trioha.errors import StoreError
from trioha.store.mapped_file import disk_error, fsync_directory

CHECKPOINT_BYTES = 4096

_JAVA = struct.Struct(">qqq")
_OURS_AT = 256
_MAGIC = b"triohaRP"
_VERSION = 1
# magic, version, Java's three, recovery offset, store timestamp, indexed offset, index synced
# offset, index file, its next number, queues, boot id
_OURS = struct.Struct(">8sIqqqqqqqqii16s")
_CRC = struct.Struct(">I")
_STAMP_MAX = 1 << 46
"""Limit of timestamps in milliseconds, in the year 4199; one beyond it is none."""
_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"


def boot_id() -> bytes:
    """16 bytes that change when the machine restarts; zeros where nobody tells."""
    try:
        with open(_BOOT_ID_PATH) as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


@attrs.frozen(kw_only=True)
class RecoveryPoint:
    """Our part of the checkpoint."""

    phy_offset: int
    """A record begins or the log ends here; everything below is durable and dispatched."""
    store_timestamp: int
    """Store timestamp in ms of the last record below `phy_offset`, or of an earlier one."""
    indexed_offset: int
    """Records below it were in the index files, if the page cache survived."""
    index_synced_offset: int
    index_file: int
    index_next_number: int
    """Records below `index_synced_offset` are in the files up to this one, below this entry."""
    queue_count: int
    """Number of consume queues: tells recovery whether queue files are missing."""
    boot: bytes = attrs.field(factory=boot_id)


@attrs.frozen(kw_only=True)
class Checkpoint:
    """Store timestamps: everything up to them is on disk."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    recovery_point: RecoveryPoint | None = None
    is_garbled: bool = False
    """Neither trioha nor a Java broker wrote it like that: nothing in it counts."""

    def encode(self) -> bytes:
        java = (self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)
        data = bytearray(CHECKPOINT_BYTES)
        _JAVA.pack_into(data, 0, *java)
        point = self.recovery_point
        if point is not None:
            ours = _OURS.pack(
                _MAGIC,
                _VERSION,
                *java,
                point.phy_offset,
                point.store_timestamp,
                point.indexed_offset,
                point.index_synced_offset,
                point.index_file,
                point.index_next_number,
                point.queue_count,
                point.boot,
            )
            data[_OURS_AT : _OURS_AT + len(ours) + _CRC.size] = ours + _CRC.pack(crc32(ours))
        return bytes(data)

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint:
        """Whatever is damaged is `is_garbled` and else as if absent; no bytes are no damage."""
        if len(data) < CHECKPOINT_BYTES:
            return cls(is_garbled=bool(data))
        java = _JAVA.unpack_from(data)
        point = None
        ours = data[_OURS_AT : _OURS_AT + _OURS.size]
        crc = data[_OURS_AT + _OURS.size : _OURS_AT + _OURS.size + _CRC.size]
        is_sound = crc == _CRC.pack(crc32(ours))
        if not all(0 <= stamp < _STAMP_MAX for stamp in java) or not (is_sound or not any(ours)):
            return cls(is_garbled=True)
        if is_sound:
            magic, version, *values = _OURS.unpack(ours)
            if magic == _MAGIC and version == _VERSION and tuple(values[:3]) == java:
                point = RecoveryPoint(
                    phy_offset=values[3],
                    store_timestamp=values[4],
                    indexed_offset=values[5],
                    index_synced_offset=values[6],
                    index_file=values[7],
                    index_next_number=values[8],
                    queue_count=values[9],
                    boot=values[10],
                )
        return cls(
            physic_msg_timestamp=java[0],
            logics_msg_timestamp=java[1],
            index_msg_timestamp=java[2],
            recovery_point=point,
        )

    @property
    def recover_timestamp(self) -> int:
        """T of RocketMQ: records up to it are safe in log and consume queues."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - 3000)


def read_checkpoint(path: Path) -> Checkpoint:
    """Errors: StoreError when the file cannot be read; a missing one is an empty one."""
    try:
        return Checkpoint.decode(path.read_bytes())
    except FileNotFoundError:
        return Checkpoint()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write in place, as RocketMQ does, and sync. Thread-safe if callers take turns.

    Errors: StoreError, DiskFull.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            is_new = os.fstat(fd).st_size == 0
            os.pwrite(fd, checkpoint.encode(), 0)
            os.fdatasync(fd)
        finally:
            os.close(fd)
        if is_new:
            fsync_directory(path.parent)
    except OSError as error:
        raise disk_error(error, f"cannot write {path}") from error
