"""`trioha run cluster` and `trioha demo`, with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
SMALL = (
    *("--set", "mappedFileSizeCommitLog=8MiB", "--set", "maxHashSlotNum=1000"),
    *("--set", "maxIndexNum=4000", "--set", "diskSpaceWarningLevelRatio=99"),
)


def trioha(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trioha", *arguments]


def test_a_cluster_comes_up_reports_a_death_and_stops_in_order(tmp_path: Path) -> None:
    with subprocess.Popen(
        trioha(
            *("run", "cluster", "2m-2s-async", "--listen", "127.0.0.1:0", "--broker-port", "0"),
            *("--dir", str(tmp_path / "c"), *SMALL),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as cluster:
        try:
            assert cluster.stdout is not None
            lines: list[str] = []
            while not lines or " cluster " not in lines[-1]:
                lines.append(cluster.stdout.readline())
                assert lines[-1], cluster.stderr.read() if cluster.stderr else ""
            found = re.fullmatch(r"trioha cluster 2m-2s-async ready namesrv=(\S+)\n", lines[-1])
            assert found
            status = subprocess.run(
                trioha("ha", "status", "-n", found[1], "-o", "json"),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                cwd=ROOT,
            )
            assert status.returncode == 0, status.stderr
            brokers = json.loads(status.stdout)["brokers"]
            assert [(b["name"], b["id"]) for b in brokers] == [
                ("broker-a", 0),
                ("broker-a", 1),
                ("broker-b", 0),
                ("broker-b", 1),
            ]
            (victim,) = (line for line in lines if "broker-b id=1" in line)
            pid = int(victim.rpartition("pid=")[2])
            os.kill(pid, signal.SIGKILL)
            assert cluster.stderr is not None
            seen = ""
            deadline = time.monotonic() + PATIENCE_S
            while "not restarted" not in seen:
                assert time.monotonic() < deadline
                seen = cluster.stderr.readline()
            assert f"broker-b-1 (pid {pid}) died with exit code -9" in seen
            cluster.send_signal(signal.SIGINT)
            _, err = cluster.communicate(timeout=PATIENCE_S)
        finally:
            cluster.kill()
    assert cluster.returncode == 1
    assert err.splitlines()[-1] == "trioha: 1 node(s) died while the cluster ran"
    assert "Traceback" not in err
    pids = [int(line.rpartition("pid=")[2]) for line in lines if "pid=" in line]
    assert len(pids) == 5
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    for label in ("broker-a-0", "broker-b-0", "broker-a-1"):
        assert not (tmp_path / "c" / label / "abort").exists(), label


def test_the_demo_holds_and_cleans_up(tmp_path: Path) -> None:
    demo = subprocess.run(
        trioha("demo", "--count", "500"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
        # A setting for other nodes must not disturb it.
        env={**os.environ, "TMPDIR": str(tmp_path), "TRIOHA_BROKER_ROLE": "nonsense"},
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "500 acknowledged" in demo.stdout
    assert "is master of broker-a since epoch 3" in demo.stdout
    assert "it found out that it is not master any more, and follows" in demo.stdout
    assert "acknowledged ones was consumed" in demo.stdout
    assert "equal, byte for byte" in demo.stdout
    assert "no queue offset is missing or there twice" in demo.stdout
    assert "All 11 checks held" in demo.stdout
    assert list(tmp_path.iterdir()) == []
    pids = re.findall(r"^   \S+ +127\S+ +pid (\d+)", demo.stdout, re.MULTILINE)
    assert len(pids) == 4, "name server, master, slave, and the old master once more"
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_the_demo_of_a_group_holds_and_cleans_up(tmp_path: Path) -> None:
    demo = subprocess.run(
        trioha("demo", "--raft", "--count", "500"),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path), "TRIOHA_BROKER_ROLE": "nonsense"},
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "500 acknowledged" in demo.stdout
    (first, second) = re.findall(r"ok: (n\d) was elected, in term (\d+)", demo.stdout)
    assert int(first[1]) < int(second[1])
    (killed,) = re.findall(r"kill the leader (n\d) ", demo.stdout)
    assert killed != second[0]
    assert f"ok: {killed} leads; the longest pause" in demo.stdout
    assert "acknowledged ones was consumed" in demo.stdout
    assert demo.stdout.count("two logs are equal, byte for byte") == 2
    assert "All 14 checks held" in demo.stdout
    assert list(tmp_path.iterdir()) == []
    pids = re.findall(r"^   \S+ +127\S+ +pid (\d+)", demo.stdout, re.MULTILINE)
    assert len(pids) == 5, "name server, three members, and the old leader once more"
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_group_of_three_comes_up_and_has_a_leader(tmp_path: Path) -> None:
    with subprocess.Popen(
        trioha(
            *("run", "cluster", "3n-dledger", "--listen", "127.0.0.1:0", "--broker-port", "0"),
            *("--dir", str(tmp_path / "c"), *SMALL),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as cluster:
        try:
            assert cluster.stdout is not None
            lines: list[str] = []
            while not lines or " cluster " not in lines[-1]:
                lines.append(cluster.stdout.readline())
                assert lines[-1], cluster.stderr.read() if cluster.stderr else ""
            found = re.fullmatch(r"trioha cluster 3n-dledger ready namesrv=(\S+)\n", lines[-1])
            assert found
            status = subprocess.run(
                trioha("raft", "status", "-n", found[1], "-o", "json"),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                cwd=ROOT,
            )
            assert status.returncode in (0, 1), status.stderr  # 1: followers may not be level yet
            (group,) = json.loads(status.stdout)["groups"]
            assert group["serving"]
            assert sorted(group["voters"]) == ["n0", "n1", "n2"]
            cluster.send_signal(signal.SIGINT)
            _, err = cluster.communicate(timeout=PATIENCE_S)
        finally:
            cluster.kill()
    assert cluster.returncode in (0, 130), err
    assert "Traceback" not in err


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        trioha("demo", "--count", "200000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
    ) as demo:
        try:
            assert demo.stdout is not None
            lines: list[str] = []
            while "Send" not in "".join(lines):
                lines.append(demo.stdout.readline())
                assert lines[-1]
            demo.send_signal(signal.SIGINT)
            _, err = demo.communicate(timeout=PATIENCE_S)
        finally:
            demo.kill()
    assert demo.returncode == 130
    assert err == "trioha: interrupted\n"
    assert list(tmp_path.iterdir()) == []
    assert not [
        pid for pid in re.findall(r"pid (\d+)", "".join(lines)) if Path(f"/proc/{pid}").exists()
    ]
