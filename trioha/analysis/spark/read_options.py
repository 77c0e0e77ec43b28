"""Options of the sources, and filters that Spark pushes down, as one `ScanFilter`.

Names follow the Kafka connector where it has the notion (`minPartitions`, `maxBytesPerTrigger`,
`startingOffsets`, `failOnDataLoss`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import attrs
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from trioha.analysis.arrow_batches import MS_END, MS_FIRST
from trioha.analysis.open_source import is_remote
from trioha.analysis.scan import ScanFilter
from trioha.analysis.schema import AnalysisError, ColumnType, TableSchema
from trioha.analysis.spark.places import (
    EARLIEST,
    ENDING,
    LATEST,
    STARTING,
    ReadPlace,
    microseconds,
    place_of,
    time_option,
)
from trioha.analysis.store_files import SPLIT_BYTES

_SPLIT_BYTES_MIN = 4096
_SPLIT_BYTES_MAX = 4 * SPLIT_BYTES
"""A task costs Spark a quarter to a half of what reading 64 MiB does (docs/benchmarks.md). It reads
a few MiB at a time, however many it has."""
_TASKS = 8
"""Tasks for which a log is split, before they become larger than `SPLIT_BYTES`."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@attrs.frozen(kw_only=True)
class ReadOptions:
    """Options given by `.option(…)`."""

    paths: tuple[str, ...]
    columns: tuple[str, ...] = ()
    filters: ScanFilter
    split_bytes: int | None = None
    """Bytes of a task; None leaves them to the size of what is read."""
    partitions_min: int = 1
    starting: ReadPlace = ReadPlace(STARTING[0], EARLIEST)
    ending: ReadPlace = ReadPlace(ENDING[0], LATEST)
    pushes_filters: bool = False
    """Take filters of the query over: safe only when the DataFrame is scanned once."""

    def task_bytes(self, total: int) -> int:
        """Bytes of each task, so that there are as many tasks as were asked for."""
        wanted = self.split_bytes or min(max(SPLIT_BYTES, total // _TASKS), _SPLIT_BYTES_MAX)
        return max(1, min(wanted, -(-total // self.partitions_min)))


PATHS = ("path", "paths")
"""Options into which Spark puts the argument of `load`."""
READING = (*PATHS, "columns", "splitBytes", "minPartitions")
BY_TOPIC = ("topic", "pushFilters")
BY_TIME = ("from", "to")
BY_OFFSET = (*STARTING, *ENDING)
FOLLOWING = ("maxBytesPerTrigger", "failOnDataLoss")


def check_names(options: Mapping[str, str], known: Collection[str], what: str) -> None:
    """Errors: AnalysisError with the nearest name when an option is none of `known`."""
    names = {name.lower(): name for name in known}
    shown = [name for name in known if name not in PATHS]
    for name in options:
        if name.lower() not in names:
            near = get_close_matches(name.lower(), [each.lower() for each in shown], 1)
            cure = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(shown)}"
            raise AnalysisError(f"{what} has no option {name}; {cure}")


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """The options of a read.

    Errors: AnalysisError naming the option that is wrong.
    """
    topics = [topic.strip() for topic in options.get("topic", "").split(",") if topic.strip()]
    return ReadOptions(
        paths=_paths(options),
        columns=column_names(options),
        filters=ScanFilter(
            topics=frozenset(topics) if topics else None,
            store_ms_from=time_option(options, "from"),
            store_ms_to=time_option(options, "to"),
        ),
        split_bytes=(
            max(_SPLIT_BYTES_MIN, size_option(options, "splitBytes", SPLIT_BYTES))
            if options.get("splitBytes") is not None
            else None
        ),
        partitions_min=size_option(options, "minPartitions", 1),
        starting=place_of(options, STARTING, EARLIEST),
        ending=place_of(options, ENDING, LATEST),
        pushes_filters=options.get("pushFilters", "").strip().lower() == "true",
    )


def column_names(options: Mapping[str, str]) -> tuple[str, ...]:
    """The option `columns`: names with commas between them."""
    return tuple(name.strip() for name in options.get("columns", "").split(",") if name.strip())


def schema_of(table: TableSchema, options: Mapping[str, str]) -> str:
    """DDL of the columns asked for.

    Errors: AnalysisError when one is not of the table.
    """
    names = column_names(options)
    for name in names:
        if name not in table.spark_names:
            raise AnalysisError(
                f"option columns: {name!r} is no column of {table.name}; "
                f"there are {', '.join(table.spark_names)}"
            )
    return table.spark_ddl(names)


def size_option(options: Mapping[str, str], name: str, default: int) -> int:
    """A count or a size like 64m.

    Errors: AnalysisError when it is neither.
    """
    text = options.get(name, "").strip().lower()
    if not text:
        return default
    digits = text.rstrip("kmgb")
    unit = text[len(digits) :].removesuffix("b")
    if not digits.isdecimal() or unit not in _UNITS or int(digits) == 0:
        raise AnalysisError(f"option {name}: {text!r} is not a size above 0 like 64m or 1048576")
    return int(digits) * _UNITS[unit]


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    given = [options["path"]] if options.get("path") else []
    if options.get("paths"):  # load() with a list arrives so
        given += json.loads(options["paths"])
    if not given:
        raise AnalysisError("no store is named: give load() its directory, several or a pattern")
    found: list[str] = []
    for path in given:
        if path.startswith("file:"):  # Hadoop says file:/data, others file:///data
            path = "/" + path.removeprefix("file:").lstrip("/")
        is_pattern = has_magic(path) and not is_remote(path) and not Path(path).exists()
        matches = sorted(glob(path)) if is_pattern else [path]
        if not matches:
            raise AnalysisError(f"nothing matches {path}")
        found += [match for match in matches if match not in found]
    return tuple(found)


class PushedFilters:
    """Filters that a reader takes over from Spark, each exactly or not at all."""

    def __init__(self, filters: ScanFilter, table: TableSchema, attributes: frozenset[str]) -> None:
        self.filters = filters
        self._table = table
        self._attributes = attributes

    def take(self, condition: Filter) -> bool:
        """Return whether the reader now applies the condition; False hands it back to Spark."""
        path: Sequence[str] = getattr(condition, "attribute", ())
        if len(path) != 1 or path[0] not in self._attributes:
            return False
        name = path[0]
        kind = self._table.type_of(name)
        if isinstance(condition, IsNotNull):
            return kind is not ColumnType.TIMESTAMP  # the others never are
        if isinstance(condition, In):
            values = [value for value in condition.value if value is not None]
        elif isinstance(
            condition,
            (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual),
        ):
            values = [condition.value]
        else:
            return False
        if not all(_IS_VALUE[kind](value) for value in values):
            return False
        if isinstance(condition, (In, EqualTo, EqualNullSafe)) and name in _SETS:
            self._narrow_set(_SETS[name], frozenset(values))
            return True
        if isinstance(condition, In) or name not in _RANGES:
            return False
        self._narrow_range(_RANGES[name], *_range(condition, kind, values[0]))
        return True

    def _narrow_set(self, name: str, wanted: frozenset[Any]) -> None:
        before = getattr(self.filters, name)
        self._change({name: wanted if before is None else before & wanted})

    def _narrow_range(self, name: str, low: int | None, high: int | None) -> None:
        if low is not None:
            before = getattr(self.filters, f"{name}_from")
            self._change({f"{name}_from": low if before is None else max(low, before)})
        if high is not None:
            before = getattr(self.filters, f"{name}_to")
            self._change({f"{name}_to": high if before is None else min(high, before)})

    def _change(self, changes: Mapping[str, Any]) -> None:
        self.filters = attrs.evolve(self.filters, **changes)


_SETS = {"topic": "topics", "queue_id": "queue_ids"}
_RANGES = {"store_ms": "store_ms", "store_time": "store_ms", "phy_offset": "phy_offset"}
_IS_VALUE: dict[ColumnType, Callable[[Any], bool]] = {
    ColumnType.STRING: lambda value: isinstance(value, str),
    ColumnType.INT: lambda value: isinstance(value, int) and not isinstance(value, bool),
    ColumnType.BIGINT: lambda value: isinstance(value, int) and not isinstance(value, bool),
    ColumnType.TIMESTAMP: lambda value: isinstance(value, datetime) and value.tzinfo is not None,
}


def _range(condition: Filter, kind: ColumnType, value: Any) -> tuple[int | None, int | None]:
    """The half open range of values that meet the condition."""
    scale = 1
    if kind is ColumnType.TIMESTAMP:
        value, scale = microseconds(value), 1000
    at_least = -(-value // scale)
    above = value // scale + 1
    low: int | None = None
    high: int | None = None
    match condition:
        case GreaterThan():
            low = above
        case GreaterThanOrEqual():
            low = at_least
        case LessThan():
            high = at_least
        case LessThanOrEqual():
            high = above
        case _:
            low, high = at_least, above
    if kind is ColumnType.TIMESTAMP:
        # NULL, so no match, beyond what a TIMESTAMP holds.
        low = MS_FIRST if low is None else max(low, MS_FIRST)
        high = MS_END if high is None else min(high, MS_END)
    return low, high
