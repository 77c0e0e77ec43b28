"""What a report says of several stores in the same words, said once for people.

Stores of one broker hold the same messages, so most lines would stand there once for each. JSON and
Parquet keep a row for each store.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import attrs

from trioha.analysis.results import Chart, Finding, Report, Series, Table

_STORE = "store"
T = TypeVar("T")
_Key = TypeVar("_Key", bound=Hashable)


def folded(report: Report, stores: Sequence[str]) -> Report:
    """The report with equal findings, rows and lines of several stores as one."""
    if len(stores) < 2:
        return report
    return attrs.evolve(
        report,
        findings=_findings(report.findings, stores),
        tables=[_table(table, stores) for table in report.tables],
        charts=[_chart(chart, stores) for chart in report.charts],
    )


def _findings(findings: Sequence[Finding], stores: Sequence[str]) -> list[Finding]:
    told = []
    for each in findings:
        store, rest = _told_store(each.text, stores)
        told.append(((each.severity, rest), store))
    return [Finding(severity, _joined(rest, found)) for (severity, rest), found in _grouped(told)]


def _told_store(text: str, stores: Sequence[str]) -> tuple[str, str]:
    """The one store that a sentence begins with, and the rest; no store, and the whole."""
    named = [store for store in stores if store in text]
    longest = max(named, key=len, default="")
    if longest and text.startswith((f"{longest}: ", f"{longest} ")):
        rest = text[len(longest) :]
        if not any(store in rest for store in stores):
            return longest, rest
    return "", text


def _joined(rest: str, stores: Sequence[str]) -> str:
    named = list(dict.fromkeys(store for store in stores if store))
    if len(named) < 2:
        return "".join(named) + rest
    return _and(named) + rest if rest.startswith(":") else f"Each of {_and(named)}{rest}"


def _named(found: Sequence[str], stores: Sequence[str]) -> str:
    """The stores of a row or a line."""
    names = list(dict.fromkeys(found))
    return f"all {len(stores)} stores" if set(names) == set(stores) else _and(names)


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _table(table: Table, stores: Sequence[str]) -> Table:
    places = [place for place, column in enumerate(table.columns) if column.name == _STORE]
    if len(places) != 1:
        return table
    (place,) = places
    told = [((*row[:place], *row[place + 1 :]), str(row[place])) for row in table.rows]
    rows = [(*rest[:place], _named(found, stores), *rest[place:]) for rest, found in _grouped(told)]
    return attrs.evolve(table, rows=rows)


def _chart(chart: Chart, stores: Sequence[str]) -> Chart:
    told = []
    for series in chart.series:
        store = next((each for each in stores if series.label.endswith(each)), "")
        told.append(((series.label.removesuffix(store), tuple(series.points)), store))
    lines = [
        Series(label + _named(found, stores), list(points))
        for (label, points), found in _grouped(told)
    ]
    return attrs.evolve(chart, series=lines)


def _grouped(told: Iterable[tuple[_Key, T]]) -> list[tuple[_Key, list[T]]]:
    """Values by key, in the order in which the keys came."""
    groups: dict[_Key, list[T]] = {}
    for key, value in told:
        groups.setdefault(key, []).append(value)
    return list(groups.items())
