"""Registering the sources where Spark starts another Python than the user's."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.suite.skips import importable, skip_unless

from trioha.analysis.schema import AnalysisError
from trioha.analysis.spark import register

skip_unless(importable("pyspark"), "needs the extra spark")


def session(python: str) -> Any:
    """Return the parts of a session that `register` uses."""
    registered: list[object] = []
    return SimpleNamespace(
        sparkContext=SimpleNamespace(pythonExec=python),
        dataSource=SimpleNamespace(register=registered.append),
        registered=registered,
    )


def python(path: Path, arguments: str) -> str:
    """Write a script that runs Python; `arguments` may isolate it from our packages."""
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_a_python_without_our_packages_is_named_with_the_cure(tmp_path: Path) -> None:
    other = python(tmp_path / "python3", "-I -S")
    spark = session(other)
    with pytest.raises(AnalysisError) as raised:
        register(spark)
    assert str(raised.value) == (
        f"Spark starts {other} for its workers, and ModuleNotFoundError: No module named 'trioha'; "
        f"set PYSPARK_PYTHON={sys.executable} before the session is made, or install "
        "trioha[spark] for that Python"
    )
    assert not spark.registered
    with pytest.raises(AnalysisError, match="python-of-nobody for its workers, and it is not on"):
        register(session("python-of-nobody"))


def test_an_archive_that_the_session_gives_its_workers_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trioha.analysis.spark.session import _pack

    archive = tmp_path / "trioha.zip"
    _pack(archive)
    site = next(path for path in sys.path if path.endswith("site-packages"))
    (tmp_path / "site").mkdir()
    for path in Path(site).iterdir():
        if not path.name.endswith(".pth") and "trioha" not in path.name:
            (tmp_path / "site" / path.name).symlink_to(path)
    other = python(tmp_path / "python3", "-S")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AnalysisError, match="No module named 'trioha'"):
        register(session(other))
    monkeypatch.setattr(sys, "path", [*sys.path, str(archive)])
    spark = session(other)
    register(spark)
    assert spark.registered


def test_one_that_has_them_will_do(tmp_path: Path) -> None:
    for name in (sys.executable, python(tmp_path / "python3", "")):
        spark = session(name)
        register(spark)
        assert len(spark.registered) == 6
