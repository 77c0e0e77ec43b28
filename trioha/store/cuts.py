"""Bytes that a log had to give up, kept: folders ``cut/<from>-<to>-<wall_ms>`` in the store.

Theory of operation. Before a slave cuts its log back to where its master's agrees, the bytes behind
go into a folder of their own: segments under ``commitlog`` as they lay, each file named by its
first offset, so that whatever reads a commitlog reads these too; and a note of what they are. The
note is written last. A folder without one is what a crash left, and goes when the next cut is made;
a whole folder of the same bytes is not made twice, so that what was interrupted may start anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioha.checksum import crc32
from trioha.errors import StoreError
from trioha.store.inspect import DamagedStretch, iter_records
from trioha.store.mapped_file import disk_error, fsync_directory
from trioha.store.mapped_file_queue import NAME_DIGITS

DIRECTORY = "cut"
NOTE = "note.json"
_PIECE_BYTES = 1 << 20
_is_folder_name = re.compile(r"(\d+)-(\d+)-(\d+)").fullmatch

ReadLog = Callable[[int, int], memoryview]
"""Bytes from an offset, at most so many, never beyond a segment."""


@attrs.frozen
class Cut:
    """One folder."""

    path: Path
    begin: int
    end: int
    wall_ms: int

    @property
    def commitlog_path(self) -> Path:
        return self.path / "commitlog"

    @property
    def note(self) -> dict[str, Any]:
        """Errors: StoreError."""
        try:
            note = json.loads((self.path / NOTE).read_bytes())
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.path / NOTE} cannot be read: {error}") from error
        if not isinstance(note, dict):
            raise StoreError(f"{self.path / NOTE} is no note of a cut")
        return note


def list_cuts(root: Path) -> list[Cut]:
    """The whole ones of a store, oldest first."""
    cuts = []
    for path in sorted((root / DIRECTORY).glob("*")):
        match = _is_folder_name(path.name)
        if match is not None and (path / NOTE).is_file():
            cuts.append(Cut(path, *map(int, match.groups())))
    return sorted(cuts, key=lambda cut: cut.wall_ms)


def open_cut(path: Path) -> Cut:
    """The cut in a folder.

    Errors: StoreError for what is no cut, or only half of one.
    """
    path = path.resolve()
    match = _is_folder_name(path.name)
    if match is None:
        raise StoreError(
            f"{path} is no folder of what was cut: those are named <from>-<to>-<time> and lie in "
            f"`{DIRECTORY}` of a store"
        )
    cut = Cut(path, *map(int, match.groups()))
    if not (path / NOTE).is_file():
        raise StoreError(
            f"{path} has no {NOTE}: its making was interrupted, and the log still holds all of it"
        )
    return cut


def save_cut(
    root: Path,
    read: ReadLog,
    begin: int,
    end: int,
    *,
    segment_bytes: int,
    wall_ms: int,
    about: Mapping[str, object],
) -> Cut:
    """Keep the bytes begin..end of a log, with `about` in the note. Durable when it returns.

    Blocks for as long as it takes to write them; nothing else may change the log meanwhile.
    Errors: StoreError, DiskFull; the log is as it was.
    """
    checksum = 0
    for piece in _pieces(read, begin, end):
        checksum = crc32(piece, checksum)
    for cut in list_cuts(root):
        if (cut.begin, cut.end) == (begin, end) and cut.note.get("crc") == checksum:
            return cut
    cut = Cut(root / DIRECTORY / f"{begin}-{end}-{wall_ms}", begin, end, wall_ms)
    try:
        _make_folder(root, cut)
        _write_segments(cut, read, segment_bytes)
        note = {
            "from_offset": begin,
            "to_offset": end,
            "crc": checksum,
            "cut_wall_ms": wall_ms,
            **about,
            **_contents(cut),
        }
        _finish(root, cut, note)
    except OSError as error:
        raise disk_error(error, f"cannot keep what is cut in {cut.path}") from error
    return cut


def set_log_aside(
    root: Path,
    commitlog_path: Path,
    begin: int,
    end: int,
    wall_ms: int,
    about: Mapping[str, object],
) -> Cut:
    """Keep a whole log as a cut, without copying: the same files under a second name.

    The caller then empties the log. Durable when it returns.
    Errors: StoreError, also where the log lies on another file system than the store.
    """
    for cut in list_cuts(root):
        if (cut.begin, cut.end) == (begin, end) and cut.note.get("whole") is True:
            return cut
    cut = Cut(root / DIRECTORY / f"{begin}-{end}-{wall_ms}", begin, end, wall_ms)
    try:
        _make_folder(root, cut)
        for path in sorted(commitlog_path.iterdir()):
            if path.name.isdecimal() and int(path.name) < end:
                os.link(path, cut.commitlog_path / path.name)
        note = {"from_offset": begin, "to_offset": end, "whole": True, "cut_wall_ms": wall_ms}
        _finish(root, cut, {**note, **about, **_contents(cut)})
    except OSError as error:
        raise disk_error(
            error,
            f"cannot set {commitlog_path} aside as {cut.path}; move it away by hand and start "
            "this node again",
        ) from error
    return cut


def _make_folder(root: Path, cut: Cut) -> None:
    for path in (root / DIRECTORY).glob("*"):
        if _is_folder_name(path.name) and not (path / NOTE).exists():
            shutil.rmtree(path)
    cut.commitlog_path.mkdir(parents=True)


def _write_segments(cut: Cut, read: ReadLog, segment_bytes: int) -> None:
    offset = cut.begin
    while offset < cut.end:
        segment_end = min(offset - offset % segment_bytes + segment_bytes, cut.end)
        path = cut.commitlog_path / f"{offset:0{NAME_DIGITS}d}"
        with open(path, "xb") as file:
            for piece in _pieces(read, offset, segment_end):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        offset = segment_end


def _finish(root: Path, cut: Cut, note: Mapping[str, object]) -> None:
    fsync_directory(cut.commitlog_path)
    part = cut.path / f"{NOTE}.part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(note, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    part.replace(cut.path / NOTE)
    for directory in (cut.path, root / DIRECTORY, root):
        fsync_directory(directory)


def _contents(cut: Cut) -> dict[str, object]:
    """Return the part of the note that describes the records."""
    queues: dict[tuple[str, int], list[int]] = {}
    records = damaged_bytes = first_store_timestamp = 0
    for item in iter_records(cut.commitlog_path, end=cut.end):
        if isinstance(item, DamagedStretch):
            damaged_bytes += item.end_offset - item.begin_offset
            continue
        records += 1
        first_store_timestamp = first_store_timestamp or item.store_timestamp
        entry = queues.setdefault((item.topic, item.queue_id), [0, item.queue_offset, 0])
        entry[0] += 1
        entry[2] = item.queue_offset
    return {
        "records": records,
        "damaged_bytes": damaged_bytes,
        "first_store_timestamp": first_store_timestamp,
        "queues": [
            {
                "topic": topic,
                "queue_id": queue_id,
                "count": count,
                "first_queue_offset": first,
                "last_queue_offset": last,
            }
            for (topic, queue_id), (count, first, last) in sorted(queues.items())
        ],
    }


def _pieces(read: ReadLog, begin: int, end: int) -> Iterator[memoryview]:
    while begin < end:
        piece = read(begin, min(_PIECE_BYTES, end - begin))
        yield piece
        begin += len(piece)
