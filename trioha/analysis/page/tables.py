"""Tables as HTML: numbers right, long ones collapsed to their first rows."""

from __future__ import annotations

import base64

from trioha.analysis.page.csv_text import csv_of
from trioha.analysis.page.formats import format_number, format_time, format_value
from trioha.analysis.page.markup import element, text
from trioha.analysis.results import Column, Table, Value

SHOWN_ROWS = 10
ROWS_MAX = 1_000
"""Rows on the page; the data set has all."""
_TEXT_LETTERS = 22
_RIGHT = {"integer", "number", "duration", "bytes", "share"}


def render_table(table: Table, prefix: str) -> str:
    """A table under its title. Rows beyond the tenth show when a box is ticked; browsers that do
    not know how to hide them show all."""
    if not table.rows:
        return element(
            "section",
            element("h3", text(table.title)),
            element("p", "No rows.", class_="note"),
            class_="table",
        )
    head = element(
        "tr",
        *(
            _head(column, max(len(str(row[at])) for row in table.rows[:ROWS_MAX]))
            for at, column in enumerate(table.columns)
        ),
    )
    rows = [
        element(
            "tr",
            *(_cell(column, value) for column, value in zip(table.columns, row, strict=True)),
            class_="more" if at >= SHOWN_ROWS else None,
        )
        for at, row in enumerate(table.rows[:ROWS_MAX])
    ]
    count = len(table.rows)
    toggle = ""
    notes = [table.note] if table.note else []
    if count > SHOWN_ROWS:
        box = f"{prefix}-all"
        toggle = (
            f'<p class="toggle"><input type="checkbox" id="{box}">'
            f'<label for="{box}">all {format_number(min(count, ROWS_MAX))} rows</label></p>'
        )
    if count > ROWS_MAX:
        notes.append(
            f"The first {format_number(ROWS_MAX)} of {format_number(count)} rows: the data set "
            f"{table.name} has all."
        )
    body = element(
        "div",
        element("table", element("thead", head), element("tbody", *rows)),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=table.title,
    )
    title = element("h3", f"{text(table.title)} {_download(table)}")
    below = [element("p", text(note), class_="note") for note in notes]
    return element("section", title, toggle, body, *below, class_="table")


def _download(table: Table) -> str:
    """A link that saves the table's rows on the page as CSV; the page holds them itself."""
    data = base64.b64encode(csv_of(table, ROWS_MAX)).decode()
    return element(
        "a",
        "CSV",
        href=f"data:text/csv;charset=utf-8;base64,{data}",
        download=f"{table.name}.csv",
        class_="csv",
        aria_label=f"{table.title} as CSV",
    )


def _head(column: Column, letters: int) -> str:
    """A heading. Text may break anywhere, but not into columns of single letters."""
    words = column.name
    for suffix in ("_ms", "_bytes"):
        if column.kind in ("time", "duration", "bytes"):
            words = words.removesuffix(suffix)
    words = words.replace("_", " ")
    unit = "UTC" if column.kind == "time" else column.unit
    if column.kind in ("duration", "bytes", "share", "flag"):
        unit = ""
    shown = text(words) + (element("span", f" {text(unit)}", class_="unit") if unit else "")
    width = (
        f"min-width:calc({min(letters, _TEXT_LETTERS)}ch + 14px)" if column.kind == "text" else None
    )
    return element("th", shown, scope="col", class_=_css(column), style=width)


def _cell(column: Column, value: Value) -> str:
    shown = format_value(value, column.kind)
    exact = None
    if column.kind == "bytes" and value is not None:
        exact = f"{value} B"
    elif column.kind == "duration" and value is not None:
        exact = f"{value} ms"
    elif column.kind == "time" and isinstance(value, (int, float)):
        exact = f"{format_time(value)} UTC ({value} ms)"
    return element("td", text(shown), class_=_css(column), title=exact)


def _css(column: Column) -> str | None:
    return "right" if column.kind in _RIGHT else "when" if column.kind == "time" else None
