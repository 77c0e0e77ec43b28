"""Columns of records out of their headers, each made when it is asked for.

The scan keeps the first 88 bytes of every record (in a DLEDGER log 48 of the entry before them)
back to back. A number at one place of each is then a strided view of these bytes: a column comes
out in machine order, whole, without an object per value. IPv6 hosts make a header longer; such a
record is kept in the IPv4 layout, and its hosts as text in `odd_hosts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from trioha.analysis.schema import PROPERTY_COLUMNS
from trioha.analysis.store_files import CorruptRow
from trioha.checksum import crc32
from trioha.wire.codes import SysFlag
from trioha.wire.message_id import unpack_host
from trioha.wire.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from trioha.wire.record import FIXED_SIZE, SCAN_SIZE

_ENTRY_NUMBERS = {"entry_index": (-40, 8), "term": (-32, 8)}
_NUMBERS = {
    "size": (0, 4),
    "body_crc": (8, 4),
    "queue_id": (12, 4),
    "flag": (16, 4),
    "queue_offset": (20, 8),
    "phy_offset": (28, 8),
    "sys_flag": (36, 4),
    "born_ms": (40, 8),
    "store_ms": (56, 8),
    "reconsume_times": (72, 4),
    "prepared_offset": (76, 8),
    "body_size": (84, 4),
    **_ENTRY_NUMBERS,
}
_HOSTS = {"born_host": (48, 8), "store_host": (64, 8)}
PROPERTIES = {"tags": TAGS, "keys": KEYS, "unique_key": UNIQ_KEY} | {
    column: name for name, column in PROPERTY_COLUMNS.items()
}


@attrs.frozen(eq=False)
class Contents:
    """Rows of a full scan in the bytes of the log; all positions are in `data`."""

    data: bytes
    begins: NDArray[np.int64]
    body_at: NDArray[np.int64]
    body_end: NDArray[np.int64]
    properties_at: NDArray[np.int64]
    ends: NDArray[np.int64]

    def only(self, mask: NDArray[np.bool_]) -> Contents:
        """Return the rows that are marked."""
        places = (self.begins, self.body_at, self.body_end, self.properties_at, self.ends)
        return Contents(self.data, *(column[mask] for column in places))

    def slices(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[memoryview]:
        """Bytes from and to these positions, uncopied."""
        data = memoryview(self.data)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            yield data[begin:end]


@attrs.define(eq=False, slots=False)
class RowBatch:
    """A batch of up to about 25 thousand rows. A column costs only when it is asked for."""

    store: str
    segment: str
    row_count: int
    corrupt: list[CorruptRow]
    bytes_done: int
    """Bytes of the log that this batch was made from, rows or not: for progress."""
    heads: bytes = b""
    stride: int = SCAN_SIZE
    """Bytes of `heads` per row: 88, or 136 with a DLEDGER entry's header."""
    topic_codes: NDArray[np.int32] = attrs.field(factory=lambda: np.empty(0, np.int32))
    topic_names: Sequence[str] = ()
    """Topics of this split so far; `topic_codes` point into it."""
    odd_hosts: dict[int, tuple[str, str]] = attrs.field(factory=dict)
    """Row -> born and store host, where one is IPv6."""
    contents: Sequence[Contents] | None = None
    """Contents of the rows of a full scan, in pieces and in order; else None."""

    def column(self, name: str) -> list[Any]:
        """Values of one column of `schema.COMMITLOG`, or COMMITLOG_FULL in a full scan.

        Errors: KeyError when this scan has no such column.
        """
        if name in _NUMBERS:
            if not self.has_numbers(name):
                return [None] * self.row_count
            found: list[Any] = self.numbers(name).tolist()
            return found
        if name in _HOSTS:
            codes = self.host_codes(name).tolist()
            distinct = list(set(codes))
            texts = dict(zip(distinct, self.host_texts(name, distinct), strict=True))
            return [texts[code] for code in codes]
        match name:
            case "topic":
                names = self.topic_names
                return [names[code] for code in self.topic_codes.tolist()]
            case "store" | "segment":
                return [self.store if name == "store" else self.segment] * self.row_count
            case "properties_size":
                return self._properties_sizes()
        if self.contents is None:
            raise KeyError(name)
        match name:
            case "body":
                return self.bodies
            case "properties":
                return self.properties
            case "crc_ok":
                return self.crc_ok
            case "digest":
                return self.digests
        key = PROPERTIES[name]
        return [properties.get(key) for properties in self.properties]

    def rows(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Return these columns as one tuple for each row."""
        return zip(*[self.column(name) for name in names], strict=True)

    def only(self, mask: NDArray[np.bool_]) -> RowBatch:
        """Return the rows that are marked; damage stays."""
        places = np.flatnonzero(mask)
        new_places = dict(zip(places.tolist(), count(), strict=False))
        heads = np.frombuffer(self.heads, np.uint8).reshape(-1, self.stride)
        return attrs.evolve(
            self,
            row_count=len(places),
            heads=heads[places].tobytes(),
            topic_codes=self.topic_codes[places],
            odd_hosts={
                new_places[row]: hosts for row, hosts in self.odd_hosts.items() if row in new_places
            },
            contents=None if self.contents is None else list(self._contents_of(mask)),
        )

    def _contents_of(self, mask: NDArray[np.bool_]) -> Iterator[Contents]:
        first = 0
        for piece in self.contents or ():
            rows = len(piece.begins)
            yield piece.only(mask[first : first + rows])
            first += rows

    def has_numbers(self, name: str) -> bool:
        """False for a DLEDGER entry's numbers in another log: they are NULL."""
        return name not in _ENTRY_NUMBERS or self.stride > SCAN_SIZE

    def numbers(self, name: str) -> NDArray[Any]:
        """A column of numbers as machine integers: 8 bytes each for BIGINT, 4 for INT."""
        place, width = _NUMBERS[name]
        return self._strided(place, width)

    def host_codes(self, name: str) -> NDArray[Any]:
        """A column of hosts, 8 bytes each, to be looked up in `host_texts`."""
        column = self._strided(*_HOSTS[name])
        for row in self.odd_hosts:
            column[row] = _odd_code(row)
        return column

    def host_texts(self, name: str, codes: Iterable[int]) -> list[str]:
        """``host:port`` of each of `codes`."""
        which = 0 if name == "born_host" else 1
        odd = {_odd_code(row): hosts[which] for row, hosts in self.odd_hosts.items()}
        return [odd[code] if code in odd else _text_of(code) for code in codes]

    @cached_property
    def bodies(self) -> list[bytes]:
        """Body of each record of a full scan, not decompressed."""
        assert self.contents is not None, "only a full scan keeps bodies"
        return [
            bytes(body)
            for piece in self.contents
            for body in piece.slices(piece.body_at, piece.body_end)
        ]

    @cached_property
    def properties(self) -> list[dict[str, str]]:
        """Properties of each record of a full scan."""
        assert self.contents is not None, "only a full scan keeps properties"
        return [
            decode_properties(bytes(raw))
            for piece in self.contents
            for raw in piece.slices(piece.properties_at, piece.ends)
        ]

    @cached_property
    def crc_ok(self) -> list[bool]:
        """Whether each body of a full scan matches its checksum."""
        assert self.contents is not None, "only a full scan keeps bodies"
        found = [
            crc32(piece.data[begin:end])
            for piece in self.contents
            for begin, end in zip(piece.body_at.tolist(), piece.body_end.tolist(), strict=True)
        ]
        stored = self.numbers("body_crc")
        is_ok: list[bool] = (np.array(found, np.uint32) & 0x7FFFFFFF == stored).tolist()
        return is_ok

    @property
    def digests(self) -> list[int]:
        """CRC-32 of every byte of each record of a full scan, its entry's header included."""
        assert self.contents is not None, "only a full scan keeps bodies"
        return [
            crc32(record)
            for piece in self.contents
            for record in piece.slices(piece.begins, piece.ends)
        ]

    @property
    def fixed_sizes(self) -> list[int]:
        """Bytes of a record besides body and properties, by topic code; hosts are IPv4."""
        return [FIXED_SIZE + len(topic.encode()) for topic in self.topic_names]

    def _properties_sizes(self) -> list[int]:
        fixed = self.fixed_sizes
        sizes = [
            size - body_size - fixed[code]
            for size, body_size, code in zip(
                self.column("size"),
                self.column("body_size"),
                self.topic_codes.tolist(),
                strict=True,
            )
        ]
        if self.odd_hosts:
            flags = self.column("sys_flag")
            for row in self.odd_hosts:
                sizes[row] -= 12 * ((flags[row] & 0x30).bit_count())
        return sizes

    def _strided(self, place: int, width: int) -> NDArray[Any]:
        place += self.stride - SCAN_SIZE
        if not self.row_count:
            return np.empty(0, f"=i{width}")
        stated: NDArray[Any] = np.ndarray(
            (self.row_count,), f">i{width}", self.heads, offset=place, strides=(self.stride,)
        )
        return stated.astype(f"=i{width}")


def as_ipv4(head: bytes, lead: int) -> tuple[bytes, tuple[str, str]]:
    """A header with IPv6 hosts, `lead` bytes of an entry before it, and its hosts as text.

    The header comes back in the layout of one with IPv4 hosts, and these zeros.
    """
    born_size = 20 if head[lead + 39] & SysFlag.BORNHOST_V6 else 8
    store_size = 20 if head[lead + 39] & SysFlag.STOREHOST_V6 else 8
    born_at = lead + 48
    time_at = born_at + born_size
    store_at = time_at + 8
    rest_at = store_at + store_size
    hosts = (_host_text(head[born_at:time_at]), _host_text(head[store_at:rest_at]))
    return head[:born_at] + bytes(8) + head[time_at:store_at] + bytes(8) + head[rest_at:], hosts


def _odd_code(row: int) -> int:
    """A host no IPv4 record can have: its port is negative."""
    return -1 - row


def _text_of(code: int) -> str:
    return _host_text(code.to_bytes(8, "big", signed=True))


def _host_text(packed: bytes) -> str:
    host, port = unpack_host(packed)
    return f"{host}:{port}"
