"""A bar chart of ratios as SVG: one bar per row and chosen metric, on a logarithmic scale.

Every ratio is turned so that to the right is better for trioha, whatever the metric: twice the
throughput and half the latency are bars of one length. Percentiles of a row whose bar is its
throughput are circles on the same line. A tick is the goal of the bar.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

import attrs
from bench.peer.rows import P50, P99
from bench.peer.summary import MetricSummary, RowSummary

LABEL_WIDTH = 340
TRACK_WIDTH = 460
VALUE_WIDTH = 70
ROW_HEIGHT = 17
BAR_HEIGHT = 11
TOP = 62
BOTTOM = 14
ADVANTAGE_MAX = 16.0
"""Ratio at which bars are cut; the figure beside a bar is not."""
TICKS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
CIRCLES = {P50.key: "p50", P99.key: "p99"}

_STYLE = """
  text { font: 11px sans-serif; fill: #222 }
  .title { font-weight: bold; font-size: 13px }
  .better { fill: #7fb894 } .worse { fill: #dd8f74 } .none { fill: #888 }
  .grid { stroke: #ddd } .even { stroke: #555 } .goal { stroke: #1a3f8f; stroke-width: 2 }
  .p50 { fill: #fff; stroke: #222 } .p99 { fill: #222; stroke: #222 }
"""


@attrs.frozen
class Circle:
    """A further metric on the line of a bar."""

    kind: str
    advantage: float


@attrs.frozen
class Bar:
    """One line of the chart. Without an advantage it says that there is none."""

    label: str
    advantage: float | None
    ratio: float | None
    goal_advantage: float | None = None
    circles: tuple[Circle, ...] = ()


def bars_of(summaries: Sequence[RowSummary]) -> list[Bar]:
    """The first metric of each row, and every other one that has a goal against Java."""
    return [bar for summary in summaries for bar in _bars_of_row(summary)]


def chart_parts(
    summaries: Sequence[RowSummary],
) -> Iterator[tuple[str, str, Sequence[RowSummary]]]:
    """Name, title and rows of each chart: all of them in one are too many to look at."""
    for name, title, clients in (
        ("java", "the Java client's rows", {"java"}),
        ("cpp", "the C++ client's rows", {"cpp"}),
        ("nodes", "replication, start, memory, a socket", {"ha", "start", "memory", "socket"}),
    ):
        part = [summary for summary in summaries if summary.row.client in clients]
        if part:
            yield name, f"trioha against Java, {title}", part


def make_chart(title: str, bars: Sequence[Bar]) -> str:
    width = LABEL_WIDTH + TRACK_WIDTH + VALUE_WIDTH
    height = TOP + len(bars) * ROW_HEIGHT + BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            _text(8, 18, f"{title}: to the right is better for trioha", "title"),
            *_legend(),
            *_grid(height),
            *(line for number, bar in enumerate(bars) for line in _bar(number, bar)),
            "</svg>",
            "",
        ]
    )


def _bars_of_row(summary: RowSummary) -> Iterator[Bar]:
    first, *rest = summary.metrics
    circles = tuple(
        Circle(CIRCLES[metric.metric.key], metric.advantage)
        for metric in rest
        if metric.metric.key in CIRCLES and metric.advantage is not None
    )
    yield _bar_of(summary, first, circles)
    for metric in rest:
        has_ratio_goal = metric.goal is not None and metric.goal.of_ratio
        if has_ratio_goal and metric.metric.key not in CIRCLES:
            yield _bar_of(summary, metric)


def _bar_of(row: RowSummary, metric: MetricSummary, circles: tuple[Circle, ...] = ()) -> Bar:
    label = f"{row.row.name}  {metric.metric.label}"
    return Bar(label, metric.advantage, metric.ratio, _goal_advantage(metric), circles)


def _goal_advantage(summary: MetricSummary) -> float | None:
    goal = summary.goal
    if goal is None or not goal.of_ratio:
        return None
    return goal.limit if summary.metric.higher_is_better else 1 / goal.limit


def _legend() -> Iterator[str]:
    x = float(LABEL_WIDTH)
    for kind in CIRCLES.values():
        yield _circle(kind, x + 6, 32)
        yield _text(x + 14, 36, kind)
        x += 50
    yield _line("goal", x + 6, 26, 38)
    yield _text(x + 14, 36, "goal of the bar; the figures are ratios, trioha / Java")


def _grid(height: int) -> Iterator[str]:
    for tick in TICKS:
        x = _x(tick)
        yield _line("even" if tick == 1 else "grid", x, TOP - 4, height - BOTTOM)
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
    for circle in bar.circles:
        yield _circle(circle.kind, _x(circle.advantage), middle)
    yield _text(LABEL_WIDTH + TRACK_WIDTH + 10, middle + 4, f"{bar.ratio:.2f}")


def _x(advantage: float) -> float:
    kept = min(max(advantage, 1 / ADVANTAGE_MAX), ADVANTAGE_MAX)
    share = math.log(kept) / math.log(ADVANTAGE_MAX)
    return LABEL_WIDTH + TRACK_WIDTH / 2 * (1 + share)


def _line(kind: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{top:g}" x2="{x:.1f}" y2="{bottom:g}"/>'


def _circle(kind: str, x: float, y: float) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    attributes = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{escape(text)}</text>'
