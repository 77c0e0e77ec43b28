"""Segments that lie where Spark can list them and Arrow can read them: object storage, HDFS.

Theory of operation. Spark's binaryFile would hold a whole segment, 1 GiB as a rule, in the JVM and
copy it twice on its way to Python. So its column `content` is not asked for: path and length are
cut into ranges of 64 MiB, and the task that has a range reads it 4 MiB at a time. A record
belongs to the range in which it begins, as in a store on disk.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
from pyarrow.fs import FileSystem
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udtf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.udtf import UserDefinedTableFunction

from trioha.analysis import schema as tables
from trioha.analysis.arrow_batches import rows_to_arrow, to_arrow
from trioha.analysis.remote import RemoteSource, located
from trioha.analysis.scan import Detail, ScanFilter, scan_source
from trioha.analysis.store_files import SPLIT_BYTES, CorruptRow, LogSplit, Segment, dialect_of

_TABLES = {
    "headers": tables.COMMITLOG,
    "full": tables.COMMITLOG_FULL,
    "corrupt": tables.COMMITLOG_CORRUPT,
}


_HEAD_BYTES = 4096
_TASKS_PER_CORE = 2


def scan_files(
    files: DataFrame,
    table: str,
    columns: tuple[str, ...],
    filters: ScanFilter | None,
    filesystem: FileSystem | None,
    split_bytes: int = SPLIT_BYTES,
) -> DataFrame:
    """See `trioha.analysis.spark.commitlog_from_binary_files`."""
    if table not in _TABLES:
        raise ValueError(f"table {table!r} is none of {', '.join(_TABLES)}")
    rows_of = _TABLES[table]
    names = columns or rows_of.spark_names
    unknown = [name for name in names if name not in rows_of.spark_names]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no column of {rows_of.name}")
    lacking = [name for name in ("path", "length") if name not in files.columns]
    if lacking:
        raise ValueError(
            f"the files have no column {' and '.join(lacking)}: give what "
            'spark.read.format("binaryFile").load(...) returns'
        )
    ddl = rows_of.spark_ddl(names)
    # Here, because only a driver can read DDL.
    schema = to_arrow_schema(cast("StructType", StructType.fromDDL(ddl)), timezone="UTC")

    # Not mapInArrow: that asks for pandas, which nothing here needs.
    class ScanFiles:
        def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            for path, length, begin in zip(*batch.columns, strict=True):
                yield from scan_range(path.as_py(), length.as_py(), begin.as_py())

    def scan_range(path: str, length: int, begin: int) -> Iterator[pa.RecordBatch]:
        store, name = posixpath.split(path)
        if not name.isdecimal():
            return  # a checkpoint, a config file
        with RemoteSource(*located(path, filesystem), length) as source:
            is_dledger = bool(dialect_of(source.read(0, _HEAD_BYTES)))
            segment = Segment(path, int(name), length, length, is_dledger, is_tail=True)
            split = LogSplit(store, segment, begin, min(begin + split_bytes, length))
            detail: Detail = "headers" if table == "headers" else "full"
            for batch in scan_source(
                source, split, columns=detail, filters=filters, checks_bodies=table == "corrupt"
            ):
                if table == "corrupt":
                    if batch.corrupt:
                        yield _corrupt_rows(batch.corrupt, schema)
                elif batch.row_count:
                    yield to_arrow(batch, _TABLES[table], schema)

    scan = cast("UserDefinedTableFunction", arrow_udtf(ScanFiles, returnType=ddl))
    begins = f"explode(sequence(0L, length - 1, {split_bytes}L)) AS begin"
    ranges = files.where("length > 0").selectExpr("path", "length", begins)
    # Else all ranges of a segment would be one task's.
    tasks = _TASKS_PER_CORE * files.sparkSession.sparkContext.defaultParallelism
    return scan(ranges.repartition(tasks).asTable())


def _corrupt_rows(rows: list[CorruptRow], schema: pa.Schema) -> pa.RecordBatch:
    columns = {
        name: [getattr(row, name) for row in rows] for name in tables.COMMITLOG_CORRUPT.names
    }
    return rows_to_arrow(columns, tables.COMMITLOG_CORRUPT, schema)
