"""`trioha run cluster` and `trioha demo`, with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from support.clusters.run_cluster import run_cluster
from support.processes.rig import Process, Processes

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60


def trioha(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trioha", *arguments]


def status(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        trioha(*arguments, "-o", "json"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
    )


def test_a_cluster_comes_up_reports_a_death_and_stops_in_order(
    processes: Processes, tmp_path: Path
) -> None:
    cluster, namesrv = run_cluster(processes, "2m-2s-async", tmp_path / "c")
    done = status("ha", "status", "-n", namesrv)
    assert done.returncode == 0, done.stderr
    brokers = json.loads(done.stdout)["brokers"]
    assert [(b["name"], b["id"]) for b in brokers] == [
        ("broker-a", 0),
        ("broker-a", 1),
        ("broker-b", 0),
        ("broker-b", 1),
    ]
    ready = re.findall(r"^trioha .* pid=(\d+)$", cluster.log_path.read_text(), re.MULTILINE)
    pids = [int(pid) for pid in ready]
    assert len(pids) == 5
    victim = int(cluster.wait_for_line(r"^trioha broker broker-b id=1 .*pid=(\d+)")[1])
    os.kill(victim, signal.SIGKILL)
    cluster.wait_for_line(rf"broker-b-1 \(pid {victim}\) died with exit code -9.*not restarted")
    cluster.signal(signal.SIGINT)
    assert cluster.wait(PATIENCE_S) == 1
    said = cluster.log_path.read_text()
    assert said.splitlines()[-1] == "trioha: 1 node(s) died while the cluster ran"
    assert "Traceback" not in said
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


def test_a_group_of_three_comes_up_and_has_a_leader(processes: Processes, tmp_path: Path) -> None:
    cluster, namesrv = run_cluster(processes, "3n-dledger", tmp_path / "c")
    done = status("raft", "status", "-n", namesrv)
    assert done.returncode in (0, 1), done.stderr  # 1: followers may not be up to date yet
    (group,) = json.loads(done.stdout)["groups"]
    assert group["serving"]
    assert sorted(group["voters"]) == ["n0", "n1", "n2"]
    cluster.signal(signal.SIGINT)
    assert cluster.wait(PATIENCE_S) in (0, 130)
    assert "Traceback" not in cluster.log_path.read_text()


def test_an_interrupted_demo_leaves_nothing_behind(processes: Processes, tmp_path: Path) -> None:
    home = tmp_path / "tmp"
    home.mkdir()
    environment = {**os.environ, "TMPDIR": str(home), "PYTHONUNBUFFERED": "1"}
    command = trioha("demo", "--count", "200000")
    log = tmp_path / "logs" / "demo.log"
    demo = processes.add(Process("demo", command, log, environment, ROOT))
    demo.start()
    demo.wait_for_line("Send", PATIENCE_S)
    demo.signal(signal.SIGINT)
    assert demo.wait(PATIENCE_S) == 130
    *lines, last = log.read_text().splitlines()
    assert last == "trioha: interrupted"
    assert not any(line.startswith("trioha: ") for line in lines)
    assert list(home.iterdir()) == []
    pids = re.findall(r"pid (\d+)", "\n".join(lines))
    assert pids
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
