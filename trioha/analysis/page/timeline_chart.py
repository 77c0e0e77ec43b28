"""Lanes over time: the states of each lane, with their begin and end."""

from __future__ import annotations

from trioha.analysis.page.formats import format_duration, format_time
from trioha.analysis.page.frame import LETTER, WIDTH, Drawing, axis_title, row_name, x_axis, x_grid
from trioha.analysis.page.markup import element, number, text
from trioha.analysis.page.palette import SERIES_MAX, fill_of
from trioha.analysis.page.scales import Scale, over_time
from trioha.analysis.results import Chart, Series

_LANE, _BAR = 34.0, 22.0
_LANES_MAX = 60
_NAME_LETTERS_MAX = 34
_TOP = 8.0


def draw_timeline(chart: Chart, prefix: str) -> Drawing:
    """A lane per series. Equal kinds look equal; a bar without an end has an arrow."""
    lanes = chart.series[:_LANES_MAX]
    notes = []
    if len(chart.series) > len(lanes):
        notes.append(f"The first {len(lanes)} of {len(chart.series)} lanes.")
    moments = [
        moment
        for lane in lanes
        for begin, end, *_ in lane.points
        for moment in (begin, begin if end is None else end)
    ]
    if any(end is None for lane in lanes for _, end, *_ in lane.points):
        # Room for what began last and goes on.
        moments.append(max(moments) + max(1000, (max(moments) - min(moments)) / 20))
    left = min(_NAME_LETTERS_MAX, max((len(lane.label) for lane in lanes), default=4))
    scale = over_time(moments, left * LETTER + 18, WIDTH - 20)
    bottom = _TOP + _LANE * max(1, len(lanes))
    seen = dict.fromkeys(str(point[-1]) for lane in lanes for point in lane.points)
    ordered = dict.fromkeys([*chart.kinds, *seen])
    kinds = {what: min(index, SERIES_MAX - 1) for index, what in enumerate(ordered)}
    ticks = scale.ticks(8)
    body = [
        x_grid(scale, ticks, _TOP, bottom),
        x_axis(scale, bottom, axis_title(chart.x_label, "time"), ticks),
    ]
    for row, lane in enumerate(lanes):
        body.append(_lane(prefix, lane, _TOP + row * _LANE, scale, kinds))
    legend = [(kinds[what], what) for what in ordered if what in seen]
    others = [what for index, what in legend if index == SERIES_MAX - 1]
    legend = [(index, what) for index, what in legend if index < SERIES_MAX - 1]
    if others:
        legend.append((SERIES_MAX - 1, others[0] if len(others) == 1 else "others"))
    return Drawing("".join(body), bottom + 46, legend, notes=notes)


def _lane(prefix: str, lane: Series, top: float, scale: Scale, kinds: dict[str, int]) -> str:
    middle = top + _LANE / 2
    parts = [
        row_name(lane.label, scale.start - 10, middle + 4, _NAME_LETTERS_MAX),
        element("line", x1=scale.start, x2=scale.end, y1=middle, y2=middle, class_="grid"),
    ]
    for begin, end, what, *kind in lane.points:
        index = kinds[str(kind[0] if kind else what)]
        parts.append(_span(prefix, str(what), index, begin, end, middle, scale))
    return element("g", *parts)


def _span(
    prefix: str, what: str, index: int, begin: float, end: float | None, middle: float, scale: Scale
) -> str:
    x = scale.at(begin)
    still = end is None
    right = scale.end if end is None else scale.at(end)
    until = "still" if end is None else f"{format_time(end)}, {format_duration(end - begin)}"
    said = element("title", text(f"{what}: {format_time(begin)} to {until}"))
    fill = fill_of(prefix, index)
    style = None if fill is None else f"fill:{fill}"
    css = f"fill-{index} edge"
    top, low = middle - _BAR / 2, middle + _BAR / 2
    if end is not None and right - x < 2:
        # A moment: a diamond, large enough to be seen.
        d = f"M{number(x)} {number(top)}l5 {_BAR / 2}l-5 {_BAR / 2}l-5 {-_BAR / 2}z"
        return element("path", said, d=d, class_=css, style=style)
    if still:
        d = (
            f"M{number(x)} {number(top)}H{number(right)}L{number(right + 9)} {number(middle)}"
            f"L{number(right)} {number(low)}H{number(x)}z"
        )
        shape = element("path", said, d=d, class_=css, style=style)
    else:
        shape = element(
            "rect",
            said,
            x=x,
            y=top,
            width=right - x,
            height=_BAR,
            class_=css,
            style=style,
        )
    # Roles are written in capitals, which are wide.
    width = len(what) * LETTER * (1.28 if what.isupper() else 1.05) + 8
    if width + 8 > right - x:
        return shape
    plate = element("rect", x=x + 4, y=middle - 8, width=width, height=16, rx=3, class_="plate")
    return shape + plate + element("text", text(what), x=x + 8, y=middle + 4, class_="on-plate")
