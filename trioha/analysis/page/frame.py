"""Parts that all charts share: the figure, its title and description, axes, legend."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trioha.analysis.page.markup import element, number, text
from trioha.analysis.page.palette import hatch_definitions, swatch
from trioha.analysis.page.scales import Scale
from trioha.analysis.results import Chart

WIDTH = 900.0
LETTER = 6.4
"""Width of a letter of the axes, about."""


@attrs.frozen
class Drawing:
    """The inside of a chart's SVG, and how high it is."""

    body: str
    height: float
    legend: Sequence[tuple[int, str]] = ()
    """Series' numbers and names, when there is more than one thing to tell apart."""
    extra_legend: str = ""
    notes: Sequence[str] = ()


def figure(chart: Chart, prefix: str, drawing: Drawing, description: str) -> str:
    """Return the chart as a `<figure>`, named and described for screen readers."""
    title_id, description_id = f"{prefix}-title", f"{prefix}-desc"
    kind = "line" if chart.kind == "line" else "area"
    hatches = max((index for index, _ in drawing.legend), default=0) + 1
    svg = element(
        "svg",
        element("title", text(chart.title), id=title_id),
        element("desc", text(description), id=description_id),
        hatch_definitions(prefix, hatches) if kind == "area" else "",
        drawing.body,
        viewBox=f"0 0 {number(WIDTH)} {number(drawing.height)}",
        role="img",
        aria_labelledby=f"{title_id} {description_id}",
    )
    items = [
        element("li", swatch(index, kind, prefix), element("span", text(label)))
        for index, label in drawing.legend
    ]
    notes = [note for note in (chart.note, *drawing.notes) if note]
    return element(
        "figure",
        element("figcaption", text(chart.title)),
        element("div", svg, class_="plot"),
        element("ul", *items, class_="legend") if items else "",
        drawing.extra_legend,
        *(element("p", text(note), class_="note") for note in notes),
        class_="chart",
    )


def x_axis(scale: Scale, y: float, label: str, ticks: Sequence[tuple[float, str]]) -> str:
    """Ticks below a plot whose bottom is at `y`. Labels that would touch the one before are
    left out."""
    parts = [element("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")]
    right = -1e9
    for value, shown in ticks:
        x = scale.at(value)
        parts.append(element("line", x1=x, x2=x, y1=y, y2=y + 4, class_="axis"))
        half = len(shown) * LETTER / 2
        if x - half > right and x + half <= WIDTH + 2:
            parts.append(element("text", text(shown), x=x, y=y + 17, text_anchor="middle"))
            right = x + half + 6
    middle = (scale.start + scale.end) / 2
    parts.append(
        element("text", text(label), x=middle, y=y + 36, text_anchor="middle", class_="label")
    )
    return "".join(parts)


def y_axis(scale: Scale, left: float, right: float, label: str) -> str:
    """Ticks and grid lines of a plot between `left` and `right`; the label stands on top."""
    parts = []
    for value, shown in scale.ticks(5):
        y = scale.at(value)
        parts.append(
            element("line", x1=left, x2=right, y1=y, y2=y, class_="axis" if not value else "grid")
        )
        parts.append(element("text", text(shown), x=left - 8, y=y + 4, text_anchor="end"))
    parts.append(element("text", text(label), x=4, y=scale.end - 14, class_="label"))
    return "".join(parts)


def x_grid(scale: Scale, ticks: Sequence[tuple[float, str]], top: float, bottom: float) -> str:
    """Upright grid lines from `top` to `bottom`."""
    places = (scale.at(value) for value, _ in ticks)
    return "".join(element("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid") for x in places)


def row_name(name: str, x: float, y: float, letters_max: int) -> str:
    """The name of a row, ending at `x`; a long one is cut and shown whole under the pointer."""
    label = name if len(name) <= letters_max else name[: letters_max - 1] + "…"
    title = element("title", text(name))
    return element("text", title + text(label), x=x, y=y, text_anchor="end")


def margin_of(scale: Scale) -> float:
    """Room that the labels of a y axis take."""
    return max((len(shown) for _, shown in scale.ticks(5)), default=1) * LETTER + 16


def axis_title(label: str, kind: str) -> str:
    """A label that says in which clock its times are."""
    if kind == "time" and "UTC" not in label:
        return f"{label} (UTC)" if label else "time (UTC)"
    return label
