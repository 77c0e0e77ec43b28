"""A database on disk for the time of an analysis: tables are filled, queried, and gone.

Memory is bounded by a batch of rows and SQLite's page cache. One thread.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trioha.analysis.engine import ROWS_MAX
from trioha.analysis.schema import AnalysisError, TableSchema
from trioha.analysis.stats import STATS, StatsTable, host_of

_CACHE_KIB = 65_536
_STEPS_BETWEEN_SIGNALS = 200_000
"""Steps of SQLite's machine (a few milliseconds) between two looks at a pending Ctrl-C."""


class Database:
    """SQLite in a directory of its own below `scratch`, or TMPDIR.

    Errors: AnalysisError, one sentence: a query that SQLite refuses, no room on the disk.
    Cancellation: Ctrl-C interrupts a running query.
    """

    def __init__(self, scratch: Path | None = None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="trioha-analyze-", dir=scratch))
        self._db = sqlite3.connect(self._directory / "views.sqlite", isolation_level=None)
        # Nothing here outlives the process: no journal, no fsync.
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._db.create_function("HOST_OF", 1, _host_or_none, deterministic=True)
        # SQLite runs without Python: only this call lets a pending Ctrl-C be seen, and stop it.
        self._db.set_progress_handler(lambda: 0, _STEPS_BETWEEN_SIGNALS)

    def close(self) -> None:
        """Remove the database. Idempotent."""
        self._db.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def query(self, sql: str) -> list[dict[str, Any]]:
        """The rows of one SELECT; more than `ROWS_MAX` are an error."""
        try:
            cursor = self._db.execute(sql)
            rows = cursor.fetchmany(ROWS_MAX + 1)
        except sqlite3.Error as error:
            raise self._explained(error, sql) from error
        if len(rows) > ROWS_MAX:
            raise AnalysisError(f"a query has more than {ROWS_MAX} rows; aggregate in SQL: {sql}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def create(self, schema: TableSchema, names: Iterable[str] | None = None) -> None:
        """An empty table of these columns, all of the schema's if none is named."""
        columns = ", ".join(
            f'"{name}" {schema.type_of(name).sqlite}' for name in names or schema.names
        )
        self._execute(f"DROP TABLE IF EXISTS {schema.name}")
        self._execute(f"CREATE TABLE {schema.name} ({columns})")

    def add(self, table: str, width: int, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows of so many values, in one transaction."""
        sql = f"INSERT INTO {table} VALUES ({', '.join('?' * width)})"
        self._execute("BEGIN")
        try:
            self._db.executemany(sql, rows)
        except sqlite3.Error as error:
            raise self._explained(error, sql) from error
        finally:
            # There is no journal to roll back with: who asked makes a broken table anew.
            self._execute("COMMIT")

    def create_statistics(self) -> None:
        """Empty tables for the pieces of all statistics."""
        for table in STATS.values():
            self.create(_partial(table))

    def add_statistics(self, name: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """A piece of one statistic."""
        self.add(_partial(STATS[name]).name, len(STATS[name].columns), rows)

    def merge_statistics(self) -> None:
        """Make the statistics' tables of all pieces."""
        for table in STATS.values():
            source = _partial(table).name
            self._execute(f"DROP TABLE IF EXISTS {table.name}")
            merged = table.merge_sql.format(source=source)
            self._execute(f"CREATE TABLE {table.name} AS {merged}")
            self._execute(f"DROP TABLE {source}")

    def _execute(self, sql: str) -> None:
        try:
            self._db.execute(sql)
        except sqlite3.Error as error:
            raise self._explained(error, sql) from error

    def _explained(self, error: sqlite3.Error, sql: str) -> BaseException:
        text = str(error)
        if "interrupted" in text:
            return KeyboardInterrupt()
        if "full" in text or "disk I/O" in text:
            return AnalysisError(
                f"no room for the temporary database in {self._directory.parent};"
                " make room on that disk, or choose another --out"
            )
        return AnalysisError(f"a query of a report failed: {text}: {' '.join(sql.split())}")


def _partial(table: StatsTable) -> TableSchema:
    return TableSchema(f"{table.name}_partial", table.schema.columns)


def _host_or_none(address: str | None) -> str | None:
    return None if address is None else host_of(address)
