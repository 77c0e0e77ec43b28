"""Keys of records as an index file has them: where the record is, and the hash of ``topic#key``.

Theory of operation. h = 31·h + c over the characters of a text is a sum of c[i]·31^(n-1-i), modulo
2^32. 31 has an inverse there, so over all keys of a batch, written one behind the other, the sums
of c[i]·31^-i give the hash of any stretch as a difference of two of them, times a power of 31.
Characters beyond ASCII are no bytes: such keys are hashed one by one.

A key is one number: the record's place in its range of the log, then the hash, which is not
negative. The keys come in the order in which a broker writes their entries: record by record, the
unique key first. So keys and entries of a range that is in order are the same numbers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trioha.analysis.arrow_batches import Bytes, bytes_of, pieces, schema_of, to_arrow
from trioha.analysis.row_batch import RowBatch
from trioha.analysis.scan import scan_split
from trioha.analysis.schema import COMMITLOG_FULL
from trioha.analysis.store_files import LogSplit
from trioha.wire.codes import SysFlag
from trioha.wire.java_hash import index_key_hash, string_hash
from trioha.wire.properties import KEY_SEPARATOR

COLUMNS = ("unique_key", "keys")
HASH_BITS = 32
HASH_MASK = (1 << HASH_BITS) - 1
_BYTES_MAX = 4 << 20
"""Bytes of keys for which a table of powers is made; a larger batch is hashed key by key."""
_INVERSE = pow(31, -1, 1 << HASH_BITS)

Keys = NDArray[np.int64]


def keys_of(batch: RowBatch, texts: pa.RecordBatch, begin: int) -> Keys:
    """Keys of a batch's records in a broker's order; `texts` has `COLUMNS`, `begin` is place 0."""
    flags = batch.numbers("sys_flag") & SysFlag.TRANSACTION_MASK
    is_indexed = flags != SysFlag.TRANSACTION_ROLLBACK
    places = batch.numbers("phy_offset") - begin
    columns = []
    for name in COLUMNS:
        data, bounds = bytes_of(texts.column(name))
        rows, begins, ends = np.arange(batch.row_count), bounds[:-1], bounds[1:]
        if name == "keys":
            rows, begins, ends = pieces(data, bounds, ord(KEY_SEPARATOR))
        is_key = (begins < ends) & is_indexed[rows]
        rows, begins, ends = rows[is_key], begins[is_key], ends[is_key]
        hashes = _hashes(batch, rows, data, begins, ends)
        columns.append((rows, places[rows] << HASH_BITS | hashes))
    return _by_row(columns[0], columns[1], batch.row_count)


def _by_row(
    unique: tuple[NDArray[np.int64], Keys], others: tuple[NDArray[np.int64], Keys], count: int
) -> Keys:
    """Keys of so many rows, row by row: its unique key, if it has one, then its others."""
    (unique_rows, unique_keys), (other_rows, other_keys) = unique, others
    others_before = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(other_rows, minlength=count), out=others_before[1:])
    found = np.empty(len(unique_keys) + len(other_keys), np.int64)
    is_unique = np.zeros(len(found), np.bool_)
    is_unique[np.arange(len(unique_rows)) + others_before[unique_rows]] = True
    found[is_unique], found[~is_unique] = unique_keys, other_keys
    return found


def scan_keys(split: LogSplit) -> Keys:
    """Keys of the records that begin in a range of the log.

    Errors: AnalysisError when the file cannot be read.
    """
    schema = schema_of(COMMITLOG_FULL, COLUMNS)
    found = [
        keys_of(batch, to_arrow(batch, COMMITLOG_FULL, schema), split.first_offset)
        for batch in scan_split(split, columns="full", checks_bodies=False)
        if batch.row_count
    ]
    return np.concatenate([np.empty(0, np.int64), *found])


def save_keys(path: Path, found: Sequence[Keys]) -> None:
    """Keep keys in a file, which has its name when it is whole. Errors: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    np.concatenate([np.empty(0, np.int64), *found]).tofile(unfinished)
    os.replace(unfinished, path)


def load_keys(path: Path) -> Keys:
    """Keys of such a file. Errors: OSError."""
    return np.fromfile(path, np.int64)


def _hashes(
    batch: RowBatch, rows: NDArray[np.int64], data: Bytes, begins: Keys, ends: Keys
) -> Keys:
    """Hash of ``topic#key`` of each key, data[begins:ends], of the topic of its row."""
    codes = batch.topic_codes[rows]
    found, is_odd = np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_)
    if len(data) <= _BYTES_MAX:
        heads = np.array([_topic_state(topic) for topic in batch.topic_names], np.uint32)
        powers, inverses = _powers(1 << len(data).bit_length())
        sums = np.zeros(len(data) + 1, np.uint32)
        np.cumsum(data * inverses[: len(data)], out=sums[1:], dtype=np.uint32)
        # The last character's factor is 31^0, so powers are those of `ends` - 1.
        hashes = (sums[ends] - sums[begins]) * powers[ends - 1]
        hashes += heads[codes] * powers[ends - begins]
        # Math.abs, and Integer.MIN_VALUE, which has no absolute value, counts as 0.
        found = np.abs(hashes.view(np.int32)).astype(np.int64) & (HASH_MASK >> 1)
        high = np.append(0, np.flatnonzero(data > 127) + 1)
        is_odd = np.searchsorted(high, ends, "right") != np.searchsorted(high, begins, "right")
    for key in np.flatnonzero(is_odd).tolist():
        text = data[begins[key] : ends[key]].tobytes().decode()
        found[key] = index_key_hash(batch.topic_names[codes[key]], text)
    return found


@lru_cache(maxsize=4096)
def _topic_state(topic: str) -> int:
    return string_hash(topic + "#") & HASH_MASK


@lru_cache(maxsize=4)
def _powers(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """31^0, 31^1 … and 31^0, 31^-1 …, modulo 2^32."""
    steps = np.ones((2, count), np.uint32)
    steps[0, 1:], steps[1, 1:] = 31, _INVERSE
    powers, inverses = np.cumprod(steps, axis=1, dtype=np.uint32)
    return powers, inverses
