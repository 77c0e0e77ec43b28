"""Tables of the log as Parquet, written by the workers in the pass that counts the statistics.

Theory of operation. Most reports ask the log several questions, and decoding it costs far more
than any of them. So where workers and driver see one directory, the first pass over the records
leaves what reports read of them there: headers, tags, keys, checksums' verdicts, damage. Nothing
of it passes through a socket, and later queries read the columns they name. Bodies and properties
are left out: they are most of the bytes, and the few queries that want them scan the log.

A file is one task's. It gets its name when it is whole, so a task that Spark runs again replaces
the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trioha.analysis import schema as tables
from trioha.analysis.row_batch import RowBatch
from trioha.analysis.schema import TableSchema
from trioha.analysis.spark.arrow_batches import rows_to_arrow, schema_of, to_arrow
from trioha.analysis.store_files import LogSplit

RECORDS, CORRUPT, QUEUES = "records", "corrupt", "queues"
_GROUP_ROWS = 65_536
"""Rows of a row group, and so what a task holds of them: some 20 MiB."""
_LEFT_OUT = frozenset({"properties", "body"})
_REPEATING = ["store", "segment", "topic", "queue_id", "born_host", "store_host", "tags", "keys"]
"""Columns that a dictionary makes smaller."""


def spilled_columns() -> frozenset[str]:
    """Columns of `commitlog_full`, and so of `commitlog`, that the files hold."""
    return frozenset(tables.COMMITLOG_FULL.names) - _LEFT_OUT


def spilling(directory: str, split: LogSplit, batches: Iterable[RowBatch]) -> Iterator[RowBatch]:
    """The batches of a full scan, each written before it is handed on."""
    # A store's name may hold anything; the paths of one analysis are all different.
    name = f"{split.segment.path}-{split.begin}".encode().hex()[-160:]
    root = Path(directory)
    with _File(root / RECORDS / f"{name}.parquet", tables.COMMITLOG_FULL) as records:
        damage: list[Any] = []
        for batch in batches:
            if batch.row_count:
                records.write(to_arrow(batch, tables.COMMITLOG_FULL, records.schema))
            damage += batch.corrupt
            yield batch
    with _File(root / CORRUPT / f"{name}.parquet", tables.COMMITLOG_CORRUPT) as corrupt:
        if damage:
            table = tables.COMMITLOG_CORRUPT
            columns = {key: [getattr(row, key) for row in damage] for key in table.names}
            corrupt.write(rows_to_arrow(columns, table, corrupt.schema))


class _File:
    """One Parquet file, there under its name once the block is left in order."""

    def __init__(self, path: Path, table: TableSchema) -> None:
        self.schema = schema_of(table, [name for name in table.names if name not in _LEFT_OUT])
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.{os.getpid()}")  # Spark passes over it
        self._repeating = [name for name in _REPEATING if name in self.schema.names]
        self._writer: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._unfinished,
                self.schema,
                compression="lz4",
                use_dictionary=self._repeating,
                write_statistics=False,
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._rows = [], 0

    def __enter__(self) -> _File:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if error is None and self._waiting:
            self._flush()
        if self._writer is not None:
            self._writer.close()
            if error is None:
                os.replace(self._unfinished, self._path)
            else:
                self._unfinished.unlink(missing_ok=True)
