"""Queues and their consumers: skew, lag, retries and dead letters, delays, transactions."""

from __future__ import annotations

from trioha.analysis.engine import Engine
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.consumer_lag import (
    lag_findings,
    lag_over_time,
    lag_tables,
    lags_now,
    queue_ends,
)
from trioha.analysis.reports.queue_skew import skew_chart, skew_findings, skew_table
from trioha.analysis.reports.redelivery import delays, redelivery
from trioha.analysis.reports.transactions import transactions
from trioha.analysis.results import Report, ReportOptions

SPEC = REPORTS["queues"]
NEEDS = frozenset({"commitlog", "commitlog_full", "commitlog_stats", "consumequeue"})


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report."""
    skew = skew_table(engine, options.top)
    ends = queue_ends(engine)
    lags = lags_now(engine, ends)
    by_group = lag_tables(lags, options.top)
    over_time, lag_charts = lag_over_time(engine)
    again, again_charts, again_findings = redelivery(engine, options.now_ms, options.top)
    delayed, delay_findings = delays(engine, ends)
    halves, half_findings = transactions(engine, options.now_ms)
    return Report(
        **SPEC.heading,
        tables=[skew, *by_group, *over_time, *again, *delayed, *halves],
        charts=[skew_chart(skew), *lag_charts, *again_charts],
        findings=[
            *skew_findings(skew),
            *lag_findings(by_group, lags),
            *again_findings,
            *delay_findings,
            *half_findings,
        ],
    )
