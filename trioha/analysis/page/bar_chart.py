"""Bars by category (lying, so that their names can be read), over time or numbers (standing),
and histograms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from trioha.analysis.page.formats import format_value
from trioha.analysis.page.frame import (
    LETTER,
    WIDTH,
    Drawing,
    axis_title,
    margin_of,
    row_name,
    x_axis,
    x_grid,
    y_axis,
)
from trioha.analysis.page.line_chart import most_important
from trioha.analysis.page.markup import element, text
from trioha.analysis.page.palette import fill_of
from trioha.analysis.page.scales import Scale, linear
from trioha.analysis.results import Chart

_CATEGORIES_MAX = 40
_NAME_LETTERS_MAX = 36
_TOP, _PLOT, _BOTTOM = 34.0, 200.0, 46.0


def draw_bars(chart: Chart, prefix: str) -> Drawing:
    return _lying(chart, prefix) if chart.x_kind == "category" else _standing(chart, prefix)


def draw_histogram(chart: Chart, prefix: str) -> Drawing:
    """A bar per bin, all equally wide on the paper: bins often double from one to the next."""
    shown, notes = most_important(chart.series)
    bins = sorted({(low, high) for series in shown for low, high, _ in series.points})
    counts = [count for series in shown for _, _, count in series.points]
    bottom = _TOP + _PLOT
    y_scale = linear(chart.y_kind, counts, bottom, _TOP)
    left = margin_of(y_scale)
    slots = Scale("number", 0, max(1, len(bins)), left, WIDTH - 16)
    edges = [(float(at), format_value(low, chart.x_kind)) for at, (low, _) in enumerate(bins)]
    if bins:
        edges.append((float(len(bins)), format_value(bins[-1][1], chart.x_kind)))
    body = [
        y_axis(y_scale, left, WIDTH - 16, chart.y_label),
        x_axis(slots, bottom, axis_title(chart.x_label, chart.x_kind), edges),
    ]
    place = {edge: at for at, edge in enumerate(bins)}
    width = (slots.at(1) - slots.at(0)) / max(1, len(shown))
    for index, series in enumerate(shown):
        for low, high, count in series.points:
            x = slots.at(place[low, high]) + index * width
            said = (
                f"{series.label}: {format_value(low, chart.x_kind)} to "
                f"{format_value(high, chart.x_kind)}: {format_value(count, chart.y_kind)}"
            )
            body.append(_bar(prefix, index, x + 0.5, width - 1, y_scale, count, said))
    widths = {high - low for low, high in bins}
    if len(widths) > 1:
        notes.append("Bins are not equally wide: read the numbers at their edges.")
    return Drawing("".join(body), bottom + _BOTTOM, _legend(chart), notes=notes)


def _standing(chart: Chart, prefix: str) -> Drawing:
    shown, notes = most_important(chart.series)
    xs = sorted({x for series in shown for x, *_ in series.points})
    ys = [y for series in shown for _, y, *_ in series.points if y is not None]
    bottom = _TOP + _PLOT
    y_scale = linear(chart.y_kind, ys, bottom, _TOP)
    left = margin_of(y_scale)
    gap = min((b - a for a, b in itertools.pairwise(xs)), default=1) or 1
    low, high = (xs[0], xs[-1] + gap) if xs else (0, 1)
    x_scale = Scale(chart.x_kind, low, high, left, WIDTH - 16)
    body = [
        y_axis(y_scale, left, WIDTH - 16, chart.y_label),
        x_axis(x_scale, bottom, axis_title(chart.x_label, chart.x_kind), x_scale.ticks(8)),
    ]
    width = max(1.0, (x_scale.at(low + gap) - left) / max(1, len(shown)))
    for index, series in enumerate(shown):
        for x, y, *_ in series.points:
            if y is None:
                continue
            said = f"{format_value(x, chart.x_kind)}: {format_value(y, chart.y_kind)}"
            if series.label:
                said = f"{series.label}: {said}"
            at = x_scale.at(x) + index * width
            body.append(_bar(prefix, index, at, max(0.8, width - 1), y_scale, y, said))
    return Drawing("".join(body), bottom + _BOTTOM, _legend(chart), notes=notes)


def _lying(chart: Chart, prefix: str) -> Drawing:
    shown, notes = most_important(chart.series)
    names: dict[str, None] = {}
    for series in shown:
        names.update(dict.fromkeys(str(point[0]) for point in series.points))
    kept = list(names)[:_CATEGORIES_MAX]
    if len(names) > len(kept):
        notes.append(f"The first {len(kept)} of {len(names)}; the others are in the data set.")
    values = [point[1] for series in shown for point in series.points if point[1] is not None]
    left = min(_NAME_LETTERS_MAX, max((len(name) for name in kept), default=4)) * LETTER + 18
    scale = linear(chart.y_kind, values, left, WIDTH - 90)
    thickness = max(10.0, 20.0 / max(1, len(shown)))
    step = thickness * len(shown) + 8
    top = 8.0
    bottom = top + step * max(1, len(kept))
    ticks = scale.ticks(6)
    body = [
        x_grid(scale, ticks, top, bottom),
        x_axis(scale, bottom, axis_title(chart.y_label, chart.y_kind), ticks),
    ]
    lookup = [{str(name): y for name, y, *_ in series.points} for series in shown]
    for row, name in enumerate(kept):
        y = top + row * step + 4
        middle = y + thickness * len(shown) / 2
        body.append(row_name(name, left - 8, middle + 4, _NAME_LETTERS_MAX))
        for index, by_name in enumerate(lookup):
            value = by_name.get(name)
            if value is not None:
                at = y + index * thickness
                body.append(_lying_bar(chart, prefix, index, at, thickness, scale, name, value))
    return Drawing("".join(body), bottom + _BOTTOM, _legend(chart), notes=notes)


def _lying_bar(
    chart: Chart,
    prefix: str,
    index: int,
    y: float,
    thickness: float,
    scale: Scale,
    name: str,
    value: float,
) -> str:
    begin, end = sorted((scale.at(0), scale.at(value)))
    shown = format_value(value, chart.y_kind)
    bar = element(
        "rect",
        element("title", text(f"{name}: {shown}")),
        x=begin,
        y=y,
        width=max(0.8, end - begin),
        height=thickness - 2,
        class_=f"fill-{index} edge",
        style=_style(prefix, index),
    )
    return bar + element("text", text(shown), x=end + 6, y=y + thickness / 2 + 3, class_="value")


def _bar(
    prefix: str, index: int, x: float, width: float, scale: Scale, value: float, said: str
) -> str:
    low, high = sorted((scale.at(0), scale.at(value)))
    return element(
        "rect",
        element("title", text(said)),
        x=x,
        y=low,
        width=max(0.8, width),
        height=max(0.6 if value else 0.0, high - low),
        class_=f"fill-{index} edge",
        style=_style(prefix, index),
    )


def _style(prefix: str, index: int) -> str | None:
    fill = fill_of(prefix, index)
    return None if fill is None else f"fill:{fill}"


def _legend(chart: Chart) -> Sequence[tuple[int, str]]:
    shown, _ = most_important(chart.series)
    if len(shown) < 2:
        return ()
    return [(index, series.label) for index, series in enumerate(shown)]
