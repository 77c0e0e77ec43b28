"""Results appear whole under their name, or under a partial one, and nothing foreign is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trioha.analysis.inputs import Inputs
from trioha.analysis.manifest import Manifest, NotOurs, ReportRecord
from trioha.analysis.output import OutputDirectory
from trioha.analysis.results import Column, Finding, Report, Table
from trioha.errors import ConfigError

REPORT = Report(
    name="sample",
    title="Sample",
    question="What?",
    tables=[
        Table(
            "rows",
            "Rows",
            [
                Column("store"),
                Column("at_ms", kind="time"),
                Column("count", kind="integer"),
                Column("share", kind="share"),
                Column("ok", kind="flag"),
                Column("size", "B", "bytes"),
            ],
            [("a", 1_763_510_400_000, 3, 0.5, True, 1 << 40), ("b", None, 4, None, None, 0)],
        )
    ],
    findings=[Finding("info", "All is well.")],
)


def manifest() -> Manifest:
    return Manifest(Inputs([]), {"name": "local", "version": "3"}, 1_763_510_400_000)


def finished(out: Path, *, overwrite: bool = False) -> OutputDirectory:
    directory = OutputDirectory(out, overwrite=overwrite)
    directory.open()
    made = manifest()
    made.records.append(ReportRecord("sample", "Sample", 0.1, REPORT))
    directory.write_report(REPORT)
    made.partial = False
    made.finished_ms = made.started_ms + 5
    directory.write_page(made)
    directory.finish(made)
    return directory


def test_a_whole_result_has_its_name_and_no_scratch(tmp_path: Path) -> None:
    finished(tmp_path / "out")
    names = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert names == [
        "out/manifest.json",
        "out/report.html",
        "out/sample/report.json",
        "out/sample/rows.csv",
        "out/sample/rows.parquet",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    written = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert written["partial"] is False
    assert written["reports"][0]["tables"][0]["rows"] == 2


def test_parquet_has_the_types_of_its_columns(tmp_path: Path) -> None:
    from pyarrow import parquet

    finished(tmp_path / "out")
    table = parquet.read_table(tmp_path / "out" / "sample" / "rows.parquet")
    assert [str(field.type) for field in table.schema] == [
        "string",
        "timestamp[ms, tz=UTC]",
        "int64",
        "double",
        "bool",
        "int64",
    ]
    assert table.num_rows == 2
    assert table["size"].to_pylist() == [1 << 40, 0]
    assert table["ok"].to_pylist() == [True, None]


def test_what_is_there_is_not_overwritten_unasked(tmp_path: Path) -> None:
    finished(tmp_path / "out")
    with pytest.raises(ConfigError, match="out exists; choose another --out, or give --overwrite"):
        OutputDirectory(tmp_path / "out", overwrite=False).open()
    finished(tmp_path / "out", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
def test_a_directory_of_somebody_else_is_never_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text('{"made_by": "somebody"}')
    with pytest.raises(NotOurs, match="was not made by `trioha analyze`, so it stays"):
        OutputDirectory(tmp_path / "out", overwrite=True).open()
    assert (tmp_path / "out" / name).exists()


def test_a_file_or_a_link_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finished(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    for name in ("file", "link"):
        with pytest.raises(ConfigError, match="is no directory"):
            OutputDirectory(tmp_path / name, overwrite=True).open()


def test_an_abandoned_analysis_keeps_what_it_made_and_says_so(tmp_path: Path) -> None:
    finished(tmp_path / "out")
    directory = OutputDirectory(tmp_path / "out", overwrite=True)
    directory.open()
    directory.write_report(REPORT)
    made = manifest()
    made.reason = "interrupted"
    directory.abandon(made)
    kept = tmp_path / "out.partial"
    assert json.loads((kept / "manifest.json").read_text())["reason"] == "interrupted"
    assert (kept / "sample" / "report.json").exists()
    assert not (kept / ".scratch").exists()
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["partial"] is False


def test_the_rest_of_a_broken_run_is_not_overwritten_unasked(tmp_path: Path) -> None:
    directory = OutputDirectory(tmp_path / "out", overwrite=False)
    directory.open()
    directory.abandon(manifest())
    with pytest.raises(ConfigError, match=r"out\.partial is left from a broken run"):
        OutputDirectory(tmp_path / "out", overwrite=False).open()
    finished(tmp_path / "out", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
