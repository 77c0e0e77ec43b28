"""`trioha doctor`: a line per thing, a cure per fault, an exit code."""

from __future__ import annotations

import json
import resource
import zlib
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from trioha.analysis.schema import AnalysisError
from trioha.cli import doctor, run
from trioha.cli.failures import ExitCode

Usage = namedtuple("Usage", "total used free")


def checks(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    run(["doctor", "-o", "json"])
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_every_line_has_a_verdict_and_every_fault_a_cure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["doctor"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 10
    assert {line.split()[0] for line in lines} <= {"ok", "warn"}


def test_few_open_files_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    assert run(["doctor"]) == ExitCode.FAILED
    assert "fail  open files" in capsys.readouterr().out


def test_no_java_is_a_warning_with_its_cure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise AnalysisError("Spark needs Java, and there is none; install Java 17 or newer")

    monkeypatch.setattr(doctor, "find_java", none)
    found = checks(capsys)["Java"]
    assert found["verdict"] == "warn"
    assert found["cure"] == "install Java 17 or newer"


def test_no_pyspark_is_a_warning_with_its_cure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "spark_version", lambda: None)
    found = checks(capsys)["Spark"]
    assert found["verdict"] == "warn"
    assert found["cure"] == "pip install 'trioha[spark]'"


def test_a_full_disk_is_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(100 << 30, 95 << 30, 5 << 30))
    found = checks(capsys)["disk here"]
    assert found["verdict"] == "warn"
    assert "95% used" in found["says"]


def test_a_missing_library_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_LIBRARIES", ("attrs", "no-such-library"))
    found = checks(capsys)["libraries"]
    assert (found["verdict"], found["says"]) == ("fail", "missing: no-such-library")


def test_checksums_by_zlib_are_a_warning_with_its_cure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "crc32", zlib.crc32)
    found = checks(capsys)["checksums"]
    assert found["verdict"] == "warn"
    assert found["cure"] == "pip install isal, where it has a wheel"


def test_a_java_that_was_passed_over_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "no bin/java in it" in json.dumps(checks(capsys)["Java"])
