"""A journal's files by sequence number, a bounded piece at a time, for followers far behind.

One piece is at most `READ_BYTES_MAX` of file, so nobody's question takes long: who asks on where
the last piece ended is told by a `Place` and pays for no search.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import attrs

from trioha.journal.file import (
    FRAME,
    MAGIC,
    RECORD_BYTES_MAX,
    event_at,
    journal_files,
    payload_at,
    resume_at,
)
from trioha.journal.tail import Stretch

READ_BYTES_MAX = 524_288
_INTEGERS = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}  # msgpack's unsigned integers and their sizes


@attrs.frozen
class Place:
    """File and position of the event with this number, or of the next one after it."""

    sequence: int
    path: Path
    position: int


def read_stretch(
    directory: Path, sequence: int, names: Set[str], *, count_max: int, place: Place | None = None
) -> tuple[Stretch, Place] | None:
    """Events on disk from `sequence` on, of these names (all if empty), and where to go on.

    None when no file holds that number or a later one. Damaged stretches are passed over.

    Errors: OSError.
    """
    if place is None or place.sequence != sequence or not place.path.exists():
        place = _find(directory, sequence)
        if place is None:
            return None
    while True:
        with place.path.open("rb") as file:
            file.seek(place.position)
            data = file.read(READ_BYTES_MAX + RECORD_BYTES_MAX + FRAME.size)
        found: list[bytes] = []
        following, position = sequence, 0
        while position < len(data) and position < READ_BYTES_MAX and len(found) < count_max:
            event = event_at(data, position)
            if event is None:
                end = resume_at(data, position + 1)
                if end == len(data):
                    break  # damage, or a record that is just being written
                position = end
                continue
            payload = payload_at(data, position)
            assert payload is not None, f"{place.path} at {position}: an event without payload"
            position = event[1]
            if event[0].sequence >= sequence:
                following = event[0].sequence + 1
                if not names or event[0].name in names:
                    found.append(payload)
        if following > sequence:
            place = attrs.evolve(place, sequence=following, position=place.position + position)
            return Stretch(tuple(found), following), place
        # The rest of this file is damage, or it ended before: its successor has what is next.
        later = [path for path in journal_files(directory) if path.name > place.path.name]
        if not later:
            return None
        place = Place(sequence, later[0], _head_size(later[0].read_bytes()))


def _find(directory: Path, sequence: int) -> Place | None:
    files = journal_files(directory)
    if not files:
        return None
    at_or_before = [path for path in files if int(path.stem) <= sequence]
    path = at_or_before[-1] if at_or_before else files[0]
    data = path.read_bytes()
    position = _head_size(data)
    while (payload := payload_at(data, position)) is not None:
        if _sequence_of(payload) >= sequence:
            break
        position += FRAME.size + len(payload)
    return Place(sequence, path, position)


def _head_size(data: bytes) -> int:
    """Return the size of the magic and the first record in bytes; 0 if they are damaged."""
    head = payload_at(data, len(MAGIC)) if data.startswith(MAGIC) else None
    return 0 if head is None else len(MAGIC) + FRAME.size + len(head)


def _sequence_of(payload: bytes) -> int:
    """Return the sequence of an event, its first element, without decoding the rest."""
    kind = payload[1] if len(payload) > 1 else 0
    size = _INTEGERS.get(kind)
    return kind if size is None else int.from_bytes(payload[2 : 2 + size], "big")
