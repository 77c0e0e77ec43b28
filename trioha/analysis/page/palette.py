"""Eight ways to tell series apart, each by colour, line, marker and hatching.

Colours are those of Okabe and Ito, told apart with every kind of colour blindness; their lightness
is tuned in the style sheet for light and dark. What differs in colour always differs in form too.
"""

from __future__ import annotations

import math

from trioha.analysis.page.markup import element, number

SERIES_MAX = 8
DASHES = ("", "7 3", "2 3", "10 3 2 3", "1 2", "14 4", "5 2 1 2 1 2", "3 6")
_HATCHES = (
    "",
    "M0 8L8 0M-2 2L2 -2M6 10L10 6",
    "M0 4H8",
    "M4 0V8",
    "M0 0L8 8M-2 6L2 10M6 -2L10 2",
    "M0 0L8 8M8 0L0 8",
    "M0 4H8M4 0V8",
    "M2 2h1.5v1.5h-1.5zM6 6h1.5v1.5h-1.5z",
)


def hatch_definitions(prefix: str, count: int) -> str:
    """`<defs>` with a pattern ``{prefix}-hatch-{n}`` for every series but the first."""
    patterns = [
        element(
            "pattern",
            element("rect", width=8, height=8, class_=f"fill-{index}"),
            element("path", d=_HATCHES[index], class_="hatch"),
            id=f"{prefix}-hatch-{index}",
            width=8,
            height=8,
            patternUnits="userSpaceOnUse",
        )
        for index in range(1, min(count, SERIES_MAX))
    ]
    return element("defs", *patterns) if patterns else ""


def fill_of(prefix: str, index: int) -> str | None:
    """The fill of a surface, or None where its class says it all."""
    return f"url(#{prefix}-hatch-{index})" if 0 < index < SERIES_MAX else None


def marker(index: int, x: float, y: float, size: float = 3.0) -> str:
    """The path of a series' marker around a point."""
    shape = index % SERIES_MAX
    if shape == 0:
        return (
            f"M{number(x - size)} {number(y)}a{size} {size} 0 1 0 {2 * size} 0"
            f"a{size} {size} 0 1 0 {-2 * size} 0z"
        )
    if shape in (1, 5):
        s = size * 0.9
        return f"M{number(x - s)} {number(y - s)}h{2 * s:.1f}v{2 * s:.1f}h{-2 * s:.1f}z"
    corners, turn = {2: (3, -90), 3: (4, 0), 4: (3, 90), 6: (5, -90), 7: (6, 0)}[shape]
    points = []
    for corner in range(corners):
        angle = math.radians(turn + corner * 360 / corners)
        points.append(
            f"{number(x + 1.3 * size * math.cos(angle))} {number(y + 1.3 * size * math.sin(angle))}"
        )
    return "M" + "L".join(points) + "z"


def swatch(index: int, kind: str, prefix: str) -> str:
    """A small drawing for the legend."""
    if kind == "line":
        drawing = element(
            "path", d="M0 7H28", class_=f"line-{index}", stroke_dasharray=DASHES[index] or None
        ) + element("path", d=marker(index, 14, 7), class_=f"fill-{index}")
    else:
        drawing = element(
            "rect",
            x=1,
            y=1,
            width=26,
            height=12,
            class_=f"fill-{index} edge",
            style=_style(fill_of(prefix, index)),
        )
    return element("svg", drawing, width=28, height=14, viewBox="0 0 28 14", aria_hidden="true")


def _style(fill: str | None) -> str | None:
    return None if fill is None else f"fill:{fill}"
