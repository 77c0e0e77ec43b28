"""A bar chart of ratios as SVG: one bar per row and chosen metric, on a logarithmic scale.

Every ratio is turned so that a bar to the right is better for trioha, whatever the metric: twice
the throughput and half the latency are bars of one length. A tick on a bar's track is the goal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import attrs
from bench.peer.summary import MetricSummary, RowSummary

LABEL_WIDTH = 330
TRACK_WIDTH = 460
VALUE_WIDTH = 90
ROW_HEIGHT = 17
BAR_HEIGHT = 11
TOP = 46
BOTTOM = 26
ADVANTAGE_MAX = 16.0
"""Where bars are cut; the figure beside them is not."""
TICKS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)

_STYLE = """
  text { font: 11px sans-serif; fill: #222 }
  .title { font-weight: bold; font-size: 13px }
  .better { fill: #2b7a4b } .worse { fill: #b5482a } .none { fill: #888 }
  .grid { stroke: #ddd } .even { stroke: #555 } .goal { stroke: #1a3f8f; stroke-width: 2 }
"""


@attrs.frozen
class Bar:
    """One line of the chart. Without an advantage it says that there is none."""

    label: str
    advantage: float | None
    ratio: float | None
    goal_advantage: float | None = None


def bars_of(summaries: Sequence[RowSummary]) -> list[Bar]:
    """The first metric of each row, and every other one that has a goal against Java."""
    return [
        Bar(
            f"{summary.row.name}  {metric.metric.label}",
            metric.advantage,
            metric.ratio,
            _goal_advantage(metric),
        )
        for summary in summaries
        for number, metric in enumerate(summary.metrics)
        if number == 0 or (metric.goal is not None and metric.goal.of_ratio)
    ]


def make_chart(bars: Sequence[Bar]) -> str:
    width = LABEL_WIDTH + TRACK_WIDTH + VALUE_WIDTH
    height = TOP + len(bars) * ROW_HEIGHT + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            _text(8, 18, "trioha against Java: to the right is better for trioha", "title"),
            *_grid(height),
            *(line for number, bar in enumerate(bars) for line in _bar(number, bar)),
            "</svg>",
            "",
        ]
    )


def _grid(height: int) -> Iterator[str]:
    for tick in TICKS:
        x = _x(tick)
        kind = "even" if tick == 1 else "grid"
        yield _line(kind, x, TOP - 4, height - BOTTOM)
        text = f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}"
        yield _text(x, TOP - 9, text, anchor="middle")


def _bar(number: int, bar: Bar) -> Iterator[str]:
    y = TOP + number * ROW_HEIGHT
    middle = y + ROW_HEIGHT / 2
    yield _text(LABEL_WIDTH - 8, middle + 4, bar.label, anchor="end")
    if bar.advantage is None or bar.ratio is None:
        yield _text(_x(1) + 6, middle + 4, "not measured", "none")
        return
    left, right = sorted((_x(1), _x(bar.advantage)))
    kind = "better" if bar.advantage >= 1 else "worse"
    yield (
        f'<rect class="{kind}" x="{left:.1f}" y="{middle - BAR_HEIGHT / 2:.1f}" '
        f'width="{max(right - left, 1):.1f}" height="{BAR_HEIGHT}">'
        f"<title>{escape(bar.label)}: ratio {bar.ratio:.3f}</title></rect>"
    )
    if bar.goal_advantage is not None:
        yield _line("goal", _x(bar.goal_advantage), y + 1, y + ROW_HEIGHT - 1)
    yield _text(LABEL_WIDTH + TRACK_WIDTH + 10, middle + 4, f"{bar.ratio:.2f}")


def _goal_advantage(summary: MetricSummary) -> float | None:
    goal = summary.goal
    if goal is None or not goal.of_ratio:
        return None
    return goal.limit if summary.metric.higher_is_better else 1 / goal.limit


def _x(advantage: float) -> float:
    kept = min(max(advantage, 1 / ADVANTAGE_MAX), ADVANTAGE_MAX)
    share = math.log(kept) / math.log(ADVANTAGE_MAX)
    return LABEL_WIDTH + TRACK_WIDTH / 2 * (1 + share)


def _line(kind: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}"/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    attributes = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{escape(text)}</text>'
