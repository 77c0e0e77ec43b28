"""A few bytes that must never be lost or half changed: two files, written in turn.

Theory of operation. Each slot is a file: magic, a sequence number that grows with every save, the
length and the CRC of what follows, the bytes. A save writes the slot that is not the newest and
fsyncs it, so a crash in the middle leaves the one before. When `save` returns the bytes are on
disk. A caller that keeps an epoch or a vote here acts on it only then.

A slot that cannot be read is a torn save, on which no caller has acted, or a fault of the disk.
Both slots unreadable is an error: a node that has forgotten what it promised must not guess.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from trioha.checksum import crc32
from trioha.errors import StoreError
from trioha.store.mapped_file import disk_error, fsync_directory

PAYLOAD_BYTES_MAX = 1 << 20
_HEADER = struct.Struct(">8sQII")
_MAGIC = b"TRIOHA2S"
_CURE = "move the whole store away and let this node start as an empty slave"


class TwoSlotFile:
    """The newest bytes saved under `stem`, which gets the suffixes ``.0`` and ``.1``.

    Errors: StoreError when slots are there and none can be read: the text names file and cure.
    """

    def __init__(self, stem: Path, *, cure: str = _CURE) -> None:
        self.payload: bytes | None = None
        """Bytes that were saved last; None if none ever were."""
        self.damaged: list[Path] = []
        """Slots that were there and could not be read: something for the journal."""
        self._slots = tuple(stem.with_name(f"{stem.name}.{number}") for number in (0, 1))
        self._sequence = 0
        self._newest = 1
        self._cure = cure
        self._load()

    def save(self, payload: bytes) -> None:
        """Replace the bytes. Durable when it returns. Blocks for two fsyncs.

        Errors: StoreError, DiskFull; what was saved before is still there.
        """
        assert len(payload) <= PAYLOAD_BYTES_MAX, f"{len(payload)} bytes for a slot"
        slot, sequence = 1 - self._newest, self._sequence + 1
        path = self._slots[slot]
        header = _HEADER.pack(_MAGIC, sequence, len(payload), crc32(payload))
        try:
            with open(path, "wb") as file:
                file.write(header + payload)
                file.flush()
                os.fsync(file.fileno())
            fsync_directory(path.parent)
        except OSError as error:
            raise disk_error(error, f"cannot write {path}") from error
        self._newest, self._sequence, self.payload = slot, sequence, payload

    def _load(self) -> None:
        for slot, path in enumerate(self._slots):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk_error(error, f"cannot read {path}") from error
            sequence = _sequence_of(data)
            if not sequence:
                self.damaged.append(path)
            elif sequence > self._sequence:
                self._newest, self._sequence = slot, sequence
                self.payload = data[_HEADER.size :]
        if self.damaged and not self._sequence:
            raise StoreError(
                f"{self.damaged[0]} and its other slot cannot be read; restore one from a backup, "
                f"or {self._cure}"
            )


def _sequence_of(data: bytes) -> int:
    """The number of a slot that was saved whole; 0 for any other."""
    if not _HEADER.size <= len(data) <= _HEADER.size + PAYLOAD_BYTES_MAX:
        return 0
    magic, sequence, size, crc = _HEADER.unpack_from(data)
    payload = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or len(payload) != size or crc32(payload) != crc:
        return 0
    return int(sequence)
