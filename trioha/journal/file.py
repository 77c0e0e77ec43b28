"""The journal on disk: what happened on a node, checksummed, bounded, readable after a crash.

Theory of operation. A journal is a directory of files named by the sequence number of their first
event, ``00000000000000000000.journal``, like a commitlog's segments. A file is a magic, then
records, each ``length u32 | crc32 u32 | payload`` (big endian, both of the payload). The first
payload of a file is a msgpack map that says who wrote it; the others are msgpack arrays
``[sequence, wall_ms, name, fields]``. Every start of a node begins a new file, so a torn tail is
never written over, and a sequence number is never used twice.

What may be lost: events are gathered for at most 200 ms or 64 KiB and written without fsync, so a
killed process loses its last fifth of a second and a power failure what the kernel still held. The
journal tells what happened; it promises nothing that a client relies on.

Errors: a full disk never reaches the node. Events are counted and dropped, one line says so, and
the first write that succeeds again records how many are missing.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import msgpack

from trioha.checksum import crc32
from trioha.errors import StoreLocked
from trioha.journal.tail import JournalTail

MAGIC = b"TRIOHAJ1"
FORMAT_VERSION = 1
FRAME = struct.Struct(">II")
RECORD_BYTES_MAX = 65_536
"""Limit of one payload. Our largest event is under 1 KiB; a reader trusts no larger length."""
BUFFER_BYTES_MAX = 65_536
FLUSH_INTERVAL_S = 0.2
FILES_MAX = 8
"""A journal of n bytes is at most 8 files of n / 8: deleting the oldest frees an eighth."""
FILE_BYTES_MIN = 4_096
_WALL_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, the last that a date can be made of."""
_ARRAY_OF_4 = 0x94  # first byte of an event's payload
_SUFFIX = ".journal"


@attrs.frozen
class Event:
    """One event, as written."""

    sequence: int
    wall_ms: int
    name: str
    fields: Mapping[str, Any]


@attrs.frozen
class Damage:
    """A stretch of a file that is no record: torn by a crash, or flipped by the disk."""

    file: Path
    position: int
    length: int
    reason: str


def _nothing() -> None:
    pass


class JournalFile:
    """An `EventSink` that writes to a directory. One process; any of its threads.

    Whoever serves the journal is told by `when_dirty` of the first event in the buffer, calls
    `flush_nowait` within `FLUSH_INTERVAL_S`, and `followers` after it. A full buffer is written at
    once. `tail` has the newest events, those of the run before included.

    Errors: StoreLocked when another process writes this journal; OSError from opening only.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        wall_ms: Callable[[], int],
        *,
        bytes_max: int,
        complain: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.directory = directory
        self.dropped_count = 0
        self.tail = JournalTail()
        self.followers: list[Callable[[], None]] = []
        """Called by who serves the journal, whenever events have been written out."""
        self._on_dirty: Callable[[], None] = _nothing
        self._node = node
        self._wall_ms = wall_ms
        self._complain = complain
        self._file_bytes_max = max(FILE_BYTES_MIN, bytes_max // FILES_MAX)
        self._mutex = threading.Lock()
        self._buffer = bytearray()
        self._buffered_count = 0
        self._file = -1
        self._file_size = 0
        self._unreported_count = 0
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(directory)
        self._sequence = _next_sequence(directory, self.tail)
        self.tail.skip_to(self._sequence)

    def event(self, name: str, **fields: object) -> None:
        with self._mutex:
            if self._lock < 0:
                return
            was_empty = not self._buffer
            self._append(name, fields)
            if len(self._buffer) >= BUFFER_BYTES_MAX:
                self._flush()
        if was_empty:
            self._on_dirty()

    @contextmanager
    def when_dirty(self, on_dirty: Callable[[], None]) -> Iterator[None]:
        """Within the block, call `on_dirty` when the buffer turns from empty to not empty.

        The thread whose event did it calls: recovery and flush report from theirs.
        """
        self._on_dirty = on_dirty
        try:
            yield
        finally:
            self._on_dirty = _nothing

    def flush_nowait(self) -> None:
        """Hand the buffer to the kernel. Never raises, never fsyncs."""
        with self._mutex:
            self._flush()

    def close(self) -> None:
        """Write what is left and let go of the directory. Idempotent."""
        with self._mutex:
            if self._lock < 0:
                return
            self._flush()
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            os.close(self._lock)
            self._lock = -1

    def _flush(self) -> None:
        if not self._buffer:
            return
        try:
            self._write_buffer()
            if self._unreported_count:
                self._append("journal_dropped", {"count": self._unreported_count, "reason": "disk"})
                self._write_buffer()
        except OSError as error:
            self._drop(error)
            return
        if self._unreported_count:
            self._complain(f"journal: writing again; {self._unreported_count} events are lost")
            self._unreported_count = 0

    def _append(self, name: str, fields: Mapping[str, object]) -> None:
        sequence = self._sequence
        self._sequence += 1
        payload = _payload(sequence, self._wall_ms(), name, fields)
        self.tail.add(sequence, name, payload)
        self._buffer += FRAME.pack(len(payload), crc32(payload))
        self._buffer += payload
        self._buffered_count += 1

    def _roll_if_full(self, size: int) -> None:
        if self._file >= 0:
            if self._file_size + size <= self._file_bytes_max:
                return
            os.close(self._file)
            self._file = -1
        first = self._sequence - self._buffered_count
        head = msgpack.packb(
            {
                "format": FORMAT_VERSION,
                "node": self._node,
                "pid": os.getpid(),
                "wall_ms": self._wall_ms(),
                "sequence": first,
            }
        )
        path = self.directory / f"{first:020d}{_SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        self._file_size = 0
        try:
            self._write(MAGIC + FRAME.pack(len(head), crc32(head)) + head)
        except OSError:
            os.close(self._file)
            self._file = -1
            path.unlink(missing_ok=True)
            raise
        # Only now: a disk that takes no new file must not cost us the old ones.
        for old in journal_files(self.directory)[:-FILES_MAX]:
            old.unlink(missing_ok=True)

    def _write(self, data: bytes | bytearray) -> None:
        written = 0
        with memoryview(data) as view:
            try:
                while written < len(view):
                    written += os.write(self._file, view[written:])
            except OSError:
                with suppress(OSError):  # a reader finds its way past a stump
                    os.ftruncate(self._file, self._file_size)
                raise
        self._file_size += written

    def _write_buffer(self) -> None:
        self._roll_if_full(len(self._buffer))
        self._write(self._buffer)
        self._forget_buffer()

    def _drop(self, error: OSError) -> None:
        if not self._unreported_count:
            self._complain(f"journal: cannot write to {self.directory}: {error.strerror}")
        self.dropped_count += self._buffered_count
        self._unreported_count += self._buffered_count
        self._forget_buffer()

    def _forget_buffer(self) -> None:
        self._buffer = bytearray()
        self._buffered_count = 0


def read_journal(directory: Path) -> Iterator[Event | Damage]:
    """Yield every event in order, and a `Damage` for every stretch that is none.

    Reads files of a running node too: the record it is just writing shows as a torn tail.
    """
    for path in journal_files(directory):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            continue  # rotated away meanwhile
        yield from _events(path, data)


def read_journal_file(path: Path) -> tuple[Mapping[str, Any], Iterator[Event | Damage]]:
    """Return the writer's fields in a file's head (empty if that is damaged), and its events.

    Errors: OSError when it cannot be read.
    """
    return parse_journal_file(path, path.read_bytes())


def parse_journal_file(
    path: Path, data: bytes
) -> tuple[Mapping[str, Any], Iterator[Event | Damage]]:
    """Do the same as `read_journal_file` for bytes that were read elsewhere."""
    head = payload_at(data, len(MAGIC)) if data.startswith(MAGIC) else None
    writer: object = None
    if head is not None:
        with suppress(ValueError, msgpack.UnpackException):
            writer = msgpack.unpackb(head, strict_map_key=False)
    return (writer if isinstance(writer, dict) else {}), _events(path, data)


def journal_files(directory: Path) -> list[Path]:
    """The files of a journal, oldest first."""
    return sorted(
        path for path in directory.glob(f"*{_SUFFIX}") if path.name[: -len(_SUFFIX)].isdigit()
    )


def _events(path: Path, data: bytes) -> Iterator[Event | Damage]:
    position = 0
    if data.startswith(MAGIC):
        position = len(MAGIC)
        head = payload_at(data, position)
        if head is not None:
            position += FRAME.size + len(head)
    while position < len(data):
        event = event_at(data, position)
        if event is None:
            end = resume_at(data, position + 1)
            reason = "torn tail" if end == len(data) else "damaged record"
            yield Damage(path, position, end - position, reason)
            position = end
            continue
        yield event[0]
        position = event[1]


def event_at(data: bytes, position: int) -> tuple[Event, int] | None:
    """The event whose record begins here, and where the next one does; None if it is none."""
    payload = payload_at(data, position)
    if payload is None or payload[:1] != b"\x94":
        return None
    try:
        sequence, wall_ms, name, fields = msgpack.unpackb(
            payload, strict_map_key=False, object_hook=_with_plain_keys
        )
        event = Event(int(sequence), int(wall_ms), str(name), _with_text_keys(fields))
    except (ValueError, TypeError, AttributeError, OverflowError, msgpack.UnpackException):
        return None
    if not (0 <= event.sequence < 2**63 and 0 <= event.wall_ms <= _WALL_MS_MAX):
        return None
    return event, position + FRAME.size + len(payload)


def _with_plain_keys(table: dict[Any, Any]) -> dict[Any, Any]:
    """No journal of ours has another key than JSON knows; a hostile one may."""
    if all(isinstance(key, str | int | float) for key in table):
        return table
    return {str(key): value for key, value in table.items()}


def _with_text_keys(fields: dict[Any, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in fields.items()}


def payload_at(data: bytes, position: int) -> bytes | None:
    """The sound payload of the record that begins here."""
    start = position + FRAME.size
    if start > len(data):
        return None
    length, crc = FRAME.unpack_from(data, position)
    end = start + length
    if not 0 < length <= RECORD_BYTES_MAX or end > len(data):
        return None
    payload = data[start:end]
    return payload if crc32(payload) == crc else None


def resume_at(data: bytes, position: int) -> int:
    """Return the position of the next sound record, or the end of the file.

    An event's payload begins with one known byte, so only positions before that byte are tried.
    """
    while (found := data.find(_ARRAY_OF_4, position + FRAME.size)) >= 0:
        start = found - FRAME.size
        if event_at(data, start) is not None:
            return start
        position = start + 1
    return len(data)


def _payload(sequence: int, wall_ms: int, name: str, fields: Mapping[str, object]) -> bytes:
    try:
        payload: bytes = msgpack.packb([sequence, wall_ms, name, fields], default=str)
        if len(payload) <= RECORD_BYTES_MAX:
            return payload
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    # A field that cannot be packed, or is far too long, must not cost us the event.
    texts = {key: ascii(value)[:1024] for key, value in list(fields.items())[:16]}
    short: bytes = msgpack.packb([sequence, wall_ms, name, texts])
    return short


def _lock(directory: Path) -> int:
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StoreLocked(
            f"{directory} is in use by another process; stop it or choose another directory"
        ) from None
    return lock


def _next_sequence(directory: Path, tail: JournalTail) -> int:
    """One more than any number used so far; more than that if the last file is damaged.

    What is read on the way goes into `tail`.
    """
    files = journal_files(directory)
    if not files:
        return 0
    data = files[-1].read_bytes()
    following = int(files[-1].name[: -len(_SUFFIX)]) + 1
    for item in _events(files[-1], data):
        if isinstance(item, Event):
            following = max(following, item.sequence + 1)
            payload = _payload(item.sequence, item.wall_ms, item.name, item.fields)
            tail.add(item.sequence, item.name, payload)
        else:
            # The damaged bytes may have been events, the smallest of them 13 bytes long.
            following += item.length // 13
    return following
