"""Bytes of two logs side by side: what headers and their checksums cannot tell.

A flipped bit in a body or a property leaves the header as it was. Where the files of both stores
can be read here they are compared as they are, and a difference is put down to the record it lies
in. Behind the last record of a segment bytes mean nothing (RocketMQ leaves what was there).
"""

from __future__ import annotations

from collections.abc import Iterator

from trioha.analysis.log_source import FileSource
from trioha.analysis.store_files import Segment, StoreFiles

PIECE_BYTES = 1 << 20
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


def first_difference(a: StoreFiles, b: StoreFiles, offset: int, size: int) -> int | None:
    """The first byte from `offset` on that differs, within `size`; None when none does.

    Errors: OSError.
    """
    place = _first(read_at(a, offset, size), read_at(b, offset, size))
    return None if place is None else offset + place


def differing_pieces(a: StoreFiles, b: StoreFiles, begin: int, end: int) -> Iterator[int]:
    """For each piece of begin..end that differs, the offset of its first such byte. Bytes that
    only one store has a segment for are passed over: their records were compared.

    Errors: OSError.
    """
    for of_a in a.segments:
        for of_b in b.segments:
            low = max(begin, of_a.from_offset, of_b.from_offset)
            high = min(end, _data_end(of_a), _data_end(of_b))
            if low < high:
                yield from _pieces(of_a, of_b, low, high)


def field_of(place: int, size: int, body_size: int, properties_size: int) -> str:
    """What a byte of a record belongs to, by its place in the record."""
    if place >= size - properties_size:
        return "properties"
    if place < 84:
        return next(name for start, name in reversed(_FIELDS) if place >= start)
    # Hosts are of 8 or 20 bytes, so the body begins at 88, 100 or 112, the topic behind it.
    return "body" if 112 <= place < 88 + body_size else "lengths, body or topic"


def read_at(store: StoreFiles, offset: int, size: int) -> bytes:
    """Bytes of a store, within one segment. Errors: OSError."""
    for segment in store.segments:
        if segment.from_offset <= offset < _data_end(segment):
            with FileSource(segment.path) as source:
                return source.read(offset - segment.from_offset, size)
    return b""


def _pieces(of_a: Segment, of_b: Segment, low: int, high: int) -> Iterator[int]:
    with FileSource(of_a.path) as left, FileSource(of_b.path) as right:
        for offset in range(low, high, PIECE_BYTES):
            size = min(PIECE_BYTES, high - offset)
            place = _first(
                left.read(offset - of_a.from_offset, size),
                right.read(offset - of_b.from_offset, size),
            )
            if place is not None:
                yield offset + place


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
