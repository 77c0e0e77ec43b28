"""Results of a report: the values of its tables, Parquet files, JSON and HTML page.

A report is small: its rows are counted in hundreds, whatever the size of the stores. Times are
milliseconds since 1970 (UTC), sizes bytes, shares 0 to 1; `None` means not known.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, cast

import attrs

if TYPE_CHECKING:
    from trioha.analysis.engine import Engine

ColumnKind = Literal["text", "integer", "number", "time", "duration", "bytes", "share", "flag"]
"""text: str · integer: int · number: float · time: ms since 1970 · duration: ms · bytes: int ·
share: 0 to 1 · flag: bool."""

ChartKind = Literal["line", "bar", "histogram", "timeline", "heat"]

AxisKind = Literal["time", "number", "category", "bytes", "duration"]

Severity = Literal["info", "warning", "error"]

Value = str | int | float | bool | None


@attrs.frozen
class Column:
    """A column of a table. `name` is its name in Parquet and JSON (snake_case, unit last)."""

    name: str
    unit: str = ""
    """Unit for people: ``B``, ``ms``, ``msg/s``; empty when the kind says it."""
    kind: ColumnKind = "text"


@attrs.frozen
class Table:
    """Rows under columns. `name` is a file's name and unique within its report."""

    name: str
    title: str
    columns: list[Column]
    rows: list[tuple[Value, ...]]
    note: str = ""
    """Bounds of its figures, and what else a reader must know of them."""


@attrs.frozen
class Series:
    """One line, set of bars, or lane of a chart. What a point is depends on the chart's kind:

    line        (x, y); y None breaks the line; x milliseconds since 1970 on a time axis
    bar         (category, y)
    histogram   (from, below, count)
    timeline    (begin_ms, end_ms or None for still, text); the series is a lane; a fourth value
                is its kind in the legend, where that is not the text
    heat        (x, y, value)
    """

    label: str
    points: Sequence[tuple[Any, ...]]


@attrs.frozen(kw_only=True)
class Chart:
    """A picture of a few series, with what its axes mean and a sentence on what it shows."""

    title: str
    kind: ChartKind
    x_label: str
    y_label: str
    series: list[Series]
    note: str = ""
    x_kind: AxisKind = "number"
    y_kind: AxisKind = "number"
    kinds: Sequence[str] = ()
    """Kinds of a timeline, in the order of the legend and its colours; others follow."""


@attrs.frozen
class Finding:
    """One sentence worth reading first."""

    severity: Severity
    text: str

    @classmethod
    def info(cls, text: str) -> Self:
        return cls("info", text)

    @classmethod
    def warning(cls, text: str) -> Self:
        return cls("warning", text)

    @classmethod
    def error(cls, text: str) -> Self:
        return cls("error", text)


@attrs.frozen(kw_only=True)
class Report:
    """One question answered. `exit_code` is 1 when it found what an operator must act upon."""

    name: str
    title: str
    question: str
    tables: list[Table] = attrs.field(factory=list)
    charts: list[Chart] = attrs.field(factory=list)
    findings: list[Finding] = attrs.field(factory=list)
    exit_code: int = 0
    told_by: str = ""
    """Report with the same errors and warnings: the head of a page with both leaves these out."""


@attrs.frozen(kw_only=True)
class ReportOptions:
    """Options of the command line for all reports."""

    now_ms: int
    """Time at which the analysis began; "ago" and "still" are measured against it."""
    key: str | None = None
    message_id: str | None = None
    top: int = 20
    """Rows of "the largest" tables."""


class ReportModule(Protocol):
    """Interface of a module in `trioha.analysis.reports`."""

    NEEDS: frozenset[str]
    """Names of views, ``journal``, ``two stores``, ``key or id``; without them it is skipped."""

    def run(self, engine: Engine, options: ReportOptions) -> Report: ...


@attrs.frozen
class ReportSpec:
    """An entry of the registry: enough for help and lists, without importing the report."""

    name: str
    title: str
    question: str

    @property
    def heading(self) -> dict[str, Any]:
        """The fields of `Report` that say which report it is."""
        return attrs.asdict(self)

    def load(self) -> ReportModule:
        module = importlib.import_module(f"trioha.analysis.reports.{self.name}")
        return cast("ReportModule", module)
