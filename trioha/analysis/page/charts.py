"""Charts of every kind as inline SVG, each with a description for screen readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trioha.analysis.page.bar_chart import draw_bars, draw_histogram
from trioha.analysis.page.formats import format_value
from trioha.analysis.page.frame import Drawing, figure
from trioha.analysis.page.heat_chart import draw_heat
from trioha.analysis.page.line_chart import draw_lines
from trioha.analysis.page.markup import element, text
from trioha.analysis.page.timeline_chart import draw_timeline
from trioha.analysis.results import Chart, ChartKind

_DRAW: Mapping[ChartKind, Callable[[Chart, str], Drawing]] = {
    "line": draw_lines,
    "bar": draw_bars,
    "histogram": draw_histogram,
    "timeline": draw_timeline,
    "heat": draw_heat,
}
_NAMES: Mapping[ChartKind, str] = {
    "line": "Line chart",
    "bar": "Bar chart",
    "histogram": "Histogram",
    "timeline": "Timeline",
    "heat": "Heat map",
}
_DESCRIBED_MAX = 8


def render_chart(chart: Chart, prefix: str) -> str:
    """One `<figure>`; `prefix` makes its ids unique on the page."""
    if not any(series.points for series in chart.series):
        return element(
            "figure",
            element("figcaption", text(chart.title)),
            element("p", "Nothing to show in this window.", class_="note"),
            class_="chart",
        )
    return figure(chart, prefix, _DRAW[chart.kind](chart, prefix), _describe(chart))


def _describe(chart: Chart) -> str:
    """Describe what the chart shows, and how far each series reaches."""
    parts = [f"{_NAMES[chart.kind]} of {chart.y_label or 'values'} by {chart.x_label or 'x'}."]
    for series in chart.series[:_DESCRIBED_MAX]:
        parts.append(f"{series.label or 'values'}: {_reach(chart, series.points)}.")
    if len(chart.series) > _DESCRIBED_MAX:
        parts.append(f"And {len(chart.series) - _DESCRIBED_MAX} more.")
    return " ".join(parts)


def _reach(chart: Chart, points: object) -> str:
    rows = list(points) if isinstance(points, (list, tuple)) else []
    if chart.kind == "timeline":
        return f"{len(rows)} spans" + (f", the last {rows[-1][2]}" if rows else "")
    values = [row[-1] if chart.kind != "line" else row[1] for row in rows]
    known = [value for value in values if value is not None]
    if not known:
        return "nothing"
    kind = "number" if chart.kind == "heat" else chart.y_kind
    low, high = format_value(min(known), kind), format_value(max(known), kind)
    return f"{len(known)} values from {low} to {high}"
