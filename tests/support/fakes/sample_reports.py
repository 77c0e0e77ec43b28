"""Reports that have one of everything the HTML page can show."""

from __future__ import annotations

import math

from trioha.analysis.engine import Window
from trioha.analysis.page import PageMeta
from trioha.analysis.results import Chart, Column, Finding, Report, Series, Table

BEGIN_MS = 1_763_640_000_000
MINUTE_MS = 60_000
HOSTILE = '<script>alert("x")</script>&\u202egnp.exe\x00\ud800'


def meta(**changes: object) -> PageMeta:
    fields: dict[str, object] = {
        "stores": ["broker-a-0/store", "broker-a-1/store"],
        "journals": ["broker-a-0/store/journal"],
        "engine": "local (DuckDB 1.4)",
        "version": "0.1.0",
        "created_ms": BEGIN_MS + 7_200_000,
        "elapsed_ms": 2345,
        "window": Window(BEGIN_MS, None),
        "first_ms": BEGIN_MS,
        "last_ms": BEGIN_MS + 3_600_000,
        "records": 1_234_567,
        "bytes": 3 << 30,
        "notes": ["The journal of broker-a:1 is cut short."],
    }
    return PageMeta(**{**fields, **changes})  # type: ignore[arg-type]


def all_kinds() -> list[Report]:
    return [_lines_and_bars(), _timeline(), _hostile()]


def _lines_and_bars() -> Report:
    times = [BEGIN_MS + minute * MINUTE_MS for minute in range(60)]
    lines = Chart(
        title="Messages stored per minute",
        kind="line",
        x_label="time",
        y_label="messages/min",
        x_kind="time",
        note="Records in the commitlog by their store time.",
        series=[
            Series(
                f"topic-{number}",
                [
                    (
                        at,
                        None
                        if index == 30 and number
                        else 1000 + 900 * math.sin(index / 7 + number),
                    )
                    for index, at in enumerate(times)
                ],
            )
            for number in range(4)
        ],
    )
    bars = Chart(
        title="Bytes by topic",
        kind="bar",
        x_label="topic",
        y_label="bytes",
        x_kind="category",
        y_kind="bytes",
        series=[Series("", [(f"topic-{n}", 3_000_000 * 2**n) for n in range(8)])],
    )
    standing = Chart(
        title="Stored and refused per hour",
        kind="bar",
        x_label="hour",
        y_label="messages",
        x_kind="time",
        series=[
            Series("stored", [(BEGIN_MS + h * 3_600_000, 900 + 50 * h) for h in range(12)]),
            Series("refused", [(BEGIN_MS + h * 3_600_000, 10 * h) for h in range(12)]),
        ],
    )
    histogram = Chart(
        title="Born to stored",
        kind="histogram",
        x_label="latency",
        y_label="messages",
        x_kind="duration",
        series=[
            Series(
                "10.0.0.1",
                [((1 << n) >> 1, 1 << n, int(4000 * math.exp(-((n - 3) ** 2)))) for n in range(12)],
            ),
            Series(
                "10.0.0.2",
                [((1 << n) >> 1, 1 << n, int(3000 * math.exp(-((n - 5) ** 2)))) for n in range(12)],
            ),
        ],
    )
    heat = Chart(
        title="Messages by queue and hour",
        kind="heat",
        x_label="hour",
        y_label="queue",
        x_kind="time",
        y_kind="category",
        series=[
            Series(
                "",
                [
                    (BEGIN_MS + hour * 3_600_000, f"orders/{queue}", (hour * queue * 37) % 400)
                    for hour in range(24)
                    for queue in range(6)
                ],
            )
        ],
    )
    columns = [
        Column("topic"),
        Column("messages", "", "integer"),
        Column("body_bytes", "B", "bytes"),
        Column("share", "", "share"),
        Column("rate", "msg/s", "number"),
        Column("first_ms", "ms", "time"),
        Column("span_ms", "ms", "duration"),
        Column("ordered", "", "flag"),
    ]
    rows = [
        (
            f"topic-{n}",
            10**n,
            1 << (2 * n),
            n / 25,
            n * 1.23456,
            BEGIN_MS + n,
            999 * n * n,
            n % 2 == 0,
        )
        if n
        else ("nobody", None, None, None, None, None, None, None)
        for n in range(24)
    ]
    return Report(
        name="throughput",
        title="Throughput",
        question="How much was written, where and when?",
        tables=[Table("topics", "By topic", columns, list(rows))],
        charts=[lines, bars, standing, histogram, heat],
        findings=[Finding("info", "topic-7 has half of all bytes.")],
    )


def _timeline() -> Report:
    timeline = Chart(
        title="Roles",
        kind="timeline",
        x_label="time",
        y_label="node",
        x_kind="time",
        series=[
            Series(
                "broker-a:0",
                [
                    (BEGIN_MS, BEGIN_MS + 20 * MINUTE_MS, "SYNC_MASTER"),
                    (BEGIN_MS + 20 * MINUTE_MS, BEGIN_MS + 20 * MINUTE_MS, "killed"),
                    (BEGIN_MS + 31 * MINUTE_MS, None, "SLAVE"),
                ],
            ),
            Series(
                "broker-a:1",
                [
                    (BEGIN_MS + MINUTE_MS, BEGIN_MS + 21 * MINUTE_MS, "SLAVE"),
                    (BEGIN_MS + 22 * MINUTE_MS, None, "SYNC_MASTER"),
                ],
            ),
            Series(
                "broker-a",
                [(BEGIN_MS + 20 * MINUTE_MS, BEGIN_MS + 22 * MINUTE_MS, "no master")],
            ),
        ],
        note="A node without a bar was down.",
    )
    return Report(
        name="failovers",
        title="Failovers",
        question="When could nobody write?",
        charts=[timeline],
        findings=[
            Finding("error", "broker-a had no master for 2 min."),
            Finding("warning", "1,234 puts timed out waiting for a slave."),
        ],
        exit_code=1,
    )


def _hostile() -> Report:
    return Report(
        name="queues",
        title=HOSTILE,
        question=HOSTILE,
        findings=[Finding("warning", HOSTILE)],
        tables=[
            Table(
                "rows", HOSTILE, [Column(HOSTILE), Column("n", HOSTILE, "integer")], [(HOSTILE, 1)]
            )
        ],
        charts=[
            Chart(
                title=HOSTILE,
                kind=kind,  # type: ignore[arg-type]
                x_label=HOSTILE,
                y_label=HOSTILE,
                x_kind="category" if kind == "bar" else "number",
                note=HOSTILE,
                series=[Series(HOSTILE, points), Series("empty", [])],
            )
            for kind, points in (
                ("line", [(1, 2), (2, 3)]),
                ("bar", [(HOSTILE, 2)]),
                ("histogram", [(0, 1, 5)]),
                ("timeline", [(1000, 2000, HOSTILE)]),
                ("heat", [(1, 2, 3)]),
            )
        ],
    )
