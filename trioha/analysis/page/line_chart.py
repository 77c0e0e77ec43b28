"""Lines over time or over numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trioha.analysis.page.formats import format_value
from trioha.analysis.page.frame import WIDTH, Drawing, axis_title, margin_of, x_axis, y_axis
from trioha.analysis.page.markup import element, number, text
from trioha.analysis.page.palette import DASHES, SERIES_MAX, marker
from trioha.analysis.page.scales import Scale, linear, over_time
from trioha.analysis.results import Chart, Series

_TOP, _PLOT, _BOTTOM = 34.0, 220.0, 46.0
_MARKED_POINTS_MAX = 40
_COLUMNS = 800
Point = tuple[float, float | None]


def draw_lines(chart: Chart, prefix: str) -> Drawing:
    """Draw up to eight lines; of more, those that reach highest."""
    shown, notes = most_important(chart.series)
    points = [(x, y) for series in shown for x, y, *_ in series.points]
    xs = [x for x, _ in points]
    ys = [y for _, y in points if y is not None]
    bottom = _TOP + _PLOT
    y_scale = linear(chart.y_kind, ys, bottom, _TOP)
    left = margin_of(y_scale)
    x_scale = (
        over_time(xs, left, WIDTH - 16)
        if chart.x_kind == "time"
        else Scale(chart.x_kind, min(xs), max(xs), left, WIDTH - 16)
        if xs
        else linear(chart.x_kind, xs, left, WIDTH - 16)
    )
    body = [
        y_axis(y_scale, left, WIDTH - 16, chart.y_label),
        x_axis(x_scale, bottom, axis_title(chart.x_label, chart.x_kind), x_scale.ticks(8)),
    ]
    for index, series in enumerate(shown):
        body.append(_line(chart, series, index, x_scale, y_scale))
    legend = [(index, series.label) for index, series in enumerate(shown)]
    if len(chart.series) == 1 and not chart.series[0].label:
        legend = []
    return Drawing("".join(body), bottom + _BOTTOM, legend, notes=notes)


def most_important(series: Sequence[Series]) -> tuple[list[Series], list[str]]:
    """The series that can be told apart, the highest of them, in their order; and what is said
    of the others."""
    if len(series) <= SERIES_MAX:
        return list(series), []

    def height(one: Series) -> float:
        return max((abs(point[1]) for point in one.points if point[1] is not None), default=0)

    kept = sorted(range(len(series)), key=lambda index: -height(series[index]))[:SERIES_MAX]
    note = f"The {SERIES_MAX} highest of {len(series)}; the others are in the data set."
    return [series[index] for index in sorted(kept)], [note]


def _line(chart: Chart, series: Series, index: int, x_scale: Scale, y_scale: Scale) -> str:
    points = list(thin([(x, y) for x, y, *_ in series.points], x_scale))
    path, marks, pen_down = [], [], False
    for position, (x, y) in enumerate(points):
        if y is None:
            pen_down = False
            continue
        at_x, at_y = x_scale.at(x), y_scale.at(y)
        path.append(f"{'L' if pen_down else 'M'}{number(at_x)} {number(at_y)}")
        following = points[position + 1][1] if position + 1 < len(points) else None
        alone = not pen_down and following is None
        if alone or len(points) <= _MARKED_POINTS_MAX:
            said = (
                f"{series.label}: {format_value(x, chart.x_kind)}, {format_value(y, chart.y_kind)}"
            )
            marks.append(
                element(
                    "path",
                    element("title", text(said)),
                    d=marker(index, at_x, at_y),
                    class_=f"fill-{index}",
                )
            )
        pen_down = True
    line = element(
        "path", d="".join(path), class_=f"line-{index}", stroke_dasharray=DASHES[index] or None
    )
    if len(points) > _MARKED_POINTS_MAX:
        # A marker now and then tells lines apart that lie close to each other.
        step = max(1, len(points) // 8)
        marks += [
            element("path", d=marker(index, x_scale.at(x), y_scale.at(y)), class_=f"fill-{index}")
            for x, y in points[step // 2 + index * step // SERIES_MAX :: step]
            if y is not None
        ]
    return element("g", line, *marks)


def thin(points: list[Point], scale: Scale) -> Iterator[Point]:
    """Keep some four points per pixel column at most: first, lowest, highest and last, so that
    no spike and no break is lost."""
    if len(points) <= 2 * _COLUMNS:
        yield from points
        return
    column: list[Point] = []
    column_at = -1
    for point in points:
        at = int((scale.at(point[0]) - scale.start) / max(1.0, scale.end - scale.start) * _COLUMNS)
        if column and (at != column_at or point[1] is None or column[-1][1] is None):
            yield from _extremes(column)
            column = []
        column_at = at
        column.append(point)
    yield from _extremes(column)


def _extremes(column: list[Point]) -> Iterator[Point]:
    if len(column) <= 4:
        yield from column
        return
    known = [(y, index) for index, (_, y) in enumerate(column) if y is not None]
    kept = {0, len(column) - 1, min(known)[1], max(known)[1]} if known else {0}
    yield from (column[index] for index in sorted(kept))
