"""Records as a table for other tools: Parquet by day of storing, or a Delta table.

Theory of operation. Batches go from the decoder to the writer one after another, so memory holds a
few of them whatever the log's size. Parquet grows in a directory of another name and gets its own
when it is whole; a Delta table is there with its first commit.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from trioha.analysis.arrow_batches import schema_of, to_arrow
from trioha.analysis.engine import NoProgress, Progress
from trioha.analysis.scan import Detail, ScanFilter, plan_splits, scan_split
from trioha.analysis.schema import COMMITLOG, COMMITLOG_FULL, AnalysisError
from trioha.analysis.store_files import StoreFiles

DAY = "day"
"""The partition column: the day of `store_time` in UTC, NULL for a time that is none."""
FORMATS = ("parquet", "delta")


@attrs.define
class Exported:
    """Result of an export."""

    records: int = 0
    damaged: int = 0
    """Damaged stretches of the logs, which hold no record."""


def export(
    stores: Sequence[StoreFiles],
    out: Path,
    *,
    kind: str = "parquet",
    detail: Detail = "full",
    columns: Sequence[str] = (),
    filters: ScanFilter | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write the records of the stores to a new directory.

    Errors: AnalysisError: the directory exists, a column is unknown, a package lacks. OSError.
    """
    table = COMMITLOG_FULL if detail == "full" else COMMITLOG
    names = list(columns) or list(table.spark_names)
    unknown = [name for name in names if name not in table.spark_names]
    if unknown:
        raise AnalysisError(f"{unknown[0]} is no column of {table.name}")
    if out.exists():
        raise AnalysisError(f"{out} exists; name a directory that is to be made")
    schema = schema_of(table, list(dict.fromkeys([*names, "store_time"])))
    splits = [split for store in stores for split in plan_splits(store, filters or ScanFilter())]
    progress = progress or NoProgress()
    done = Exported()

    def batches() -> Iterator[pa.RecordBatch]:
        for split in splits:
            for batch in scan_split(split, columns=detail, filters=filters):
                done.records += batch.row_count
                done.damaged += len(batch.corrupt)
                progress.advance(batch.bytes_done, batch.row_count)
                if batch.row_count:
                    yield _with_day(to_arrow(batch, table, schema), names)

    written = pa.schema([*(schema.field(name) for name in names), (DAY, pa.date32())])
    reader = pa.RecordBatchReader.from_batches(written, batches())
    progress.begin("exporting", sum(split.end - split.begin for split in splits), "bytes")
    try:
        if kind == "delta":
            _write_delta(out, reader)
        else:
            _write_parquet(out, reader)
    finally:
        progress.end()
    return done


def _with_day(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    day = pc.cast(batch.column("store_time"), pa.date32(), safe=False)
    return batch.select(names).append_column(DAY, day)


def _write_parquet(out: Path, reader: pa.RecordBatchReader) -> None:
    partial = out.with_name(f"{out.name}.partial")
    if partial.exists():
        raise AnalysisError(f"{partial} is left of an export that ended early; remove it")
    by_day = ds.partitioning(pa.schema([(DAY, pa.date32())]), flavor="hive")
    partial.mkdir(parents=True)
    # A log runs through the days: files of the last few are all that must be open.
    ds.write_dataset(reader, partial, format="parquet", partitioning=by_day, max_open_files=32)
    os.rename(partial, out)


def _write_delta(out: Path, reader: pa.RecordBatchReader) -> None:
    if importlib.util.find_spec("deltalake") is None:
        raise AnalysisError("a Delta table needs deltalake; pip install deltalake")
    from deltalake import write_deltalake

    write_deltalake(out, reader, partition_by=[DAY])
