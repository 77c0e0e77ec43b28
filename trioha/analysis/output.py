"""The directory of results: written beside its final name, renamed when it is whole.

    OUT/manifest.json               inputs, versions, counts, time; `partial` when something lacks
    OUT/report.html                 one page for people
    OUT/<report>/report.json        a report as it is: tables, charts, findings
    OUT/<report>/<table>.parquet    its tables, for programs

Durability: results can be computed again, so nothing is fsynced. What counts is that OUT is never
half old and half new: an interrupted analysis leaves ``OUT.partial`` and an older OUT untouched.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

import trioha
from trioha.analysis.manifest import MANIFEST, Manifest, check_ours, engine_in_words
from trioha.analysis.replicas import folded
from trioha.analysis.results import Column, Report, Table
from trioha.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow

PAGE = "report.html"


class OutputDirectory:
    """Directory of the results. `open` it before anything is computed: a wrong --out ends early."""

    def __init__(self, final: Path, *, overwrite: bool) -> None:
        self.final = final
        self.partial = final.with_name(f"{final.name}.partial")
        self.scratch = self.partial / ".scratch"
        """Directory for databases and shuffles, removed before the results get their final name."""
        self._overwrite = overwrite

    def open(self) -> None:
        """Make the directory under its partial name.

        Errors: ConfigError when it exists and may not be overwritten; NotOurs when it exists and is
        none of ours; OSError when it cannot be written.
        """
        if not self.final.name:
            raise ConfigError(f"--out {self.final} is no name for a directory")
        for path, what in ((self.final, "exists"), (self.partial, "is left from a broken run")):
            if not os.path.lexists(path):
                continue
            if not self._overwrite:
                raise ConfigError(f"{path} {what}; choose another --out, or give --overwrite")
            if path.is_symlink() or not path.is_dir():
                raise ConfigError(f"{path} is no directory; choose another --out")
            if any(path.iterdir()):
                check_ours(path)
        if self.partial.exists():
            shutil.rmtree(self.partial)
        self.partial.mkdir(parents=True)
        self.scratch.mkdir()

    def write_report(self, report: Report) -> None:
        """All files of a report, or none. Errors: OSError: no room."""
        from trioha.analysis.page.csv_text import csv_of

        directory = self.scratch / f"report-{report.name}"
        directory.mkdir()
        with (directory / "report.json").open("w") as file:
            json.dump(report_as_json(report), file, indent=1)
            file.write("\n")
        for table in report.tables:
            _write_parquet(table, directory / f"{table.name}.parquet")
            (directory / f"{table.name}.csv").write_bytes(csv_of(table))
        os.rename(directory, self.partial / report.name)

    def write_page(self, manifest: Manifest) -> None:
        """The HTML page over all reports that have an answer. Errors: OSError: no room."""
        from trioha.analysis.page import PageMeta, render_page

        extents = manifest.extents.values()
        inputs = manifest.inputs
        meta = PageMeta(
            stores=[store.label for store in inputs.stores],
            journals=[str(path) for path in inputs.journals],
            engine=engine_in_words(manifest.engine),
            version=trioha.__version__,
            created_ms=manifest.started_ms,
            elapsed_ms=(manifest.finished_ms or manifest.started_ms) - manifest.started_ms,
            window=inputs.window,
            first_ms=min((extent.first_ms for extent in extents), default=None),
            last_ms=max((extent.last_ms for extent in extents), default=None),
            records=sum(extent.records for extent in extents) if extents else None,
            bytes=inputs.bytes_total,
            notes=list(inputs.notes),
            partial=(manifest.reason or "") if manifest.partial else "",
            skipped={
                record.name: record.error or record.skipped or ""
                for record in manifest.records
                if record.report is None
            },
        )
        reports = [
            folded(record.report, meta.stores)
            for record in manifest.records
            if record.report is not None
        ]
        (self.partial / PAGE).write_text(render_page(reports, meta), encoding="utf-8")

    def finish(self, manifest: Manifest) -> Path:
        """Write the manifest and give the directory its name. Returns where the results are."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        manifest.write(self.partial)
        old = self.final.with_name(f"{self.final.name}.old-{os.getpid()}")
        if os.path.lexists(self.final):
            os.rename(self.final, old)
        os.rename(self.partial, self.final)
        shutil.rmtree(old, ignore_errors=True)
        return self.final

    def abandon(self, manifest: Manifest) -> Path:
        """Leave what there is under the partial name, marked. Returns where that is."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        manifest.write(self.partial)
        return self.partial

    def discard(self) -> None:
        """Remove the directory: nothing was computed."""
        shutil.rmtree(self.partial, ignore_errors=True)


def report_as_json(report: Report) -> dict[str, Any]:
    """A report for programs: tables as lists of objects."""
    return {
        "name": report.name,
        "title": report.title,
        "question": report.question,
        "exit_code": report.exit_code,
        "findings": [attrs.asdict(finding) for finding in report.findings],
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "note": table.note,
                "columns": [attrs.asdict(column) for column in table.columns],
                "rows": [
                    dict(zip([column.name for column in table.columns], row, strict=True))
                    for row in table.rows
                ],
            }
            for table in report.tables
        ],
        "charts": [attrs.asdict(chart) for chart in report.charts],
    }


def _write_parquet(table: Table, path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    columns: list[pyarrow.Array[Any]] = [
        pyarrow.array([row[i] for row in table.rows], type=_type(pyarrow, column))
        for i, column in enumerate(table.columns)
    ]
    names = [column.name for column in table.columns]
    units = {column.name: column.unit for column in table.columns if column.unit}
    arrow = pyarrow.Table.from_arrays(columns, names=names)
    arrow = arrow.replace_schema_metadata({"title": table.title, "units": json.dumps(units)})
    pyarrow.parquet.write_table(arrow, path)


def _type(pyarrow: Any, column: Column) -> Any:
    if column.kind == "text":
        return pyarrow.string()
    if column.kind == "time":
        return pyarrow.timestamp("ms", tz="UTC")
    if column.kind == "flag":
        return pyarrow.bool_()
    return pyarrow.float64() if column.kind in ("number", "share") else pyarrow.int64()


__all__ = ["MANIFEST", "PAGE", "OutputDirectory", "report_as_json"]
