"""Arrow columns out of batches of the scanner, for Spark and for Parquet.

Numbers and hosts go over whole, without an object per value. Strings that repeat (topics, hosts)
are made once, as an Arrow dictionary; where the schema says so they stay one. The schema is Spark's
own, so that its check is an identity.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trioha.analysis.row_batch import PROPERTIES, Contents, RowBatch
from trioha.analysis.schema import ColumnType, TableSchema
from trioha.wire.names import TRANS_OP_HALF_TOPIC

MS_FIRST = -62_135_596_800_000
MS_END = 253_402_300_800_000
"""Years 1 to 9999: what TIMESTAMP columns hold. A stored time beyond them is damage, and NULL."""
TIME_MAX = 1 << 61
"""A damaged record's time beyond this counts as this, lest the difference of two times overflow."""

Bytes = NDArray[np.uint8]
_NAME_END, _PAIR_END = 1, 2
_WORD = 4
_TYPES = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT: pa.int32(),
    ColumnType.BIGINT: pa.int64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", "UTC"),
    ColumnType.BINARY: pa.binary(),
    ColumnType.TEXT_MAP: pa.map_(pa.string(), pa.string()),
}


def schema_of(
    table: TableSchema, names: Sequence[str], dictionaries: Collection[str] = ()
) -> pa.Schema:
    """These columns, without asking Spark; those of `dictionaries` are texts that repeat."""
    fields = []
    for name in names:
        kind = _TYPES[table.type_of(name)]
        if name in dictionaries:
            kind = pa.dictionary(pa.int32(), kind)
        fields.append(pa.field(name, kind, table.may_be_null(name)))
    return pa.schema(fields)


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
        columns.append(_of_type(column, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def with_held_times(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records with each time beyond `TIME_MAX`, or below its negative, held there."""
    for name in ("born_ms", "store_ms"):
        place = rows.schema.get_field_index(name)
        if place < 0 or not rows.num_rows:
            continue
        times = rows.column(place)
        bounds = pc.min_max(times).as_py()
        if not -TIME_MAX <= bounds["min"] <= bounds["max"] <= TIME_MAX:
            held = pa.array(np.clip(times.to_numpy(), -TIME_MAX, TIME_MAX))
            rows = rows.set_column(place, rows.schema.field(place), held)
    return rows


def rows_to_arrow(
    columns: Mapping[str, Sequence[Any]], table: TableSchema, schema: pa.Schema
) -> pa.RecordBatch:
    """Return a record batch from columns of Python values."""
    twins = dict(table.twins)
    arrays = []
    for field in schema:
        if field.name in twins:
            column = _times(pa.array(columns[twins[field.name]], pa.int64())).cast(field.type)
        elif pa.types.is_map(field.type):
            column = text_maps(columns[field.name]).cast(field.type)
        elif isinstance(columns[field.name], pa.Array):
            column = _of_type(columns[field.name], field.type)
        else:
            column = pa.array(columns[field.name], field.type)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def repeated(text: str, count: int) -> pa.Array:
    """One text so many times."""
    return _looked_up(pa.repeat(pa.scalar(0, pa.int32()), count), [text])


def _looked_up(places: pa.Array, texts: Sequence[str]) -> pa.Array:
    """Texts that repeat, by their places in a list."""
    return pa.DictionaryArray.from_arrays(places, pa.array(texts, pa.string()))


def _of_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


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
            return repeated(text, batch.row_count)
        case "topic":
            return _looked_up(topic_codes(batch), batch.topic_names)
        case "born_host" | "store_host":
            return _looked_up(*host_dictionary(batch, name))
        case "properties_size" if not batch.odd_hosts:
            fixed = pa.array(batch.fixed_sizes, pa.int32()).take(topic_codes(batch))
            contents = pc.subtract(numbers(batch, "size"), numbers(batch, "body_size"))
            return pc.subtract(contents, fixed)
        case "properties_size":
            return pa.array(batch.column(name), pa.int32())
        case "properties":
            return text_maps(batch.properties)
        case "op_places":
            return _op_places(batch)
        case "body":
            return _slices(batch, lambda piece: (piece.body_at, piece.body_end))
        case "digest":
            return pa.array(batch.digests, pa.int64())
        case "crc_ok":
            return pa.array(batch.column(name), pa.bool_())
    if name in PROPERTIES:
        return properties.column(PROPERTIES[name])
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


def _op_places(batch: RowBatch) -> pa.Array:
    """Bodies of the op topic's records as text, NULL for all others."""
    codes = [code for code, topic in enumerate(batch.topic_names) if topic == TRANS_OP_HALF_TOPIC]
    if not codes:
        return pa.nulls(batch.row_count, pa.string())
    is_op = batch.topic_codes == codes[0]
    bodies = _slices(batch.only(is_op), lambda piece: (piece.body_at, piece.body_end))
    return _spread(_texts(bodies), np.flatnonzero(is_op), batch.row_count)


def _texts(values: pa.Array) -> pa.Array:
    """BINARY as text; bytes that are not UTF-8 become U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [value.decode("utf-8", "replace") for value in values.to_pylist()]
        return pa.array(texts, pa.string())


def _spread(values: pa.Array, rows: NDArray[Any], count: int) -> pa.Array:
    """A column of so many rows that has the values in these, and NULL elsewhere."""
    if len(rows) == count:
        return values
    if not len(rows):
        return pa.nulls(count, values.type)
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))


def _cut(data: bytes | Bytes, begins: NDArray[Any], ends: NDArray[Any]) -> pa.Array:
    """Slices of bytes as BINARY; they do not overlap, and come in order."""
    count = len(begins)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = begins, ends
    offsets[-1] = offsets[-2] if count else 0
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    whole = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, buffers)
    return whole.take(pa.array(np.arange(0, 2 * count, 2)))


class _Properties:
    """Single properties of every record, found by NumPy by the rules of `decode_properties`."""

    def __init__(self, batch: RowBatch) -> None:
        self._batch = batch

    @cached_property
    def _pairs(self) -> tuple[Bytes, NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """All properties in a row; of each pair its row, begin, separator and end in them."""
        data, bounds = bytes_of(
            _slices(self._batch, lambda piece: (piece.properties_at, piece.ends))
        )
        rows, begins, ends = pieces(data, bounds, _PAIR_END)
        separators = np.flatnonzero(data == _NAME_END)
        is_plain = len(separators) == len(begins)
        is_plain = is_plain and bool(((separators >= begins) & (separators < ends)).all())
        if not is_plain:  # a pair has none, or its value holds more of them
            separators = np.append(separators, len(data))
            separators = separators[np.searchsorted(separators, begins)]
        is_pair = separators + 1 < ends  # a value that is empty is none
        if is_pair.all():
            return data, rows, begins, separators, ends
        return data, rows[is_pair], begins[is_pair], separators[is_pair], ends[is_pair]

    @cached_property
    def _names(self) -> NDArray[np.uint64]:
        """One number for each pair: the first four bytes of its name, then the last four."""
        data, _, begins, separators, _ = self._pairs
        last = len(data) - _WORD
        if last < 0:
            return np.empty(0, np.uint64)
        words = np.ndarray((last + 1,), ">u4", data, strides=(1,))
        # A name of four has more than its own bytes behind its begin: a separator and a value.
        # A name of less than four bytes gets foreign bytes too; `column` looks at lengths.
        names: NDArray[np.uint64] = words[np.minimum(begins, last)].astype(np.uint64)
        names <<= np.uint64(8 * _WORD)
        names |= words[np.maximum(separators - _WORD, 0)]
        return names

    def column(self, name: str) -> pa.Array:
        """Values of one property, whose name has four letters or more; NULL where there is none."""
        data, rows, begins, separators, ends = self._pairs
        wanted = name.encode()
        key = int.from_bytes(wanted[:_WORD] + wanted[-_WORD:], "big")
        found = np.flatnonzero(self._names == key)
        found = found[separators[found] - begins[found] == len(wanted)]
        for place in range(_WORD, len(wanted) - _WORD):
            found = found[data[begins[found] + place] == wanted[place]]
        if not len(found):
            return pa.nulls(self._batch.row_count, pa.string())
        of = rows[found]
        is_last = np.append(of[1:] != of[:-1], True)  # the last of a name counts
        if not is_last.all():
            found, of = found[is_last], of[is_last]
        values = _cut(data, separators[found] + 1, ends[found])
        return _spread(_texts(values), of, self._batch.row_count)


def pieces(
    data: Bytes, bounds: NDArray[Any], separator: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Split consecutive texts at a separator; return the pieces' rows, begins and ends.

    Text i is data[bounds[i]:bounds[i + 1]]. A separator at its end is harmless.
    """
    is_begin = np.empty(len(data) + 1, np.bool_)
    np.equal(data, separator, out=is_begin[1:])
    is_begin[bounds] = True
    is_begin[0] = True
    begins = np.flatnonzero(is_begin)
    begins, ends = begins[:-1], begins[1:]
    ends = ends - (data[ends - 1] == separator)
    counts = np.diff(np.searchsorted(begins, bounds))
    return np.repeat(np.arange(len(counts)), counts), begins, ends


def bytes_of(texts: pa.Array) -> tuple[Bytes, NDArray[Any]]:
    """Bytes of a column of texts, NULL like empty ones, and where each begins and the last ends."""
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int32)
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32, texts.offset + len(texts) + 1)[texts.offset :]
    if bounds[0] == bounds[-1]:
        return np.empty(0, np.uint8), np.zeros(len(bounds), np.int32)
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]], bounds - bounds[0]


def _times(milliseconds: pa.Array) -> pa.Array:
    bounds = pc.min_max(milliseconds).as_py()
    if bounds["min"] is not None and not MS_FIRST <= bounds["min"] <= bounds["max"] < MS_END:
        is_time = pc.and_(pc.greater_equal(milliseconds, MS_FIRST), pc.less(milliseconds, MS_END))
        milliseconds = pc.if_else(is_time, milliseconds, pa.scalar(None, pa.int64()))
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
