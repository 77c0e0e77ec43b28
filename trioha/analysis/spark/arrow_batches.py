"""Arrow columns for Spark out of batches of the scanner.

Numbers and hosts go over whole, without an object per value; strings that repeat (topics, hosts)
are looked up once and spread by Arrow. The schema is Spark's own, so that its check is an identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from trioha.analysis.row_batch import PROPERTIES, RowBatch
from trioha.analysis.schema import ColumnType, TableSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MS_FIRST = -62_135_596_800_000
MS_END = 253_402_300_800_000
"""Years 1 to 9999: what TIMESTAMP columns hold. A stored time beyond them is damage, and NULL."""


_TYPES = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT: pa.int32(),
    ColumnType.BIGINT: pa.int64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", "UTC"),
}


def schema_of(table: TableSchema, names: Sequence[str]) -> pa.Schema:
    """These columns, none of them a map or bytes, without asking Spark."""
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
            return pa.array(batch.column(name), pa.binary())
        case "digest":
            return pa.array(batch.digests, pa.int64())
        case "crc_ok":
            return pa.array(batch.column(name), pa.bool_())
    return numbers(batch, name)


def numbers(batch: RowBatch, name: str) -> pa.Array:
    """A column of numbers."""
    if not batch.has_numbers(name):
        return pa.nulls(batch.row_count, pa.int64())
    return _integers(batch.numbers(name), batch.row_count)


def _integers(column: bytearray, count: int) -> pa.Array:
    kind = pa.int64() if len(column) == 8 * count else pa.int32()
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(column)])


def topic_codes(batch: RowBatch) -> pa.Array:
    """Places in the batch's `topic_names`."""
    return pa.array(batch.topic_codes, pa.int32())


def host_dictionary(batch: RowBatch, name: str) -> tuple[pa.Array, list[str]]:
    """A column of hosts as places in a list of ``host:port``."""
    codes = _integers(batch.host_codes(name), batch.row_count).dictionary_encode()
    return codes.indices, batch.host_texts(name, codes.dictionary.to_pylist())


def _hosts(batch: RowBatch, name: str) -> pa.Array:
    places, texts = host_dictionary(batch, name)
    return pa.array(texts, pa.string()).take(places)


class _Properties:
    """Single properties of every record: cut apart by Arrow, or by Python where they are odd."""

    def __init__(self, batch: RowBatch) -> None:
        self._batch = batch

    @cached_property
    def _pairs(self) -> tuple[pa.Array, pa.Array]:
        """Names with their values, and the row of each."""
        assert self._batch.contents is not None, "only a full scan keeps properties"
        raw = pa.array(self._batch.contents.properties, pa.binary())
        pairs = pc.split_pattern(raw, b"\x02")
        return pairs.flatten(), pc.list_parent_indices(pairs)

    def column(self, name: str) -> pa.Array:
        texts, rows = self._pairs
        prefix = PROPERTIES[name].encode() + b"\x01"
        is_wanted = pc.starts_with(texts, prefix)
        rows = rows.filter(is_wanted)
        try:
            # Cast first: pyarrow 26 cannot slice binaries that come out of a filter.
            found = pc.utf8_slice_codeunits(texts.filter(is_wanted).cast(pa.string()), len(prefix))
        except pa.ArrowInvalid:  # not UTF-8
            return self._as_python_does(name)
        is_doubled = len(rows) != pc.count_distinct(rows).as_py()
        if is_doubled or pc.any(pc.equal(pc.binary_length(found), 0)).as_py():
            return self._as_python_does(name)
        count = self._batch.row_count
        if len(rows) == count:
            return found
        return found.take(pc.index_in(pa.array(range(count), rows.type), rows))

    def _as_python_does(self, name: str) -> pa.Array:
        return pa.array(self._batch.column(name), pa.string())


def _times(milliseconds: pa.Array) -> pa.Array:
    bounds = pc.min_max(milliseconds).as_py()
    if bounds["min"] is not None and not MS_FIRST <= bounds["min"] <= bounds["max"] < MS_END:
        is_time = pc.and_(pc.greater_equal(milliseconds, MS_FIRST), pc.less(milliseconds, MS_END))
        milliseconds = pc.if_else(is_time, milliseconds, pa.scalar(None, pa.int64()))
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
