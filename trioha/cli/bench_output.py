"""What benchmarks print: a line per second on stderr, the figures on stdout."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import attrs
import click

from trioha.cli.output import print_json, table
from trioha.client.histogram import Histogram, LatencySummary

_LATENCY_HEAD = ("", "count", "avg ms", "p50", "p99", "p99.9", "max")


class ProgressLine:
    """One line that is written over on a terminal, one line a second elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._end = "\r" if sys.stderr.isatty() else "\n"

    def show(self, elapsed_s: float, text: str) -> None:
        if not self._quiet:
            sys.stderr.write(f"{elapsed_s:6.1f} s  {text:<70}{self._end}")
            sys.stderr.flush()

    def latencies(self, histogram: Histogram) -> str:
        p50_ms, p99_ms = (histogram.percentile_ns(percent) / 1e6 for percent in (50, 99))
        return f"p50 {p50_ms:.3f} ms  p99 {p99_ms:.3f} ms" if histogram.count else "warming up"


def print_report(
    bench: str, setup: Mapping[str, object], report: attrs.AttrsInstance, output: str
) -> None:
    """The figures of one run; `report` is an attrs value."""
    figures = attrs.asdict(report)
    if output == "json":
        print_json({"bench": bench, "setup": dict(setup), "report": figures})
        return
    click.echo(f"{bench}: " + ", ".join(f"{name} {value}" for name, value in setup.items()))
    latencies = []
    for field in attrs.fields(type(report)):
        value = getattr(report, field.name)
        label = field.name.replace("_", " ")
        if isinstance(value, LatencySummary):
            latencies.append((label, *attrs.astuple(value)))
        else:
            click.echo(f"  {label:<26} {_in_words(value)}")
    if latencies:
        click.echo(table(_LATENCY_HEAD, latencies))


def _in_words(value: object) -> str:
    if isinstance(value, (int, float)):
        return f"{value:,}"
    return str(value or "-")
