"""Arrow columns for Spark out of batches of the scanner.

Numbers and hosts go over whole, without an object per value; strings that repeat (topics, hosts)
are looked up once and spread by Arrow. The schema is Spark's own, so that its check is an identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from trioha.analysis.row_batch import RowBatch
from trioha.analysis.schema import TableSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MS_FIRST = -62_135_596_800_000
MS_END = 253_402_300_800_000
"""Years 1 to 9999: what TIMESTAMP columns hold. A stored time beyond them is damage, and NULL."""


def to_arrow(batch: RowBatch, table: TableSchema, schema: pa.Schema) -> pa.RecordBatch:
    """Columns of `schema`, each of them one of the table's, from a batch of records."""
    twins = dict(table.twins)
    columns = []
    for field in schema:
        if field.name in twins:
            column = _times(_numbers(batch, twins[field.name]))
        else:
            column = _column(batch, field.name)
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


def _column(batch: RowBatch, name: str) -> pa.Array:
    match name:
        case "store" | "segment":
            text = batch.store if name == "store" else batch.segment
            return pa.repeat(pa.scalar(text, pa.string()), batch.row_count)
        case "topic":
            return pa.array(batch.topic_names, pa.string()).take(_topic_codes(batch))
        case "born_host" | "store_host":
            return _hosts(batch, name)
        case "properties_size" if not batch.odd_hosts:
            fixed = pa.array(batch.fixed_sizes, pa.int32()).take(_topic_codes(batch))
            contents = pc.subtract(_numbers(batch, "size"), _numbers(batch, "body_size"))
            return pc.subtract(contents, fixed)
        case "properties_size":
            return pa.array(batch.column(name), pa.int32())
        case "properties":
            return text_maps(batch.properties)
        case "tags" | "keys" | "unique_key":
            return pa.array(batch.column(name), pa.string())
        case "body":
            return pa.array(batch.column(name), pa.binary())
        case "crc_ok":
            return pa.array(batch.column(name), pa.bool_())
    return _numbers(batch, name)


def _numbers(batch: RowBatch, name: str) -> pa.Array:
    if not batch.has_numbers(name):
        return pa.nulls(batch.row_count, pa.int64())
    return _integers(batch.numbers(name), batch.row_count)


def _integers(column: bytearray, count: int) -> pa.Array:
    kind = pa.int64() if len(column) == 8 * count else pa.int32()
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(column)])


def _topic_codes(batch: RowBatch) -> pa.Array:
    return pa.array(batch.topic_codes, pa.int32())


def _hosts(batch: RowBatch, name: str) -> pa.Array:
    codes = _integers(batch.host_codes(name), batch.row_count).dictionary_encode()
    texts = batch.host_texts(name, codes.dictionary.to_pylist())
    return pa.array(texts, pa.string()).take(codes.indices)


def _times(milliseconds: pa.Array) -> pa.Array:
    bounds = pc.min_max(milliseconds).as_py()
    if bounds["min"] is not None and not MS_FIRST <= bounds["min"] <= bounds["max"] < MS_END:
        is_time = pc.and_(pc.greater_equal(milliseconds, MS_FIRST), pc.less(milliseconds, MS_END))
        milliseconds = pc.if_else(is_time, milliseconds, pa.scalar(None, pa.int64()))
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
