"""Reports, one after the other, into a directory that says at any moment how far they got."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import attrs

from trioha.analysis.engine import VIEWS, Engine
from trioha.analysis.inputs import Inputs
from trioha.analysis.manifest import Manifest, ReportRecord, WindowExtent
from trioha.analysis.output import OutputDirectory
from trioha.analysis.reports import REPORTS
from trioha.analysis.results import ReportOptions, ReportSpec
from trioha.analysis.schema import AnalysisError

_JOURNAL_VIEWS = frozenset({"journal", "journal_corrupt"})
_LOG_VIEWS = frozenset(VIEWS) - _JOURNAL_VIEWS
_STATISTIC = "commitlog_stats"


def missing_need(spec: ReportSpec, inputs: Inputs, options: ReportOptions) -> str | None:
    """Return the input that a report lacks, as the end of a sentence; None if it lacks nothing."""
    needs = spec.load().NEEDS
    if "key or id" in needs and options.key is None and options.message_id is None:
        return "needs --key or --id"
    if "two stores" in needs and len(inputs.stores) < 2:
        return "needs two stores to compare"
    if needs & _LOG_VIEWS and not inputs.stores:
        return "needs a store"
    if needs & _JOURNAL_VIEWS and not needs & _LOG_VIEWS and not inputs.journals:
        return "needs a journal, and none lies beside the stores; give --journal DIR"
    return None


def views_of(specs: Sequence[ReportSpec]) -> frozenset[str]:
    """Views that these reports read."""
    return frozenset().union(*(spec.load().NEEDS for spec in specs)) & frozenset(VIEWS)


@attrs.define(eq=False)
class Analysis:
    """Makes reports and writes each as soon as it is there.

    Errors: a report that fails is recorded with its sentence and the next one is made. OSError and
    KeyboardInterrupt end the analysis; what was written stays.
    """

    _engine: Engine
    _manifest: Manifest
    _output: OutputDirectory
    _on_report: Callable[[ReportRecord], None]

    def run(self, specs: Sequence[ReportSpec], options: ReportOptions) -> None:
        """Make the reports in this order."""
        inputs = self._manifest.inputs
        needs: set[str] = set()
        self._manifest.write(self._output.partial)
        for spec in specs:
            lack = missing_need(spec, inputs, options)
            if lack is not None:
                self._record(ReportRecord(spec.name, spec.title, 0.0, skipped=lack))
                continue
            needs |= spec.load().NEEDS
            self._record(self._made(spec, options))
        if _STATISTIC in needs:
            self._manifest.extents = self._extents()

    def _made(self, spec: ReportSpec, options: ReportOptions) -> ReportRecord:
        began = time.perf_counter()
        try:
            report = spec.load().run(self._engine, options)
        except AnalysisError as error:
            return ReportRecord(
                spec.name, spec.title, time.perf_counter() - began, error=str(error)
            )
        self._output.write_report(report)
        return ReportRecord(spec.name, spec.title, time.perf_counter() - began, report)

    def _record(self, record: ReportRecord) -> None:
        self._manifest.records.append(record)
        self._manifest.write(self._output.partial)
        self._on_report(record)

    def _extents(self) -> dict[str, WindowExtent]:
        rows = self._engine.query(
            "SELECT store, SUM(messages) AS records, MIN(store_ms_min) AS first_ms,"
            " MAX(store_ms_max) AS last_ms FROM commitlog_stats GROUP BY store",
        )
        return {
            row["store"]: WindowExtent(row["records"], row["first_ms"], row["last_ms"])
            for row in rows
        }


def specs_named(names: Sequence[str]) -> list[ReportSpec]:
    """The reports of these names in the registry's order; all when none is named.

    Errors: KeyError with the first name that is none.
    """
    for name in names:
        if name not in REPORTS:
            raise KeyError(name)
    return [spec for spec in REPORTS.values() if not names or spec.name in names]
