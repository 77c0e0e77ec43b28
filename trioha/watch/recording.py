"""A recording: the collector's rounds of answers over time in one file.

Theory of operation. The file is a magic followed by records, big endian::

    file    := "TRIOHAR1"  record(HEAD)  record*
    record  := "\\xd7TRF" | length u32 | crc32 u32 | kind u8 | wall_ms u64 | payload
    payload := zlib(msgpack(…));  crc32 is zlib's, over kind, wall_ms and payload

A KEY frame has all raw answers of one round, a DELTA the changes since the frame before. A MARK is
an event at a frame: a role changed, a link dropped, an alert began. To show a time, the reader
takes the newest KEY before it and applies the DELTAs after that. A KEY comes every `KEY_FRAMES`, so
the number of records is bounded. There is no index: walking a day's records takes a third of a
second, and a file without an index is complete wherever it is cut.

The file is only appended to, so it can be read while it is written. A file that was cut short is
read up to its last whole record. A damaged range is skipped, and frames that build on it are left
out until the next KEY.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

import attrs
import msgpack

from trioha.checksum import crc32
from trioha.errors import TriohaError
from trioha.watch.collector import Raw
from trioha.watch.marks import Mark

T = TypeVar("T")

MAGIC = b"TRIOHAR1"
FORMAT_VERSION = 1
KEY_FRAMES = 60
RECORD_BYTES_MAX = 1 << 28
"""Limit of a record's length for the reader; ten thousand queues take a few megabytes."""
_WALL_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, the last that a date can be made of."""
_CONTAINERS_MAX = 1 << 20
"""Limit of arrays and maps in a record: an empty one is a byte of the file and 64 in memory."""
_SYNC = b"\xd7TRF"
_FRAME = struct.Struct(">4sII")
_STAMP = struct.Struct(">BQ")
_HEAD_SIZE = _FRAME.size + _STAMP.size
_KEY_LEVEL = 6
_DELTA_LEVEL = 1


class FrameKind(IntEnum):
    HEAD = 1
    KEY = 2
    DELTA = 3
    MARK = 4


_UNPACKED_BYTES_MAX = {
    FrameKind.HEAD: 1 << 16,
    FrameKind.KEY: 1 << 26,
    FrameKind.DELTA: 1 << 26,
    FrameKind.MARK: 1 << 13,
}
"""Limit of a record when it is decompressed: a hostile one grows to a thousand times its size. All
marks are held at once."""


class Encoder:
    """Turns rounds of answers into bytes to append to one file."""

    def __init__(self) -> None:
        self.frame_count = 0
        self.mark_count = 0
        self._last: Raw | None = None
        self._deltas_count = 0

    def begin(self, wall_ms: int, facts: Mapping[str, Any]) -> bytes:
        """Return the first bytes of the file. `facts`: recorder and cluster, as plain values."""
        head = {"format": FORMAT_VERSION, "started_wall_ms": wall_ms, **facts}
        return MAGIC + _record(FrameKind.HEAD, wall_ms, head, _KEY_LEVEL)

    def frame(self, raw: Raw) -> bytes:
        """Return the record of one round of answers."""
        last, self._last = self._last, raw
        self.frame_count += 1
        wall_ms = int(raw["at_wall_ms"])
        if last is None or self._deltas_count >= KEY_FRAMES - 1:
            self._deltas_count = 0
            return _record(FrameKind.KEY, wall_ms, raw, _KEY_LEVEL)
        self._deltas_count += 1
        return _record(FrameKind.DELTA, wall_ms, _difference(last, raw), _DELTA_LEVEL)

    def mark(self, mark: Mark) -> bytes:
        """Return the record of an event at the last frame."""
        self.mark_count += 1
        return _record(FrameKind.MARK, mark.wall_ms, attrs.asdict(mark), _DELTA_LEVEL)


@attrs.frozen
class Entry:
    """Place of a frame in the file."""

    wall_ms: int
    position: int
    kind: FrameKind


@attrs.frozen
class Flaw:
    """A range of the file that is no record."""

    position: int
    length: int
    reason: str


class Recording:
    """A file of frames, by their number.

    Errors: TriohaError from the constructor if it is no recording or has no whole frame.
    """

    def __init__(self, data: bytes | mmap.mmap, name: str = "recording") -> None:
        self._data = data
        self._name = name
        self.head: Mapping[str, Any] = {}
        self.frames: list[Entry] = []
        self.marks: list[Mark] = []
        self.flaws: list[Flaw] = []
        self._times: list[int] = []
        self._cached: tuple[int, Raw] | None = None
        self._walk()
        if not self.frames:
            reason = f": {self.flaws[0].reason}" if self.flaws else ""
            raise TriohaError(f"{name}: a recording without a single whole frame{reason}")

    @property
    def start_wall_ms(self) -> int:
        return self.frames[0].wall_ms

    @property
    def end_wall_ms(self) -> int:
        return self.frames[-1].wall_ms

    @property
    def is_cut(self) -> bool:
        """The last record is not whole: the file was cut short, or is being written."""
        return bool(self.flaws) and self.flaws[-1].position + self.flaws[-1].length == len(
            self._data
        )

    @property
    def size(self) -> int:
        return len(self._data)

    def again(self) -> Recording:
        """Return a second reader of the same file, for another thread."""
        return Recording(self._data, self._name)

    def number_at(self, wall_ms: int) -> int:
        """Return the number of the last frame that is not later than `wall_ms`, else the first."""
        return max(0, bisect_right(self._times, wall_ms) - 1)

    def raw(self, number: int) -> Raw:
        """Return the answers of one frame; a jump reads up to `KEY_FRAMES` records.

        Errors: TriohaError if the frame, or one that it builds on, is damaged.
        """
        if self._cached is not None and self._cached[0] == number:
            return self._cached[1]
        start = number
        while self.frames[start].kind is not FrameKind.KEY:
            start -= 1
            if self._cached is not None and self._cached[0] == start:
                break
        if self._cached is not None and self._cached[0] == start:
            raw = self._cached[1]
        else:
            raw = self._checked(self._body(self.frames[start]), self.frames[start])
        for entry in self.frames[start + 1 : number + 1]:
            raw = self._changed(raw, entry)
        self._cached = number, raw
        return raw

    def raws(self, first: int, last: int) -> Iterator[Raw]:
        """Yield the answers of the frames from `first` to `last`; damaged frames are left out."""
        for number in range(max(0, first), last + 1):
            try:
                yield self.raw(number)
            except TriohaError:
                continue

    def _body(self, entry: Entry) -> Any:
        found = _record_at(self._data, entry.position)
        body = None if found is None else _unpacked(found)
        if body is None:
            raise self._damaged(entry)
        return body

    def _changed(self, raw: Raw, entry: Entry) -> Raw:
        difference = self._body(entry)
        try:
            changed = _applied(raw, difference)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._damaged(entry) from None
        return self._checked(changed, entry)

    def _checked(self, raw: object, entry: Entry) -> Raw:
        sound = _sound(raw)
        if sound is None:
            raise self._damaged(entry)
        return sound

    def _damaged(self, entry: Entry) -> TriohaError:
        return TriohaError(
            f"{self._name}: the frame at byte {entry.position} is damaged, or larger than any"
            " recorder writes it"
        )

    def _walk(self) -> None:
        data = self._data
        if data[: len(MAGIC)] != MAGIC:
            raise TriohaError(f"{self._name}: no recording of trioha")
        position = len(MAGIC)
        has_key = False
        while position < len(data):
            found = _record_at(data, position)
            if found is None:
                end = _resume(data, position + 1)
                reason = "cut short" if end == len(data) else "damaged"
                self.flaws.append(Flaw(position, end - position, reason))
                position = end
                has_key = False  # the next DELTA may build on the lost record
                continue
            if found.kind is FrameKind.HEAD:
                head = _unpacked(found)
                self.head = head if isinstance(head, dict) else {}
                if self.head.get("format") != FORMAT_VERSION:
                    raise TriohaError(
                        f"{self._name}: has format {self.head.get('format')}, this trioha reads"
                        f" {FORMAT_VERSION}; replay it with the version that wrote it"
                    )
            elif found.kind is FrameKind.MARK:
                self._take_mark(_unpacked(found))
            else:
                has_key = has_key or found.kind is FrameKind.KEY
                # Even if the clock was set back, frames stay in the order of the file.
                if has_key:
                    self.frames.append(Entry(found.wall_ms, position, found.kind))
                    self._times.append(max(found.wall_ms, self._times[-1] if self._times else 0))
            position = found.end

    def _take_mark(self, body: object) -> None:
        if isinstance(body, dict):
            known = {field.name for field in attrs.fields(Mark)}
            with contextlib.suppress(TypeError):  # a mark of another version
                mark = Mark(**{k: v for k, v in body.items() if k in known})
                if _is_sound_mark(mark):
                    self.marks.append(mark)


def open_recording(path: Path) -> Recording:
    """Open the recording at `path`. Errors: TriohaError, OSError."""
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise TriohaError(f"{path}: an empty file, no recording") from None
    return Recording(data, str(path))


@attrs.frozen
class _Found:
    kind: FrameKind
    wall_ms: int
    payload: bytes
    end: int


def _record(kind: FrameKind, wall_ms: int, body: object, level: int) -> bytes:
    payload = zlib.compress(msgpack.packb(body, default=str), level)
    stamp = _STAMP.pack(kind, wall_ms)
    crc = crc32(payload, crc32(stamp))
    return _FRAME.pack(_SYNC, len(payload), crc) + stamp + payload


def _record_at(data: bytes | mmap.mmap, position: int) -> _Found | None:
    start = position + _HEAD_SIZE
    if start > len(data):
        return None
    sync, length, crc = _FRAME.unpack_from(data, position)
    if sync != _SYNC or length > RECORD_BYTES_MAX or start + length > len(data):
        return None
    payload = data[start : start + length]
    stamp = data[position + _FRAME.size : start]
    if crc32(payload, crc32(stamp)) != crc:
        return None
    kind, wall_ms = _STAMP.unpack(stamp)
    if wall_ms > _WALL_MS_MAX:
        return None
    try:
        return _Found(FrameKind(kind), wall_ms, payload, start + length)
    except ValueError:
        return None


def _resume(data: bytes | mmap.mmap, position: int) -> int:
    """Return the position of the next sound record, or the end of the file."""
    while (found := data.find(_SYNC, position)) >= 0:
        if _record_at(data, found) is not None:
            return found
        position = found + 1
    return len(data)


def _unpacked(found: _Found) -> Any:
    """Return the body of a record; None if it is damaged, or larger than a recorder writes."""
    containers_left = _CONTAINERS_MAX

    def counted(container: T) -> T:
        nonlocal containers_left
        containers_left -= 1
        if containers_left < 0:
            raise ValueError("too many arrays and maps")
        return container

    inflater = zlib.decompressobj()
    try:
        packed = inflater.decompress(found.payload, _UNPACKED_BYTES_MAX[found.kind])
        if not inflater.eof:
            return None
        return msgpack.unpackb(packed, strict_map_key=False, list_hook=counted, object_hook=counted)
    except (zlib.error, ValueError, TypeError, msgpack.exceptions.UnpackException):
        return None


def _sound(raw: object) -> Raw | None:
    """Return the answers of a frame if they have the shape that a collector gives them."""
    if not isinstance(raw, dict) or not isinstance(raw.get("at_wall_ms"), int):
        return None
    if not 0 <= raw["at_wall_ms"] <= _WALL_MS_MAX:
        return None
    members = raw.get("members")
    if not isinstance(members, dict) or not all(isinstance(x, str) for x in members):
        return None
    namesrvs = raw.get("namesrvs", ())
    if not isinstance(namesrvs, list | tuple) or not all(isinstance(x, str) for x in namesrvs):
        return None
    return raw if _is_table_of_answers(raw.get("answers")) else None


def _is_sound_mark(mark: Mark) -> bool:
    texts = (mark.kind, mark.subject, mark.text)
    return (
        all(isinstance(text, str) for text in texts)
        and mark.level in (0, 1, 2)
        and isinstance(mark.wall_ms, int)
        and 0 <= mark.wall_ms <= _WALL_MS_MAX
    )


def _is_table_of_answers(answers: object) -> bool:
    return isinstance(answers, dict) and all(
        isinstance(address, str)
        and isinstance(entries, dict)
        and all(isinstance(k, str) and isinstance(entry, dict) for k, entry in entries.items())
        for address, entries in answers.items()
    )


def _difference(last: Raw, raw: Raw) -> dict[str, Any]:
    """Return the changes from `last` to `raw`, for `_applied`."""
    before: Mapping[str, Any] = last["answers"]
    changed: dict[str, dict[str, Any]] = {}
    gone: list[list[str]] = []
    for address, answers in raw["answers"].items():
        known = before.get(address, {})
        if address not in before:
            changed[address] = {}
        for key, entry in answers.items():
            old = known.get(key)
            if old is entry or old == entry:
                continue
            if old is not None and old["value"] == entry["value"]:
                # The same value was answered again: record only the time.
                entry = {name: value for name, value in entry.items() if name != "value"}
            changed.setdefault(address, {})[key] = entry
        gone += [[address, key] for key in known if key not in answers]
    gone += [[address, ""] for address in before if address not in raw["answers"]]
    difference: dict[str, Any] = {"at_wall_ms": raw["at_wall_ms"], "answers": changed}
    if gone:
        difference["gone"] = gone
    for name, value in raw.items():
        if name not in ("at_wall_ms", "answers") and last.get(name) != value:
            difference[name] = value
    return difference


def _applied(raw: Raw, difference: Mapping[str, Any]) -> Raw:
    answers = dict(raw["answers"])
    for address, key in difference.get("gone", ()):
        if key:
            answers[address] = {k: v for k, v in answers[address].items() if k != key}
        else:
            answers.pop(address, None)
    for address, changed in difference["answers"].items():
        merged = dict(answers.get(address, {}))
        for key, entry in changed.items():
            merged[key] = entry if "value" in entry else {**merged[key], **entry}
        answers[address] = merged
    return {**raw, **{k: v for k, v in difference.items() if k != "gone"}, "answers": answers}
