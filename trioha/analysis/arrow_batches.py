"""Arrow columns out of batches of the scanner, for Spark and for Parquet.

Numbers and hosts go over whole, without an object per value; strings that repeat (topics, hosts)
are looked up once and spread by Arrow. The schema is Spark's own, so that its check is an identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trioha.analysis.row_batch import PROPERTIES, Contents, RowBatch
from trioha.analysis.schema import ColumnType, TableSchema

MS_FIRST = -62_135_596_800_000
MS_END = 253_402_300_800_000
"""Years 1 to 9999: what TIMESTAMP columns hold. A stored time beyond them is damage, and NULL."""


_TYPES = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT: pa.int32(),
    ColumnType.BIGINT: pa.int64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", "UTC"),
    ColumnType.BINARY: pa.binary(),
    ColumnType.TEXT_MAP: pa.map_(pa.string(), pa.string()),
}


def schema_of(table: TableSchema, names: Sequence[str]) -> pa.Schema:
    """These columns, without asking Spark."""
    return pa.schema(
        [pa.field(name, _TYPES[table.type_of(name)], table.may_be_null(name)) for name in names]
    )


def to_arrow(batch: RowBatch, table: TableSchema, schema: pa.Schema) -> pa.RecordBatch:
    """Columns of `schema`, each of them one of the table's, from a batch of records."""
    twins = dict(table.twins)
    properties = _Properties(batch)
    columns = []
    for field in schema:
        if field.name in twins:
            column = _times(numbers(batch, twins[field.name]))
        else:
            column = _column(batch, properties, field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def rows_to_arrow(
    columns: Mapping[str, Sequence[Any]], table: TableSchema, schema: pa.Schema
) -> pa.RecordBatch:
    """The same from columns of Python values."""
    twins = dict(table.twins)
    arrays = []
    for field in schema:
        if field.name in twins:
            column = _times(pa.array(columns[twins[field.name]], pa.int64())).cast(field.type)
        elif pa.types.is_map(field.type):
            column = text_maps(columns[field.name]).cast(field.type)
        else:
            column = pa.array(columns[field.name], field.type)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text_maps(maps: Iterable[Mapping[str, str]]) -> pa.Array:
    """MAP<STRING,STRING>."""
    maps = list(maps)
    offsets = pa.array([0, *accumulate(map(len, maps))], pa.int32())
    keys = pa.array([key for item in maps for key in item], pa.string())
    values = pa.array([value for item in maps for value in item.values()], pa.string())
    return pa.MapArray.from_arrays(offsets, keys, values)


def _column(batch: RowBatch, properties: _Properties, name: str) -> pa.Array:
    match name:
        case "store" | "segment":
            text = batch.store if name == "store" else batch.segment
            return pa.repeat(pa.scalar(text, pa.string()), batch.row_count)
        case "topic":
            return pa.array(batch.topic_names, pa.string()).take(topic_codes(batch))
        case "born_host" | "store_host":
            return _hosts(batch, name)
        case "properties_size" if not batch.odd_hosts:
            fixed = pa.array(batch.fixed_sizes, pa.int32()).take(topic_codes(batch))
            contents = pc.subtract(numbers(batch, "size"), numbers(batch, "body_size"))
            return pc.subtract(contents, fixed)
        case "properties_size":
            return pa.array(batch.column(name), pa.int32())
        case "properties":
            return text_maps(batch.properties)
        case "tags" | "keys" | "unique_key":
            return properties.column(name)
        case "body":
            return _slices(batch, lambda piece: (piece.body_at, piece.body_end))
        case "digest":
            return pa.array(batch.digests, pa.int64())
        case "crc_ok":
            return pa.array(batch.column(name), pa.bool_())
    return numbers(batch, name)


def numbers(batch: RowBatch, name: str) -> pa.Array:
    """A column of numbers."""
    if not batch.has_numbers(name):
        return pa.nulls(batch.row_count, pa.int64())
    return pa.array(batch.numbers(name))


def topic_codes(batch: RowBatch) -> pa.Array:
    """Places in the batch's `topic_names`."""
    return pa.array(batch.topic_codes)


def host_dictionary(batch: RowBatch, name: str) -> tuple[pa.Array, list[str]]:
    """A column of hosts as places in a list of ``host:port``."""
    codes = pa.array(batch.host_codes(name)).dictionary_encode()
    return codes.indices, batch.host_texts(name, codes.dictionary.to_pylist())


def _slices(
    batch: RowBatch, of: Callable[[Contents], tuple[NDArray[Any], NDArray[Any]]]
) -> pa.Array:
    """Bytes of every row from and to the positions that `of` names, as BINARY.

    Arrow's offsets cannot leave bytes out, so slices and what lies between them alternate, and
    every second one is taken.
    """
    assert batch.contents is not None, "only a full scan keeps contents"
    arrays = [_cut(piece.data, *of(piece)) for piece in batch.contents]
    return pa.concat_arrays([pa.array([], pa.binary()), *arrays])


def _cut(data: bytes, begins: NDArray[Any], ends: NDArray[Any]) -> pa.Array:
    """Slices of bytes as BINARY; they do not overlap, and come in order."""
    count = len(begins)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = begins, ends
    offsets[-1] = offsets[-2] if count else 0
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    whole = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, buffers)
    return whole.take(pa.array(np.arange(0, 2 * count, 2)))


def _hosts(batch: RowBatch, name: str) -> pa.Array:
    places, texts = host_dictionary(batch, name)
    return pa.array(texts, pa.string()).take(places)


class _Properties:
    """Single properties of every record: found by NumPy, or by Python where they are odd."""

    def __init__(self, batch: RowBatch) -> None:
        self._batch = batch

    @cached_property
    def _pairs(self) -> tuple[bytes, NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """All properties in a row; of each pair its row, begin, separator and end in them."""
        raw = _slices(self._batch, lambda piece: (piece.properties_at, piece.ends))
        _, offsets, data = raw.buffers()
        bounds = np.frombuffer(offsets, np.int32, raw.offset + len(raw) + 1)[raw.offset :]
        # A separator of pairs before the first, so that every begin has one before it.
        texts = b"\2" + (data.to_pybytes() if data is not None else b"")
        characters = np.frombuffer(texts, np.uint8)
        is_before = characters == 2
        is_before[bounds[:-1]] = True
        begins = np.flatnonzero(is_before) + 1
        ends = np.minimum(np.append(begins[1:], len(texts)), len(texts))
        rows = np.searchsorted(bounds + 1, begins, "right") - 1
        # What ends at a separator ends before it; what ends with a record has none.
        ends = ends - ((ends > begins) & (characters[ends - 1] == 2))
        separators = np.append(np.flatnonzero(characters == 1), len(texts))
        separators = separators[np.searchsorted(separators, begins)]
        is_pair = (separators < ends) & (rows < len(raw))
        return texts, rows[is_pair], begins[is_pair], separators[is_pair], ends[is_pair]

    def column(self, name: str) -> pa.Array:
        texts, rows, begins, separators, ends = self._pairs
        wanted = np.frombuffer(PROPERTIES[name].encode(), np.uint8)
        is_wanted = np.flatnonzero(separators - begins == len(wanted))
        characters = np.frombuffer(texts, np.uint8)
        for place, character in enumerate(wanted):
            is_wanted = is_wanted[characters[begins[is_wanted] + place] == character]
        rows, begins, ends = rows[is_wanted], separators[is_wanted] + 1, ends[is_wanted]
        is_doubled = bool((rows[1:] == rows[:-1]).any())
        if is_doubled or bool((begins == ends).any()):
            return self._as_python_does(name)
        try:
            found = _cut(texts, begins, ends).cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            return self._as_python_does(name)
        if len(rows) == self._batch.row_count:
            return found
        places = np.full(self._batch.row_count, -1, np.int64)
        places[rows] = np.arange(len(rows))
        return found.take(pa.array(places, mask=places < 0))

    def _as_python_does(self, name: str) -> pa.Array:
        return pa.array(self._batch.column(name), pa.string())


def _times(milliseconds: pa.Array) -> pa.Array:
    bounds = pc.min_max(milliseconds).as_py()
    if bounds["min"] is not None and not MS_FIRST <= bounds["min"] <= bounds["max"] < MS_END:
        is_time = pc.and_(pc.greater_equal(milliseconds, MS_FIRST), pc.less(milliseconds, MS_END))
        milliseconds = pc.if_else(is_time, milliseconds, pa.scalar(None, pa.int64()))
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
