"""The tables of the analysis: names and types of their columns, one place for every engine.

Times are BIGINT milliseconds since 1970 (portable); Spark's sources add TIMESTAMP twins named
without `_ms`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

from trioha.errors import TriohaError
from trioha.wire.properties import Property


class AnalysisError(TriohaError):
    """Failure of an analysis; the text names the cause and the cure."""


class NothingHere(AnalysisError):
    """A directory is none of what was asked for. It may hold such directories."""


class ColumnType(Enum):
    """A column's type, by its Spark SQL name."""

    STRING = "STRING"
    INT = "INT"
    BIGINT = "BIGINT"
    BOOLEAN = "BOOLEAN"
    BINARY = "BINARY"
    TEXT_MAP = "MAP<STRING,STRING>"
    TIMESTAMP = "TIMESTAMP"


@attrs.frozen
class TableColumn:
    name: str
    type: ColumnType


@attrs.frozen
class TableSchema:
    """One table. `twins` are the TIMESTAMP columns that Spark adds: name -> column of its ms."""

    name: str
    columns: tuple[TableColumn, ...]
    twins: tuple[tuple[str, str], ...] = ()
    nullable: frozenset[str] = frozenset()
    """Columns that may be NULL, as twins always may. Spark checks none but these, row by row."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def type_of(self, name: str) -> ColumnType:
        """Type of a column or twin.

        Errors: KeyError when there is none of this name.
        """
        for column in self.columns:
            if column.name == name:
                return column.type
        if name in dict(self.twins):
            return ColumnType.TIMESTAMP
        raise KeyError(name)

    def may_be_null(self, name: str) -> bool:
        return name in self.nullable or name in dict(self.twins)

    @property
    def spark_names(self) -> tuple[str, ...]:
        return (*self.names, *(name for name, _ in self.twins))

    def spark_ddl(self, names: tuple[str, ...] = ()) -> str:
        """The columns, or the named ones of them, as Spark's DDL text."""
        return ", ".join(
            f"`{name}` {self.type_of(name).value}{'' if self.may_be_null(name) else ' NOT NULL'}"
            for name in names or self.spark_names
        )


def _table(name: str, columns: str, nullable: str = "", **twins: str) -> TableSchema:
    pairs = [line.rsplit(" ", 1) for line in columns.splitlines() if line.strip()]
    return TableSchema(
        name,
        tuple(TableColumn(column.strip(), ColumnType[kind]) for column, kind in pairs),
        tuple(twins.items()),
        frozenset(nullable.split()),
    )


_HEADERS = """
    store STRING
    segment STRING
    phy_offset BIGINT
    size INT
    topic STRING
    queue_id INT
    queue_offset BIGINT
    flag INT
    sys_flag INT
    born_ms BIGINT
    born_host STRING
    store_ms BIGINT
    store_host STRING
    reconsume_times INT
    prepared_offset BIGINT
    body_crc INT
    body_size INT
    properties_size INT
    term BIGINT
    entry_index BIGINT
"""

_ENTRY = "term entry_index"

COMMITLOG: Final = _table("commitlog", _HEADERS, _ENTRY, born_time="born_ms", store_time="store_ms")
"""One row per record. `term` and `entry_index` are NULL outside DLEDGER stores."""

COMMITLOG_FULL: Final = _table(
    "commitlog_full",
    _HEADERS
    + """
    tags STRING
    keys STRING
    unique_key STRING
    properties TEXT_MAP
    body BINARY
    crc_ok BOOLEAN
    digest BIGINT
""",
    f"{_ENTRY} tags keys unique_key",
    born_time="born_ms",
    store_time="store_ms",
)
"""`keys` is the property as it stands, keys separated by blanks; `body` is not decompressed;
`digest` is a CRC-32 of every byte of the record."""

PROPERTY_COLUMNS: Final = {
    name: f"property_{name.lower()}"
    for name in (
        Property.COPIED,
        Property.DELAY,
        Property.ORIGIN_MESSAGE_ID,
        Property.REAL_TOPIC,
        Property.RETRY_TOPIC,
        Property.TIMER_DEQUEUE_MS,
        Property.TIMER_ROLL_TIMES,
        Property.TRANSACTION_CHECK_TIMES,
    )
}
"""Properties that reports ask of every record, and their columns in `DECODED`."""

_OF_REPORTS = (*PROPERTY_COLUMNS.values(), "op_places")

DECODED: Final = attrs.evolve(
    COMMITLOG_FULL,
    columns=(
        *COMMITLOG_FULL.columns,
        *(TableColumn(name, ColumnType.STRING) for name in _OF_REPORTS),
    ),
    nullable=COMMITLOG_FULL.nullable.union(_OF_REPORTS),
)
"""`commitlog_full` of the local engine: what reports need of properties and bodies is in columns
of its own, so that a log is decoded once. `op_places` is the body of a record of the op topic."""

COMMITLOG_CORRUPT: Final = _table(
    "commitlog_corrupt",
    """
    store STRING
    segment STRING
    phy_offset BIGINT
    length BIGINT
    reason STRING
""",
)
"""Stretches of the log that are no sound record. A record whose body does not match its checksum
stands here and, with `crc_ok` false, in `commitlog_full`."""

CONSUMEQUEUE: Final = _table(
    "consumequeue",
    """
    store STRING
    topic STRING
    queue_id INT
    queue_offset BIGINT
    phy_offset BIGINT
    size INT
    tags_code BIGINT
""",
)

JOURNAL: Final = _table(
    "journal",
    """
    node STRING
    source STRING
    sequence BIGINT
    wall_ms BIGINT
    name STRING
    level STRING
    fields TEXT_MAP
""",
    time="wall_ms",
)
"""`node` as the file's head names it; `source` is the file; `level` debug, info, warning, error."""

JOURNAL_CORRUPT: Final = _table(
    "journal_corrupt",
    """
    source STRING
    position BIGINT
    length BIGINT
    reason STRING
""",
)

TABLES: Final = {
    table.name: table
    for table in (
        COMMITLOG,
        COMMITLOG_FULL,
        COMMITLOG_CORRUPT,
        CONSUMEQUEUE,
        JOURNAL,
        JOURNAL_CORRUPT,
    )
}
