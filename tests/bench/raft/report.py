"""The Markdown of a run: aims and whether they are reached, short ones first, then every figure."""

from __future__ import annotations

import statistics
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from bench.raft.samples import Sample
from bench.raft.sides import SIDES
from bench.raft.throughput import THREADS

REASONS = Path(__file__).with_name("reasons.toml")
CLIENTS = {"java": "Java client", "own": "`trioha bench`"}


@attrs.frozen(kw_only=True)
class Aim:
    """A figure that one side is to reach, by itself or as a ratio to another side's."""

    name: str
    row: str
    metric: str
    side: str
    limit: float
    higher_is_better: bool
    to: str | None = None
    percentile: int = 50
    unit: str = ""


@attrs.frozen(kw_only=True)
class Finding:
    """Result for an aim. `value` is None when it could not be measured."""

    aim: Aim
    value: float | None
    low: float | None
    high: float | None
    count: int
    strangers: float

    @property
    def reached(self) -> bool:
        if self.value is None:
            return False
        if self.aim.higher_is_better:
            return self.value >= self.aim.limit
        return self.value <= self.aim.limit


def aims() -> list[Aim]:
    """Return the aims that issue and documentation promise, row by row."""
    found: list[Aim] = []
    rates = (("memory", "java", 3.0), ("fsync", "java", 1.5))
    own = (("memory", "alone", 0.5), ("fsync", "alone-fsync", 0.6))
    for client in CLIENTS:
        for threads in THREADS:
            row = f"{client}/{threads}"
            where = f"{CLIENTS[client]}, {threads} sender{'s' * (threads > 1)}"
            found += [
                Aim(
                    name=f"messages/s, {where}: {SIDES[side].title} to {SIDES[to].title}",
                    row=row,
                    metric="per_s",
                    side=side,
                    to=to,
                    limit=limit,
                    higher_is_better=True,
                )
                for side, to, limit in (*rates, *own)
            ]
            found.append(
                Aim(
                    name=f"p50, {where}: {SIDES['memory'].title} to {SIDES['java'].title}",
                    row=row,
                    metric="p50_ms",
                    side="memory",
                    to="java",
                    limit=0.4,
                    higher_is_better=False,
                )
            )
    found += [_alone_aim(*fields) for fields in _ALONE]
    return found


_ALONE = (
    ("kill -9 of the leader to the first stored message, p50", "kill", "first_ms", 50, 300.0),
    ("kill -9 of the leader to the first stored message, p99", "kill", "first_ms", 99, 600.0),
    ("planned transfer, write gap, p99", "transfer", "gap_ms", 99, 500.0),
)


def _alone_aim(name: str, row: str, metric: str, percentile: int, limit: float) -> Aim:
    return Aim(
        name=name,
        row=row,
        metric=metric,
        percentile=percentile,
        side="fsync",
        limit=limit,
        higher_is_better=False,
        unit=" ms",
    )


REFILL = Aim(
    name="a wiped member's refill while the group serves",
    row="refill",
    metric="mb_per_s",
    side="fsync",
    limit=800.0,
    higher_is_better=True,
    unit=" MB/s",
)


def findings(samples: Sequence[Sample]) -> list[Finding]:
    """Every aim that has samples, the short ones first."""
    judged = [judge(aim, samples) for aim in (*aims(), REFILL)]
    return sorted((one for one in judged if one is not None), key=lambda one: one.reached)


def judge(aim: Aim, samples: Sequence[Sample]) -> Finding | None:
    """None when nothing was measured of either side."""
    mine = _of(samples, aim.row, aim.side)
    theirs = _of(samples, aim.row, aim.to) if aim.to is not None else []
    if not mine or (aim.to is not None and not theirs):
        return None
    ours = _values(mine, aim.metric)
    strangers = statistics.median(sample.strangers for sample in (*mine, *theirs))
    value = low = high = None
    if ours and aim.to is None:
        value, low, high = percentile(ours, aim.percentile), min(ours), max(ours)
    elif ours and (others := _values(theirs, aim.metric)):
        value = statistics.median(ours) / statistics.median(others)
        pairs = [
            one.figures[aim.metric] / other.figures[aim.metric]
            for one in mine
            for other in theirs
            if one.round == other.round
            and aim.metric in one.figures
            and aim.metric in other.figures
        ]
        low, high = min(pairs, default=value), max(pairs, default=value)
    return Finding(aim=aim, value=value, low=low, high=high, count=len(ours), strangers=strangers)


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest rank: of few values p99 is the largest."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, rank - 1)]


def make_section(setup: Mapping[str, Any], samples: Sequence[Sample]) -> str:
    """Return the text between the markers."""
    found = findings(samples)
    short = [one for one in found if not one.reached]
    lines = ["## DLEDGER mode", ""]
    lines += [f"* {name}: {value}" for name, value in setup.items() if isinstance(value, str)]
    lines += ["", f"{len(found) - len(short)} of {len(found)} aims reached."]
    if short:
        reasons = tomllib.loads(REASONS.read_text()).get("reason", [])
        lines += ["", "Short of their aims:", "", "| what | measured | aim | why |"]
        lines += ["|---|---|---|---|"]
        lines += [
            f"| {one.aim.name} | **{_value(one)}** | {_limit(one.aim)} | {_why(one.aim, reasons)} |"
            for one in short
        ]
    lines += ["", "### Aims", "", "| what | measured | lowest to highest | aim | of | strangers |"]
    lines += ["|---|---|---|---|---|---|"]
    lines += [
        f"| {one.aim.name} | **{_value(one)}** {'✓' if one.reached else '✗'} | {_range(one)} "
        f"| {_limit(one.aim)} | {one.count} | {one.strangers:.2f} |"
        for one in found
    ]
    lines += ["", *_send_tables(samples), *_change_table(samples)]
    lines += [
        "",
        "Medians of the rounds; a ratio's range is of the rounds taken pair by pair. Strangers: "
        "processors, out of the machine's, that processes foreign to the measurement took on "
        "average. Regenerate with `just bench-raft`.",
    ]
    return "\n".join(lines)


def _send_tables(samples: Sequence[Sample]) -> list[str]:
    rows = [f"{client}/{threads}" for client in CLIENTS for threads in THREADS]
    sides = [side for side in SIDES.values() if any(s.side == side.name for s in samples)]
    lines: list[str] = []
    heads = {
        "per_s": ("Messages/s", 0),
        "p50_ms": ("p50 ms", 3),
        "p99_ms": ("p99 ms", 3),
        "leader_cpu_us": ("The leader's processor time, µs a message", 1),
        "follower0_cpu_us": ("One follower's processor time, µs a message", 1),
    }
    for metric, (title, digits) in heads.items():
        body = []
        for row in rows:
            cells = [_cell(_values(_of(samples, row, side.name), metric), digits) for side in sides]
            if any(cell != "-" for cell in cells):
                client, _, threads = row.partition("/")
                body.append(f"| {CLIENTS[client]}, {threads} | " + " | ".join(cells) + " |")
        if body:
            lines += [
                f"### {title}",
                "",
                "| senders | " + " | ".join(s.title for s in sides) + " |",
            ]
            lines += ["|---" * (len(sides) + 1) + "|", *body, ""]
    errors: Counter[str] = Counter()
    for sample in samples:
        for name, times in sample.errors.items():
            errors[f"{SIDES[sample.side].title}: {name}"] += times
    failed = [f"`{one.row}` of {one.side}: {one.failed}" for one in samples if one.failed]
    if errors:
        lines += ["Errors: " + ", ".join(f"{n:,} {name}" for name, n in errors.items()) + ".", ""]
    return lines + [f"* failed: {one}" for one in failed]


def _change_table(samples: Sequence[Sample]) -> list[str]:
    titles = {
        ("kill", "first_ms"): "kill -9 of the leader to the first stored message, ms",
        ("kill/java-client", "gap_ms"): "the same, as an untouched Java producer saw it, ms",
        ("transfer", "gap_ms"): "planned transfer, write gap, ms",
        ("refill", "mb_per_s"): "refill of a wiped member, MB/s from its first byte",
        ("refill", "mb_per_s_from_start"): "refill of a wiped member, MB/s from its exec",
        ("refill", "plain_mb_per_s"): "a new file of as many bytes, written right after, MB/s",
        ("refill", "send_max_ms"): "longest send meanwhile, ms",
    }
    lines = ["| what | side | p50 | p99 | lowest | highest | of | strangers |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for (row, metric), title in titles.items():
        for side in SIDES.values():
            found = _of(samples, row, side.name)
            if values := _values(found, metric):
                shown = [percentile(values, 50), percentile(values, 99), min(values), max(values)]
                strangers = statistics.median(sample.strangers for sample in found)
                cells = " | ".join(f"{value:,.0f}" for value in shown)
                lines.append(
                    f"| {title} | {side.title} | {cells} | {len(values)} | {strangers:.2f} |"
                )
    return ["### Changes", "", *lines] if len(lines) > 2 else []


def _of(samples: Sequence[Sample], row: str, side: str) -> list[Sample]:
    return [sample for sample in samples if (sample.row, sample.side) == (row, side)]


def _values(samples: Sequence[Sample], metric: str) -> list[float]:
    return [sample.figures[metric] for sample in samples if metric in sample.figures]


def _cell(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):,.{digits}f}" if values else "-"


def _value(one: Finding) -> str:
    if one.value is None:
        return "not measured"
    return f"{one.value:,.0f}{one.aim.unit}" if one.aim.unit else f"{one.value:.2f}"


def _range(one: Finding) -> str:
    if one.low is None or one.high is None:
        return ""
    digits = 0 if one.aim.unit else 2
    return f"{one.low:,.{digits}f} to {one.high:,.{digits}f}"


def _limit(aim: Aim) -> str:
    return f"{'≥' if aim.higher_is_better else '≤'} {aim.limit:g}{aim.unit}"


def _why(aim: Aim, reasons: Sequence[Mapping[str, Any]]) -> str:
    """Return the recorded reason, or that it is not looked into yet."""
    for reason in reasons:
        rows, side, to = reason.get("rows"), reason.get("side"), reason.get("to")
        if (
            (rows is None or aim.row in rows)
            and (side is None or aim.side == side)
            and (to is None or aim.to == to)
            and aim.metric in reason.get("metrics", [aim.metric])
        ):
            return str(reason["text"])
    return "not looked into yet"
