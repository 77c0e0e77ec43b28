"""Bytes of one record in two logs side by side: which differ, and what they are.

Only where the files of both stores can be read here.
"""

from __future__ import annotations

from trioha.analysis.open_source import open_source
from trioha.analysis.store_files import Segment, StoreFiles

_FIELDS = (
    (0, "size"),
    (4, "magic"),
    (8, "body checksum"),
    (12, "queue id"),
    (16, "flag"),
    (20, "queue offset"),
    (28, "phy offset"),
    (36, "sys flag"),
    (40, "born timestamp"),
    (48, "hosts, store timestamp, reconsume times or prepared offset"),
)


def difference(a: StoreFiles, b: StoreFiles, offset: int, size: int) -> tuple[int, int] | None:
    """First and last byte from `offset` on that differ, within `size`; None when none does.

    Errors: OSError.
    """
    left, right = _read_at(a, offset, size), _read_at(b, offset, size)
    first = _first(left, right)
    if first is None:
        return None
    # Bytes that only one has are different: both are taken to be of one length.
    width = max(len(left), len(right))
    last = _first(left.ljust(width, b"\0")[::-1], right.ljust(width, b"\0")[::-1])
    return offset + first, offset + width - 1 - (last or 0)


def field_of(place: int, size: int, body_size: int, properties_size: int) -> str:
    """Return the field that a byte of a record belongs to, by its place in the record."""
    if place >= size - properties_size:
        return "properties"
    if place < 84:
        return next(name for start, name in reversed(_FIELDS) if place >= start)
    # Hosts are of 8 or 20 bytes, so the body begins at 88, 100 or 112, the topic behind it.
    return "body" if 112 <= place < 88 + body_size else "lengths, body or topic"


def _read_at(store: StoreFiles, offset: int, size: int) -> bytes:
    """Bytes of a store, within one segment. Errors: OSError."""
    for segment in store.segments:
        if segment.from_offset <= offset < _data_end(segment):
            with open_source(segment.path) as source:
                return source.read(offset - segment.from_offset, size)
    return b""


def _first(left: bytes, right: bytes) -> int | None:
    if left == right:
        return None
    size = min(len(left), len(right))
    low, high = 0, size
    # Halve by comparing prefixes: slices compare at memory speed, bytes one by one do not.
    while low < high:
        middle = (low + high) // 2
        if left[low : middle + 1] == right[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


def _data_end(segment: Segment) -> int:
    return segment.from_offset + segment.data_end
