"""The load of a trained build: it runs to its end, and what keeps it from that is told."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import train
import wheels

COMPILE = str(wheels.ROOT / ".ci" / "compile.py")


@pytest.mark.slow
def test_the_load_runs_on_every_cluster_and_each_ends_in_order() -> None:
    command = [sys.executable, train.__file__, "--seconds", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = [f"trained with {' '.join(layout)}" for layout in train.CLUSTERS]
    assert done.stdout.splitlines() == told


def test_a_cluster_that_does_not_start_is_told_with_its_words(tmp_path: Path) -> None:
    words = r"(?s)no-such-layout does not start:.*no-such-layout"
    with pytest.raises(SystemExit, match=words), train.running(["no-such-layout"], tmp_path / "0"):
        pytest.fail("it runs")


def test_a_load_that_leaves_no_counts_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(COMPILE)
    compile_trained_into = script["compile_trained_into"]
    inside = compile_trained_into.__globals__
    compiled: list[Path] = []
    paths: list[str] = []
    monkeypatch.setitem(inside, "KEPT", tmp_path)
    monkeypatch.setitem(inside, "compile_into", lambda out, *_: compiled.append(out))
    monkeypatch.setitem(inside, "remove", lambda root: None)
    monkeypatch.setattr(subprocess, "run", lambda *_, env, **__: paths.append(env["PYTHONPATH"]))
    monkeypatch.setenv("PYTHONPATH", "pip's own")
    with pytest.raises(SystemExit, match="needs gcc"):
        compile_trained_into(tmp_path / "out")
    assert compiled == [wheels.ROOT]
    assert paths == [f"{wheels.ROOT}{os.pathsep}pip's own"]
