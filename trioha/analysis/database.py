"""A database for the time of an analysis: DuckDB in this process, over tables, Arrow and Parquet.

Memory is bounded by `MEMORY_BYTES`; what needs more goes to disk, to a directory that is removed at
the end. DuckDB takes as many threads as there are processors.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from trioha.analysis.engine import ROWS_MAX
from trioha.analysis.schema import AnalysisError, ColumnType, TableSchema

MEMORY_BYTES = 512 << 20
_SETTINGS = {
    "default_null_order": "'nulls_first_on_asc_last_on_desc'",  # Spark's order
    "memory_limit": f"'{MEMORY_BYTES}B'",
    "preserve_insertion_order": "false",
    "enable_progress_bar": "false",
    "enable_external_file_cache": "false",  # the system has its own
}


class Database:
    """DuckDB, whose files lie in a directory of its own below `scratch`, or TMPDIR.

    Errors: AnalysisError, one sentence: a query that DuckDB refuses, no room on the disk.
    Cancellation: Ctrl-C interrupts a running query.
    """

    def __init__(self, scratch: Path | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="trioha-analyze-", dir=scratch))
        self._db = duckdb.connect()
        spills = self.directory / "duckdb"
        for name, value in (_SETTINGS | {"temp_directory": _text(str(spills))}).items():
            self._db.execute(f"SET {name} = {value}")
        self._db.execute(f"SET threads = {len(os.sched_getaffinity(0))}")
        # IPv6 hosts hold colons too: the port is what stands behind the last.
        self._db.execute("CREATE MACRO host_of(address) AS regexp_replace(address, ':[0-9]+$', '')")

    def close(self) -> None:
        """Remove the database. Idempotent."""
        self._db.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The rows of one SELECT; more than `ROWS_MAX` are an error."""
        try:
            cursor = self._db.execute(sql)
            rows = cursor.fetchmany(ROWS_MAX + 1)
        except (duckdb.Error, RuntimeError) as error:
            raise self._explained(error, sql) from error
        if len(rows) > ROWS_MAX:
            raise AnalysisError(f"a query has more than {ROWS_MAX} rows; aggregate in SQL: {sql}")
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def arrow(self, sql: str) -> pa.Table:
        """The rows of one SELECT, however many."""
        try:
            return self._db.execute(sql).to_arrow_table()
        except (duckdb.Error, RuntimeError) as error:
            raise self._explained(error, sql) from error

    def create(self, name: str, select: str) -> None:
        """A table of what a SELECT returns, in place of an older one."""
        self._execute(f"CREATE OR REPLACE TABLE {name} AS {select}")

    def hold(self, name: str, rows: pa.Table) -> None:
        """Let queries read these rows under a name, without a copy."""
        self._db.register(name, rows)

    def view(self, schema: TableSchema, names: Sequence[str], files: Sequence[Path]) -> None:
        """A view of Parquet files under the schema's name; empty when there is no file."""
        columns = ", ".join(f"{_column(schema, name)} AS {name}" for name in names)
        if files:
            paths = ", ".join(_text(str(path)) for path in files)
            source = f"SELECT {columns} FROM read_parquet([{paths}])"
        else:
            nulls = ", ".join(f"NULL AS {name}" for name in names)
            source = f"SELECT {columns} FROM (SELECT {nulls}) AS nothing WHERE FALSE"
        self._execute(f"CREATE OR REPLACE VIEW {schema.name} AS {source}")

    def _execute(self, sql: str) -> None:
        try:
            self._db.execute(sql)
        except (duckdb.Error, RuntimeError) as error:
            raise self._explained(error, sql) from error

    def _explained(self, error: Exception, sql: str) -> BaseException:
        text = str(error).strip()
        if isinstance(error, duckdb.InterruptException) or "interrupted" in text:
            return KeyboardInterrupt()
        if "No space left" in text or isinstance(error, duckdb.IOException):
            return AnalysisError(
                f"no room for the temporary database in {self.directory.parent};"
                f" make room on that disk, or choose another --out ({text.splitlines()[0]})"
            )
        what = text.splitlines()[0] if text else type(error).__name__
        return AnalysisError(f"a query of a report failed: {what}: {' '.join(sql.split())}")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _column(schema: TableSchema, name: str) -> str:
    """Numbers are 64 bits wide. Times are held: no sum or difference of two overflows."""
    kind = schema.type_of(name)
    return f"CAST({name} AS {_TYPES.get(kind, kind.value)})"


_TYPES = {
    ColumnType.INT: "BIGINT",
    ColumnType.STRING: "VARCHAR",
    ColumnType.BINARY: "BLOB",
    ColumnType.TEXT_MAP: "MAP(VARCHAR, VARCHAR)",
}
