"""A field of cells, darker for more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trioha.analysis.page.formats import format_value
from trioha.analysis.page.frame import LETTER, WIDTH, Drawing, axis_title, row_name
from trioha.analysis.page.markup import element, text
from trioha.analysis.page.scales import Scale
from trioha.analysis.results import AxisKind, Chart

_ROWS_MAX = 40
_COLUMNS_MAX = 200
_NAME_LETTERS_MAX = 30
_STEPS = 6
_CELL = 20.0
_WRITTEN_WIDTH = 46.0
"""Cells at least so wide have their value written in."""


def draw_heat(chart: Chart, prefix: str) -> Drawing:
    """Cells of (x, y, value) of the first series. Values fall into six shades of equal width."""
    points = chart.series[0].points if chart.series else ()
    xs = _distinct([x for x, _, _ in points], chart.x_kind)
    ys = _distinct([y for _, y, _ in points], chart.y_kind)
    notes = []
    if len(ys) > _ROWS_MAX or len(xs) > _COLUMNS_MAX:
        notes.append(f"The first {_ROWS_MAX} rows and {_COLUMNS_MAX} columns.")
        xs, ys = xs[:_COLUMNS_MAX], ys[:_ROWS_MAX]
    value_kind = _value_kind(chart)
    y_names = [format_value(y, chart.y_kind) for y in ys]
    left = min(_NAME_LETTERS_MAX, max((len(name) for name in y_names), default=3)) * LETTER + 16
    width = (WIDTH - 16 - left) / max(1, len(xs))
    top = 26.0
    columns = {x: left + at * width for at, x in enumerate(xs)}
    rows = {y: top + at * _CELL for at, y in enumerate(ys)}
    known = [value for x, y, value in points if value is not None and x in columns and y in rows]
    most = max(known, default=0)
    body = [element("text", text(chart.y_label), x=4, y=14, class_="label")]
    for y, name in zip(ys, y_names, strict=True):
        body.append(row_name(name, left - 6, rows[y] + 14, _NAME_LETTERS_MAX))
    for x, y, value in points:
        if value is None or x not in columns or y not in rows:
            continue
        shown = format_value(value, value_kind)
        said = f"{format_value(x, chart.x_kind)}, {format_value(y, chart.y_kind)}: {shown}"
        shade = _shade(value, most)
        body.append(
            element(
                "rect",
                element("title", text(said)),
                x=columns[x],
                y=rows[y],
                width=max(1.0, width - 1),
                height=_CELL - 1,
                class_=f"heat-{shade}",
            )
        )
        if width >= _WRITTEN_WIDTH and len(shown) * LETTER < width:
            body.append(
                element(
                    "text",
                    text(shown),
                    x=columns[x] + width / 2,
                    y=rows[y] + 14,
                    text_anchor="middle",
                    class_=f"heat-text-{shade}",
                )
            )
    bottom = top + _CELL * max(1, len(ys))
    body.append(_columns_axis(chart, xs, columns, width, bottom))
    return Drawing("".join(body), bottom + 46, extra_legend=_shades(most, value_kind), notes=notes)


def _distinct(values: Sequence[Any], kind: AxisKind) -> list[Any]:
    """Each value once: categories as they came, others rising."""
    once = list(dict.fromkeys(values))
    return once if kind == "category" else sorted(once)


def _value_kind(chart: Chart) -> str:
    """Return the kind of the cells' values: a heat chart's series label may name it."""
    label = chart.series[0].label if chart.series else ""
    return label if label in ("bytes", "duration", "share") else "number"


def _shade(value: float, most: float) -> int:
    if not most or value <= 0:
        return 0
    return min(_STEPS - 1, 1 + int((_STEPS - 1) * value / most * 0.9999))


def _columns_axis(
    chart: Chart, xs: list[Any], columns: dict[Any, float], width: float, bottom: float
) -> str:
    parts = []
    if chart.x_kind == "time" and len(xs) > 1:
        scale = Scale(
            "time", xs[0], xs[-1], columns[xs[0]] + width / 2, columns[xs[-1]] + width / 2
        )
        names = [(scale.at(value), shown) for value, shown in scale.ticks(8)]
    else:
        names = [(columns[x] + width / 2, format_value(x, chart.x_kind)) for x in xs]
    right = -1e9
    for x, name in names:
        half = len(name) * LETTER / 2
        if x - half > right and x + half <= WIDTH + 2:
            parts.append(element("text", text(name), x=x, y=bottom + 15, text_anchor="middle"))
            right = x + half + 6
    label = axis_title(chart.x_label, chart.x_kind)
    parts.append(
        element(
            "text", text(label), x=WIDTH / 2, y=bottom + 34, text_anchor="middle", class_="label"
        )
    )
    return "".join(parts)


def _shades(most: float, kind: str) -> str:
    if not most:
        return ""
    items = []
    for shade in range(_STEPS):
        high = most * shade / (_STEPS - 1)
        said = "0" if not shade else f"to {format_value(_round(high), kind)}"
        box = element(
            "svg",
            element("rect", x=1, y=1, width=26, height=12, class_=f"heat-{shade}"),
            width=28,
            height=14,
            viewBox="0 0 28 14",
            aria_hidden="true",
        )
        items.append(element("li", box, element("span", text(said))))
    return element("ul", *items, class_="legend")


def _round(value: float) -> float:
    return int(value) if value >= 10 else round(value, 3)
