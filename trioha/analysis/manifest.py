"""Manifest of a set of results, `manifest.json`: the inputs, and the reports made so far.

The file is there from the first moment, marked partial, and is written again as reports come in; so
whatever ended an analysis, what lies on disk says what it is. Fields are added, never renamed.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

import trioha
from trioha.analysis.inputs import Inputs
from trioha.analysis.results import Report
from trioha.errors import ConfigError

MANIFEST = "manifest.json"
FORMAT = 1
_MADE_BY = "trioha analyze"


@attrs.frozen
class ReportRecord:
    """One report of an analysis: an answer, or why there is none."""

    name: str
    title: str
    seconds: float
    report: Report | None = None
    error: str | None = None
    skipped: str | None = None

    def as_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "name": self.name,
            "title": self.title,
            "seconds": round(self.seconds, 3),
        }
        if self.report is not None:
            entry["exit_code"] = self.report.exit_code
            entry["tables"] = [
                {
                    "name": table.name,
                    "rows": len(table.rows),
                    "columns": [
                        {"name": column.name, "kind": column.kind, "unit": column.unit}
                        for column in table.columns
                    ],
                }
                for table in self.report.tables
            ]
        if self.error is not None:
            entry["error"] = self.error
        if self.skipped is not None:
            entry["skipped"] = self.skipped
        return entry


@attrs.frozen
class WindowExtent:
    """Count and time span of a store's records within the window."""

    records: int
    first_ms: int
    last_ms: int


def engine_in_words(engine: Mapping[str, Any]) -> str:
    """``local (DuckDB 1.4.0)``, ``Spark 4.3.0 on local[2] (Java 17 from PATH: …)``."""
    if engine["name"] == "spark":
        return f"Spark {engine['version']} on {engine['master']} ({engine['java']})"
    return f"local (DuckDB {engine['version']})"


@attrs.define(eq=False)
class Manifest:
    """Built up while an analysis runs."""

    inputs: Inputs
    engine: Mapping[str, Any]
    """name and version; for spark also master, parallelism and java."""
    started_ms: int
    records: list[ReportRecord] = attrs.field(factory=list)
    extents: dict[str, WindowExtent] = attrs.field(factory=dict)
    """Extents by store; empty when no report read the logs."""
    partial: bool = True
    reason: str | None = None
    """Reason why it is partial."""
    finished_ms: int | None = None
    compared_with: str | None = None
    """The run or the window that the figures were compared with, in words."""

    def as_json(self) -> dict[str, Any]:
        window = self.inputs.window
        return {
            "made_by": _MADE_BY,
            "format": FORMAT,
            "trioha": trioha.__version__,
            "python": platform.python_version(),
            "partial": self.partial,
            "reason": self.reason,
            "started_ms": self.started_ms,
            "finished_ms": self.finished_ms,
            "engine": dict(self.engine),
            "from_ms": window.from_ms,
            "to_ms": window.to_ms,
            "stores": [
                {
                    "label": store.label,
                    "segments": len(store.segments),
                    "bytes": self.inputs.log_bytes[store.label],
                    "from_offset": store.segments[0].from_offset if store.segments else None,
                    **self._extent_as_json(store.label),
                }
                for store in self.inputs.stores
            ],
            "journals": [str(path) for path in self.inputs.journals],
            "reports": [record.as_json() for record in self.records],
            "compared_with": self.compared_with,
            "notes": list(self.inputs.notes),
        }

    def _extent_as_json(self, label: str) -> dict[str, int | None]:
        extent = self.extents.get(label)
        if extent is None:
            return {"records": None, "first_ms": None, "last_ms": None}
        return attrs.asdict(extent)

    def write(self, directory: Path) -> None:
        """Replace the file in one step."""
        path = directory / MANIFEST
        made = path.with_suffix(".new")
        with made.open("w") as file:
            json.dump(self.as_json(), file, indent=2)
            file.write("\n")
        os.replace(made, path)


class NotOurs(ConfigError):
    """A directory that this program did not make; it is not touched."""


def check_ours(directory: Path) -> None:
    """Errors: NotOurs unless the directory holds a manifest that an analysis wrote."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        ours = manifest["made_by"] == _MADE_BY
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise NotOurs(
            f"{directory} was not made by `{_MADE_BY}`, so it stays; choose another --out"
        )
