"""`trioha analyze export` as its user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.stores.logs import LogMessage, make_log

from trioha.cli import run


def test_stores_of_a_directory_become_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        make_log([LogMessage()] * 20).write(tmp_path / "many" / name / "commitlog")
    out = tmp_path / "out"
    assert run(["analyze", "export", str(tmp_path / "many"), "--out", str(out), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"out": str(out), "records": 40, "damaged": 0}
    assert [path.name for path in out.iterdir()] == ["day=1970-01-01"]


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", "export", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "is not a store" in capsys.readouterr().err
    make_log([LogMessage()]).write(tmp_path / "commitlog")
    assert run(["analyze", "export", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert f"{tmp_path} exists" in capsys.readouterr().err
