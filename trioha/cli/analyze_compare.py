"""`trioha analyze --compare OTHER`: the same figures of another run or window, side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import attrs
import click

from trioha.analysis.comparison import NAME, TITLE, Run, comparison, read_run
from trioha.analysis.engine import Engine, Window
from trioha.analysis.inputs import Inputs
from trioha.analysis.manifest import Manifest, ReportRecord
from trioha.analysis.output import OutputDirectory
from trioha.analysis.page.formats import format_time
from trioha.analysis.results import ReportOptions, ReportSpec
from trioha.analysis.run import missing_need, views_of
from trioha.analysis.schema import AnalysisError
from trioha.cli.measures import Moment

EngineOpener = Callable[[Inputs, Path, Collection[str]], AbstractContextManager[Engine]]
"""Opens an engine over inputs, with a directory for its files, for queries of these views."""
_BETWEEN = ".."


class Other(click.ParamType[Path | Window]):
    """A directory that `trioha analyze` made, or a window: ``2026-11-20T09:00..2026-11-20T10:00``.
    Either end of a window may be left out."""

    name = "other"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | Window:
        if isinstance(value, (Path, Window)):
            return value
        said = str(value)
        if os.path.isdir(said):
            return Path(said)
        begin, between, end = said.partition(_BETWEEN)
        if not between or not (begin or end) or "/" in said:
            self.fail(
                f"{value} is neither a directory nor a window; name an --out of before, or write "
                "FROM..TO",
                param,
                ctx,
            )
        from_ms = Moment().convert(begin, param, ctx) if begin else None
        to_ms = Moment().convert(end, param, ctx) if end else None
        if from_ms is not None and to_ms is not None and from_ms >= to_ms:
            self.fail(f"{value} ends before it begins", param, ctx)
        return Window(from_ms, to_ms)


def other_run(other: Path | Window) -> Run | None:
    """Read the run of before; None for a window, whose reports are yet to be made.

    Errors: ConfigError when the run cannot be read.
    """
    return read_run(other) if isinstance(other, Path) else None


def add_comparison(
    other: Path | Window,
    before: Run | None,
    specs: Sequence[ReportSpec],
    options: ReportOptions,
    manifest: Manifest,
    directory: OutputDirectory,
    open_engine: EngineOpener,
) -> None:
    """Compare the reports that were made with those of the other run, and write the result."""
    began = time.perf_counter()
    inputs = manifest.inputs
    stores = [store.label for store in inputs.stores]
    made = [record.report for record in manifest.records if record.report is not None]
    if before is None:
        assert isinstance(other, Window)
        names = {report.name for report in made}
        wanted = [spec for spec in specs if spec.name in names]
        before = _windowed(other, inputs, wanted, options, directory, open_engine)
    after = Run(f"this run ({_in_words(inputs.window)})", stores, made)
    report = comparison(before, after)
    directory.write_report(report)
    manifest.compared_with = before.name
    seconds = time.perf_counter() - began
    manifest.records.append(ReportRecord(NAME, TITLE, seconds, report))
    manifest.write(directory.partial)


def _windowed(
    window: Window,
    inputs: Inputs,
    specs: Sequence[ReportSpec],
    options: ReportOptions,
    directory: OutputDirectory,
    open_engine: EngineOpener,
) -> Run:
    """The same reports of the same stores and journals, in another window."""
    others = attrs.evolve(inputs, window=window)
    scratch = directory.scratch / NAME
    scratch.mkdir()
    reports = []
    with open_engine(others, scratch, views_of(specs)) as engine:
        for spec in specs:
            if missing_need(spec, others, options) is None:
                try:
                    reports.append(spec.load().run(engine, options))
                except AnalysisError as error:
                    inputs.note(f"{spec.name} of the window to compare with: {error}")
    return Run(f"the window {_in_words(window)}", [s.label for s in inputs.stores], reports)


def _in_words(window: Window) -> str:
    if window.from_ms is None and window.to_ms is None:
        return "everything"
    parts = [] if window.from_ms is None else [f"from {format_time(window.from_ms)}"]
    parts += [] if window.to_ms is None else [f"before {format_time(window.to_ms)}"]
    return f"{' '.join(parts)} UTC"
