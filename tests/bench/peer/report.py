"""The Markdown of a comparison.

Rows that failed and goals that were missed come first. A figure that could not be measured is a
dash with its reason, never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.peer.results import DISTURBED_SHARE, Results
from bench.peer.rows import Metric
from bench.peer.shortfalls import Shortfall, explanation
from bench.peer.summary import MetricSummary, RowSummary, SideSummary

TITLE = "## Side by side with the Java broker"
REASON_COLUMNS = 160


def make_section(
    results: Results,
    summaries: Sequence[RowSummary],
    charts: Sequence[str],
    beside: Sequence[tuple[Mapping[str, Any], Sequence[RowSummary]]] = (),
    shortfalls: Sequence[Shortfall] = (),
) -> str:
    """The whole section.

    `charts` are the images' paths as the page links them; `beside` is what was measured with other
    builds of trioha, each with its setup.
    """
    parts = [
        TITLE,
        _setup(results.setup),
        _verdict(summaries, shortfalls),
        *(f"![Ratios of trioha to Java, row by row]({chart})" for chart in charts),
        *(_table(f"### {group}", rows) for group, rows in _groups(summaries).items()),
        _footnotes(summaries),
    ]
    for setup, others in beside:
        parts += [f"### Beside it: trioha at {setup['trioha']}", f"Measured {setup['measured']}."]
        parts += [_table(f"#### {group}", rows) for group, rows in _groups(others).items()]
    return "\n\n".join(parts)


def _setup(setup: Mapping[str, Any]) -> str:
    lines = [f"* {name}: {value}" for name, value in setup.items() if isinstance(value, str)]
    return "\n".join(lines)


def _verdict(summaries: Sequence[RowSummary], shortfalls: Sequence[Shortfall]) -> str:
    failed = [summary for summary in summaries if summary.failed]
    goals = [metric for summary in summaries for metric in summary.metrics if metric.goal]
    short = [metric for metric in goals if not metric.reached]
    lines = [f"{len(goals) - len(short)} of {len(goals)} goals reached."]
    if failed:
        lines += ["", "Not measured:", ""]
        lines += [f"* `{summary.row.name}`: {_reasons(summary)}" for summary in failed]
    missed = [
        table_line([f"`{summary.row.name}`", "; ".join(map(_missed, metrics)), why])
        for summary in summaries
        if not summary.failed
        for why, metrics in _by_reason(summary, shortfalls).items()
    ]
    if missed:
        head = ["row", "figure, goal", "what holds it back, what was tried"]
        lines += [
            "",
            "Short of their goals:",
            "",
            table_line(head),
            table_line(["---"] * len(head)),
            *missed,
        ]
    return "\n".join(lines)


def _by_reason(
    summary: RowSummary, shortfalls: Sequence[Shortfall]
) -> dict[str, list[MetricSummary]]:
    """The missed goals of a row, by what is known about them."""
    reasons: dict[str, list[MetricSummary]] = {}
    for metric in summary.short:
        text = explanation(shortfalls, summary.row.name, metric.metric.key)
        shown = text.replace("|", "\\|").replace("\n", " ").strip()
        reasons.setdefault(shown or "not looked into yet", []).append(metric)
    return reasons


def _missed(summary: MetricSummary) -> str:
    assert summary.goal is not None
    of_ratio = summary.goal.of_ratio
    value = summary.ratio if of_ratio else summary.trioha
    sign = "≥" if summary.metric.higher_is_better else "≤"
    return (
        f"{summary.metric.label}{' ratio' if of_ratio else ''} "
        f"{format_number(value, 2 if of_ratio else summary.metric.digits)}, "
        f"goal {sign} {summary.goal.limit:g}"
    )


def _groups(summaries: Iterable[RowSummary]) -> dict[str, list[RowSummary]]:
    groups: dict[str, list[RowSummary]] = {}
    for summary in summaries:
        groups.setdefault(summary.row.group, []).append(summary)
    return groups


def _table(heading: str, summaries: Sequence[RowSummary]) -> str:
    metrics = summaries[0].row.metrics
    head = [
        "row",
        *(_heading(metric) for metric in metrics),
        "rounds",
        "samples",
        "errors",
    ]
    lines = [heading, "", table_line(head), table_line(["---"] * len(head))]
    for summary in summaries:
        cells = [f"`{summary.row.name}`", *(figure_cell(metric) for metric in summary.metrics)]
        cells += [
            _pair(summary.java, summary.trioha, _rounds),
            _pair(summary.java, summary.trioha, lambda side: f"{side.count:,}"),
            _pair(summary.java, summary.trioha, _errors),
        ]
        lines.append(table_line(cells))
    return "\n".join(lines)


def _heading(metric: Metric) -> str:
    return f"{metric.label} {'↑' if metric.higher_is_better else '↓'}"


def figure_cell(summary: MetricSummary) -> str:
    """Return both medians, the ratio, its goal and its range."""
    digits = summary.metric.digits
    java, trioha = format_number(summary.java, digits), format_number(summary.trioha, digits)
    ratio = format_number(summary.ratio, 2)
    if summary.goal is not None and summary.goal.of_ratio:
        ratio = _judged(ratio, summary)
    elif summary.goal is not None:
        trioha = _judged(trioha, summary)
    text = f"{java} → {trioha}"
    if summary.ratio is None:
        return text
    if summary.ratio_low is None or summary.ratio_low == summary.ratio_high:
        return f"{text}; {ratio}"
    return f"{text}; {ratio} ({summary.ratio_low:.2f} to {summary.ratio_high:.2f})"


def _judged(value: str, summary: MetricSummary) -> str:
    """A value beside its goal: **1.31** ≥ 1.2 ✓ or **1.07** < 1.2 ✗."""
    assert summary.goal is not None
    reached, missed = ("≥", "<") if summary.metric.higher_is_better else ("≤", ">")
    sign, mark = (reached, "✓") if summary.reached else (missed, "✗")
    return f"**{value}** {sign} {summary.goal.limit:g} {mark}"


def _pair(java: SideSummary, trioha: SideSummary, show: Any) -> str:
    return f"{show(java)} / {show(trioha)}"


def _rounds(side: SideSummary) -> str:
    text = str(side.rounds)
    if side.failed:
        text = f"{side.measured} of {side.rounds}, {len(side.failed)} **failed**"
    return f"{text}, {side.disturbed} disturbed" if side.disturbed else text


def _errors(side: SideSummary) -> str:
    if not side.errors:
        return "0"
    return ", ".join(f"{times:,} {name}" for name, times in side.errors.most_common())


def _footnotes(summaries: Sequence[RowSummary]) -> str:
    lines = [
        "Cells are medians over the rounds: Java → trioha; ratio trioha / Java (lowest to "
        "highest of the rounds taken pair by pair). ↑: more is better, ↓: less is. ✓ and ✗: "
        "whether its goal is reached. Rounds, samples and errors: Java / trioha. Samples are "
        "messages, bytes in the catch-up, and starts. Errors are those of whole runs, warm-up "
        "included, and stand in no rate and no latency. A round is disturbed when processes "
        f"foreign to it took more than {DISTURBED_SHARE:.0%} of a processor."
    ]
    partly = [summary for summary in summaries if not summary.failed and _reasons(summary)]
    if partly:
        lines += ["", "Failed rounds:", ""]
        lines += [f"* `{summary.row.name}`: {_reasons(summary)}" for summary in partly]
    return "\n".join(lines)


def _reasons(summary: RowSummary) -> str:
    reasons = [
        f"{name}: {_one_line(reason)}"
        for name, side in (("Java", summary.java), ("trioha", summary.trioha))
        for reason in dict.fromkeys(side.failed)
    ]
    for name, side in (("Java", summary.java), ("trioha", summary.trioha)):
        if not side.rounds:
            reasons.append(f"{name}: not run")
    return "; ".join(reasons)


def _one_line(reason: str) -> str:
    line = reason.strip().splitlines()[0] if reason.strip() else "no reason given"
    return line[:REASON_COLUMNS].replace("|", "\\|").replace("`", "'")


def table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def format_number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
