"""Segments that Spark itself has read: from object storage, HDFS, or whatever else it can reach."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udtf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.udtf import UserDefinedTableFunction

from trioha.analysis import schema as tables
from trioha.analysis.log_source import MemorySource
from trioha.analysis.scan import Detail, ScanFilter, scan_source
from trioha.analysis.spark.arrow_batches import rows_to_arrow, to_arrow
from trioha.analysis.store_files import CorruptRow, LogSplit, Segment, dialect_of

_TABLES = {
    "headers": tables.COMMITLOG,
    "full": tables.COMMITLOG_FULL,
    "corrupt": tables.COMMITLOG_CORRUPT,
}


def scan_files(
    files: DataFrame, table: str, columns: tuple[str, ...], filters: ScanFilter | None
) -> DataFrame:
    """See `trioha.analysis.spark.commitlog_from_binary_files`."""
    if table not in _TABLES:
        raise ValueError(f"table {table!r} is none of {', '.join(_TABLES)}")
    rows_of = _TABLES[table]
    names = columns or rows_of.spark_names
    unknown = [name for name in names if name not in rows_of.spark_names]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no column of {rows_of.name}")
    ddl = rows_of.spark_ddl(names)
    # Here, because only a driver can read DDL.
    schema = to_arrow_schema(cast("StructType", StructType.fromDDL(ddl)), timezone="UTC")

    # Not mapInArrow: that asks for pandas, which nothing here needs.
    class ScanFiles:
        def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            for path, content in zip(batch.column(0), batch.column(1), strict=True):
                yield from _scan_file(path.as_py(), content.as_py(), table, schema, filters)

    scan = cast("UserDefinedTableFunction", arrow_udtf(ScanFiles, returnType=ddl))
    return scan(files.select("path", "content").asTable())


def _scan_file(
    path: str, content: bytes, table: str, schema: pa.Schema, filters: ScanFilter | None
) -> Iterator[pa.RecordBatch]:
    store, name = posixpath.split(path)
    if not name.isdecimal():
        return  # a checkpoint, a config file
    is_dledger = bool(dialect_of(content))
    size = len(content)
    segment = Segment(path, int(name), size, size, is_dledger, is_tail=True)
    detail: Detail = "headers" if table == "headers" else "full"
    split = LogSplit(store, segment, 0, size)
    for batch in scan_source(MemorySource(content), split, columns=detail, filters=filters):
        if table == "corrupt":
            if batch.corrupt:
                yield _corrupt_rows(batch.corrupt, schema)
        elif batch.row_count:
            yield to_arrow(batch, _TABLES[table], schema)


def _corrupt_rows(rows: list[CorruptRow], schema: pa.Schema) -> pa.RecordBatch:
    columns = {
        name: [getattr(row, name) for row in rows] for name in tables.COMMITLOG_CORRUPT.names
    }
    return rows_to_arrow(columns, tables.COMMITLOG_CORRUPT, schema)
