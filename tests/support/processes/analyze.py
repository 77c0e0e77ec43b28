"""`trioha analyze` as its user runs it, and its reports as plain values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from support.processes.status import run_trioha

ANALYZE_S = 400.0


@attrs.frozen
class Answers:
    """The reports of one analysis, by name."""

    code: int
    out: Path
    reports: dict[str, dict[str, Any]]

    def rows(self, report: str, table: str, **where: object) -> list[dict[str, Any]]:
        """A table's rows, those that have these values."""
        (found,) = (each for each in self.reports[report]["tables"] if each["name"] == table)
        return [
            row for row in found["rows"] if all(row[name] == value for name, value in where.items())
        ]

    def row(self, report: str, table: str, **where: object) -> dict[str, Any]:
        rows = self.rows(report, table, **where)
        assert len(rows) == 1, (report, table, where, rows)
        return rows[0]

    def findings(self, report: str, severity: str) -> list[str]:
        found = self.reports[report]["findings"]
        return [each["text"] for each in found if each["severity"] == severity]

    @property
    def page(self) -> Path:
        return self.out / "report.html"


def analyze(out: Path, arguments: Sequence[str]) -> Answers:
    """Run it; all that it was asked for must be there."""
    done = run_trioha("analyze", *arguments, "--out", str(out), within_s=ANALYZE_S)
    assert out.is_dir(), done.err
    reports = {
        file.parent.name: json.loads(file.read_text()) for file in sorted(out.glob("*/report.json"))
    }
    manifest = json.loads((out / "manifest.json").read_text())
    assert not manifest["partial"], manifest["reason"]
    return Answers(done.code, out, reports)
