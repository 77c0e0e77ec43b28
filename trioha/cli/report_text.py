"""Reports on a terminal: findings first, then tables as wide as the terminal allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioha.analysis.page.formats import format_value
from trioha.analysis.results import Column, Report, Table
from trioha.shown import shown

ROWS_SHOWN = 10
_WIDTH_MIN = 8
"""A text column is not squeezed below it."""
_GAP = "  "
Line = tuple[str, Mapping[str, Any]]
"""Text, and how `print_styled` prints it."""
_COLOURS = {"warning": "yellow", "error": "red"}


def report_lines(report: Report, width: int | None) -> Iterator[Line]:
    """`width` in columns; None for as wide as it comes (a pipe)."""
    yield f"== {shown(report.title)}", {"bold": True}
    for finding in report.findings:
        mark = {"info": "-", "warning": "!", "error": "!!"}[finding.severity]
        yield f"{mark} {shown(finding.text)}", {"fg": _COLOURS.get(finding.severity)}
    for table in report.tables:
        if table.rows:
            yield "", {}
            yield from table_lines(table, width)


def table_lines(table: Table, width: int | None) -> Iterator[Line]:
    """Title, head and the first rows; numbers to the right."""
    yield shown(table.title), {"underline": True}
    head = [_head(column) for column in table.columns]
    texts = [
        [
            shown(format_value(value, column.kind))
            for value, column in zip(row, table.columns, strict=True)
        ]
        for row in table.rows[:ROWS_SHOWN]
    ]
    widths = [max(len(line[i]) for line in [head, *texts]) for i in range(len(head))]
    if width is not None:
        widths = _squeezed(widths, [column.kind == "text" for column in table.columns], width)
    for line in [head, *texts]:
        cells = [
            _cut(text, room).ljust(room) if column.kind == "text" else _cut(text, room).rjust(room)
            for text, room, column in zip(line, widths, table.columns, strict=True)
            if room
        ]
        yield _GAP.join(cells).rstrip(), {}
    hidden = sum(1 for room in widths if not room)
    rest = len(table.rows) - len(texts)
    more = [f"{rest} more rows"] if rest else []
    if hidden:
        more.append(f"{hidden} more columns")
    if more:
        yield f"… {' and '.join(more)} in {table.name}.parquet", {}
    if table.note:
        yield shown(table.note), {"dim": True}


def _head(column: Column) -> str:
    unit = f" {column.unit}" if column.unit and column.kind in ("integer", "number") else ""
    return column.name + unit


def _squeezed(widths: Sequence[int], are_texts: Sequence[bool], width: int) -> list[int]:
    """Take from the widest text first; what still does not fit is left out from the right.

    A column left out has the width 0.
    """
    room = list(widths)
    while _total(room) > width:
        texts = [i for i, is_text in enumerate(are_texts) if is_text and room[i] > _WIDTH_MIN]
        if texts:
            widest = max(texts, key=lambda i: room[i])
            room[widest] -= min(room[widest] - _WIDTH_MIN, _total(room) - width)
            continue
        visible = [i for i, size in enumerate(room) if size]
        if len(visible) == 1:
            break
        room[visible[-1]] = 0
    return room


def _total(room: Sequence[int]) -> int:
    visible = [size for size in room if size]
    return sum(visible) + len(_GAP) * (len(visible) - 1)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"
