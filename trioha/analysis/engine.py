"""The seam between reports and what computes: DuckDB in this process, or Spark on any cluster.

Reports speak SQL that both understand. Views, made on first use and only of the stores and the
time window asked for (`trioha.analysis.schema` has the columns):

    commitlog            headers of records
    commitlog_full       and their bodies and properties
    commitlog_corrupt    stretches of the log that are no record
    commitlog_stats      records counted by store, topic, queue_id, minute_ms
    latency_stats        records counted by store, topic, born_host (no port), hour_ms, latency_bin
    size_stats           records counted by store, topic, size_bin
    consumequeue         entries of consume queues
    journal              events of nodes
    journal_corrupt      stretches of journals that are no event

What is portable: integer ``+ - * %``, comparisons, CASE, COALESCE, aggregates, joins, windows,
CTEs. What is not: ``a / b`` (use `quotient`), maps (use `Engine.item`), ports of hosts (use
`Engine.host`). Aliases are not seen in WHERE. Sums and counts are Python ints on both engines.

The three statistics come from ONE scan of the headers: whatever they can answer, ask them, not
`commitlog`. Beside their keys, all BIGINT but the names:

    commitlog_stats      messages, bytes, body_bytes, reconsumed (messages delivered before),
                         compressed (messages), queue_offset_min/max,
                         phy_offset_min/max, store_ms_min/max
    latency_stats        messages, latency_sum_ms, latency_min_ms, latency_max_ms; latency is
                         store_ms - born_ms and may be negative: clocks differ
    size_stats           messages, bytes, size_max; of whole records

Bins are those of `trioha.analysis.reports.bins`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs

from trioha.analysis.schema import AnalysisError, ColumnType, TableSchema

if TYPE_CHECKING:
    from pathlib import Path

    from trioha.analysis.journal_rows import JournalRow
    from trioha.analysis.store_files import LogSplit, StoreFiles

VIEWS = (
    "commitlog",
    "commitlog_full",
    "commitlog_corrupt",
    "commitlog_stats",
    "latency_stats",
    "size_stats",
    "consumequeue",
    "journal",
    "journal_corrupt",
)
ROWS_MAX = 100_000
"""Rows `Engine.query` returns at most: more is an aggregation that was forgotten."""


_WORDS = re.compile(r"[a-z_]+")
T = TypeVar("T")
_SOURCE = re.compile(r"\b(?:from|join)\s+([a-z_]+)", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'")
_EVERYTHING = re.compile(r"(\bselect|\bdistinct|\.|,)\s*\*(?!\s*from\s*\()", re.IGNORECASE)


@attrs.frozen
class Window:
    """Milliseconds since 1970, `from_ms` included, `to_ms` not; None is open."""

    from_ms: int | None = None
    to_ms: int | None = None


class Engine(Protocol):
    """Answers queries over stores and journals, within the time window.

    The window holds for `store_ms` of commitlog views and `wall_ms` of journals. Consume queues
    know no time and are whole.

    Errors: AnalysisError with one sentence.
    Cancellation: KeyboardInterrupt in `query` stops what runs for it, on Spark its jobs too.
    """

    name: str
    """``local`` or ``spark``."""
    stores: Sequence[StoreFiles]
    journal_count: int
    """Number of journals that were given or found."""
    window: Window

    def query(self, sql: str, *, topics: Collection[str] | None = None) -> list[dict[str, Any]]:
        """The rows of one SELECT.

        `topics`: the SELECT itself keeps only records of these, so others need not be read.
        """

    def journal(self, names: Collection[str] | None = None) -> Iterator[JournalRow]:
        """Events in the order written, journal by journal; only those of these names."""

    def index_keys(self, store: StoreFiles) -> Sequence[tuple[LogSplit, Path]]:
        """The store's ranges and, of each, the file of its records' keys; empty if none was made.

        See `trioha.analysis.index_keys`.
        """

    def note(self, text: str) -> None:
        """A sentence for the user about how this came about; shown once, kept in the manifest."""

    def host(self, column: str) -> str:
        """SQL: ``10.0.0.1`` of ``10.0.0.1:10911``."""

    def item(self, column: str, key: str) -> str:
        """SQL: an entry of a map column (`properties`, `fields`) as text; NULL when not there."""


def bucket(column: str, width: int) -> str:
    """SQL: the lower bound of the bucket a number lies in; rightly so below zero too."""
    if width & (width - 1) == 0:  # bits cost less than two remainders
        return f"({column} - ({column} & {width - 1}))"
    return f"({column} - ((({column} % {width}) + {width}) % {width}))"


def quotient(column: str, divisor: int) -> str:
    """SQL: a whole-number quotient, rounded down."""
    return f"CAST({bucket(column, divisor)} / {divisor} AS BIGINT)"


def literal(value: str | int | None) -> str:
    """SQL: a value quoted so that both engines read it as it is."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    # Spark reads backslashes as escapes, DuckDB does not, so the two odd characters go by number.
    pieces = re.split(r"(['\\\\])", value)
    quoted = [f"CHR({ord(text)})" if i % 2 else f"'{text}'" for i, text in enumerate(pieces)]
    return "(" + " || ".join(quoted) + ")" if len(quoted) > 1 else quoted[0]


def literals(values: Collection[str | int]) -> str:
    """SQL: a list for IN; an empty one matches nothing."""
    return "(" + ", ".join(literal(value) for value in values) + ")" if values else "(NULL)"


def views_read(sql: str) -> list[str]:
    """Views that a query reads: those that stand behind a FROM or a JOIN."""
    named = set(_SOURCE.findall(_QUOTED.sub(" ", sql)))
    return [view for view in VIEWS if view in named]


def or_noted(engine: Engine, read: Callable[[], T]) -> T | None:
    """Read a file of a store; return None, and keep a note, if it cannot be read."""
    try:
        return read()
    except AnalysisError as error:
        engine.note(str(error))
        return None


def mentioned_columns(schema: TableSchema, sql: str) -> frozenset[str]:
    """Columns that a query may read: those whose names stand in it; all for ``*``.

    A table needs a column, so a bare COUNT(*) gets the first number.
    """
    sql = _QUOTED.sub(" ", sql)
    if _EVERYTHING.search(sql):
        return frozenset(schema.names)
    words = set(_WORDS.findall(sql.lower()))
    named = frozenset(name for name in schema.names if name in words)
    numbers = (column.name for column in schema.columns if column.type is not ColumnType.STRING)
    return named or frozenset({next(numbers)})


class Progress(Protocol):
    """One piece of work at a time, from `begin` to `end`; who shows it decides how."""

    def begin(self, what: str, total: int, unit: str) -> None:
        """Work starts; `total` counts `unit`s: bytes, or tasks. 0 when nobody knows."""

    def advance(self, count: int, rows: int = 0) -> None:
        """Add `count` units to the work done, and `rows` to the rows in them."""

    def resize(self, total: int) -> None:
        """Change the total: there is more, or less, to do than was said at the beginning."""

    def end(self) -> None:
        """End the display; the work is over, done or not."""


class NoProgress:
    """Shows nothing."""

    def begin(self, what: str, total: int, unit: str) -> None:
        pass

    def advance(self, count: int, rows: int = 0) -> None:
        pass

    def resize(self, total: int) -> None:
        pass

    def end(self) -> None:
        pass
