"""Spark's ways into stores and journals: formats for `spark.read.format(…)`.

The extra `spark` is needed by these functions, not by the package: `trioha doctor` looks at Java
without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import DataFrame, SparkSession

    from trioha.analysis.scan import ScanFilter


def register(spark: SparkSession) -> None:
    """Make the sources known to a session; nothing else about it changes.

    Errors: AnalysisError when the Python that Spark starts here cannot import them.
    """
    from pyspark.errors import PySparkAttributeError

    from trioha.analysis.spark.java import check_worker_python
    from trioha.analysis.spark.sources import SOURCES

    with suppress(PySparkAttributeError):  # Spark Connect: its workers are elsewhere
        check_worker_python(spark.sparkContext.pythonExec)
    for source in SOURCES:
        spark.dataSource.register(source)


def commitlog_from_binary_files(
    files: DataFrame,
    table: str = "headers",
    *,
    columns: Iterable[str] = (),
    filters: ScanFilter | None = None,
    filesystem: FileSystem | None = None,
) -> DataFrame:
    """Rows of segments in a DataFrame of Spark's format ``binaryFile`` (columns path and length).

    `table` is headers, full or corrupt. Tasks read the files themselves, in ranges of 64 MiB and
    4 MiB at a time: a task stays below 512 MiB, however large a segment is. `filesystem` is what
    they read with; without it Arrow finds one by the path (s3a, hdfs, gs, file, …), with the
    credentials of the workers' environment. Each file is judged by itself, so the end of one
    without a blank counts as the end of the log, and a missing segment is not reported.

    Errors: ValueError when `table` or a column is unknown.
    """
    from trioha.analysis.spark import binary_files

    return binary_files.scan_files(files, table, tuple(columns), filters, filesystem)
