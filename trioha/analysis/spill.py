"""Tables of the log as Parquet: what each piece of a store decodes to, in a file of its own.

Theory of operation. Reports ask the log dozens of questions, and decoding it costs more than any of
them. So each piece of work (a range of a segment, some consume queues) is decoded once, by a
process here or a worker of Spark's, into files that every later query reads column by column.

A file gets its name when it is whole, so a task that is run again replaces the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from trioha.analysis import schema as tables
from trioha.analysis.arrow_batches import (
    repeated,
    rows_to_arrow,
    schema_of,
    to_arrow,
    with_held_times,
)
from trioha.analysis.consume_queues import scan_queue
from trioha.analysis.index_keys import Keys, keys_of, save_keys
from trioha.analysis.scan import Detail, ScanFilter, scan_split
from trioha.analysis.schema import TableSchema
from trioha.analysis.store_files import LogSplit, QueueFiles

RECORDS, CORRUPT, QUEUES, KEYS = "records", "corrupt", "queues", "keys"
_GROUP_ROWS = 65_536
"""Rows of a row group, and so what a task holds of them: some 20 MiB."""
_DICTIONARIES = ("store", "segment", "topic", "born_host", "store_host")
"""Columns that are made as dictionaries."""
_REPEATING = (*_DICTIONARIES, "queue_id", "tags", "keys")
"""Columns that a dictionary makes smaller."""


@attrs.frozen
class LogTask:
    """A range of a log to be decoded into `directory`. Pickles."""

    directory: str
    split: LogSplit
    detail: Detail
    columns: tuple[str, ...]
    """Names of columns of `schema.DECODED`."""
    filters: ScanFilter
    finds_damage: bool = True
    """The damage is wanted, bodies that do not match their checksums included."""
    finds_keys: bool = False
    """Keys of records are wanted, to be compared with index files."""

    @property
    def bytes(self) -> int:
        """Bytes of the log to be read."""
        return self.split.end - self.split.begin

    def run(self) -> int:
        """Write the records, the damage and the keys; return the number of records."""
        rows = 0
        damage: list[Any] = []
        keys: list[Keys] = []
        with _File(self._path(RECORDS), tables.DECODED, self.columns) as records:
            for batch in scan_split(
                self.split,
                columns=self.detail,
                filters=self.filters,
                checks_bodies=self.finds_damage,
            ):
                if batch.row_count:
                    decoded = with_held_times(to_arrow(batch, tables.DECODED, records.schema))
                    records.write(decoded)
                    if self.finds_keys:
                        keys.append(keys_of(batch, decoded, self.split.first_offset))
                damage += batch.corrupt
                rows += batch.row_count
        if self.finds_keys:
            save_keys(self.keys_path, keys)
        if not self.finds_damage:
            return rows
        table = tables.COMMITLOG_CORRUPT
        with _File(self._path(CORRUPT), table, table.names) as corrupt:
            if damage:
                columns = {key: [getattr(row, key) for row in damage] for key in table.names}
                corrupt.write(rows_to_arrow(columns, table, corrupt.schema))
        return rows

    @property
    def keys_path(self) -> Path:
        """Path of the file that the keys are written to."""
        return self._path(KEYS).with_suffix(".keys")

    def _path(self, kind: str) -> Path:
        # A store's name may hold anything.
        where = f"{self.split.segment.path}-{self.split.begin}"
        return Path(self.directory) / kind / f"{sha256(where.encode()).hexdigest()}.parquet"


@attrs.frozen
class ConsumeQueueTask:
    """Consume queues to be decoded into one file in `directory`. Pickles."""

    directory: str
    number: int
    queues: Sequence[QueueFiles]
    bytes: int

    def run(self) -> int:
        """Write the entries; return their number."""
        rows, table = 0, tables.CONSUMEQUEUE
        path = Path(self.directory) / QUEUES / f"{self.number}.parquet"
        with _File(path, table, table.names) as file:
            for queue in self.queues:
                for batch in queue_batches(queue, table, file.schema):
                    file.write(batch)
                    rows += batch.num_rows
        return rows


Task = LogTask | ConsumeQueueTask


def queue_batches(
    queue: QueueFiles, table: TableSchema, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows of one consume queue."""
    for batch in scan_queue(queue):
        count = len(batch.size)
        columns: dict[str, Any] = {
            "store": repeated(queue.store, count),
            "topic": repeated(queue.topic, count),
            "queue_id": pa.repeat(pa.scalar(queue.queue_id, pa.int32()), count),
            "queue_offset": batch.queue_offset,
            "phy_offset": batch.phy_offset,
            "size": batch.size,
            "tags_code": batch.tags_code,
        }
        yield rows_to_arrow(columns, table, schema)


class _File:
    """One Parquet file, there under its name once the block is left in order."""

    def __init__(self, path: Path, table: TableSchema, names: Sequence[str]) -> None:
        self.schema = schema_of(table, names, _DICTIONARIES)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.{os.getpid()}")
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
                compression="none",  # every query would undo it
                use_dictionary=self._repeating,
                write_statistics=False,
            )
        # A dictionary that grew from one batch to the next would be written out, text by text.
        self._writer.write_table(pa.Table.from_batches(self._waiting).unify_dictionaries())
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
