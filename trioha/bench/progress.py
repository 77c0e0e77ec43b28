"""The progress of a benchmark: a line per second on stderr."""

from __future__ import annotations

import sys

from trioha.bench.histogram import Histogram


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
