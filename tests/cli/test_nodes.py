"""Nodes as processes: ready line, signals, ports in use, locked stores, systemd."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.processes.rig import die_with_parent

from trioha.journal.file import Event, read_journal

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20
SMALL = (
    *("--set", "mappedFileSizeCommitLog=8MiB", "--set", "maxHashSlotNum=1000"),
    *("--set", "maxIndexNum=4000", "--set", "diskMaxUsedSpaceRatio=99"),
    *("--set", "diskSpaceWarningLevelRatio=99", "--namesrv", "127.0.0.1:1"),
)

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `trioha run …`; whatever still runs at the end is killed."""
    children: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [*die_with_parent(), sys.executable, "-m", "trioha", "run", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            cwd=ROOT,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate(timeout=PATIENCE_S)


def ready_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    readable, _, _ = select.select([child.stdout], [], [], PATIENCE_S)
    assert readable, "no ready line in time"
    line = child.stdout.readline()
    assert line, child.communicate(timeout=PATIENCE_S)[1]
    return line.rstrip("\n")


def end(child: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr; stdout must have been silent since the ready line."""
    out, err = child.communicate(timeout=PATIENCE_S)
    assert out == ""
    return child.returncode, err


def broker(start: Start, store: Path, *more: str, listen: str = "127.0.0.1:0") -> Any:
    return start("broker", "--listen", listen, "--store", str(store), *SMALL, *more)


def namesrv(start: Start, directory: Path, *more: str, **environment: str) -> Any:
    path = directory / "kvConfig.json"
    return start(
        *("namesrv", "--listen", "127.0.0.1:0", "--set", f"kvConfigPath={path}", *more),
        **environment,
    )


def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), PATIENCE_S):
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_name_server_says_ready_in_one_line_and_stops_in_order(
    start: Start, tmp_path: Path, number: int
) -> None:
    child = namesrv(start, tmp_path)
    found = re.fullmatch(
        r"trioha namesrv ready listen=(127\.0\.0\.1:\d+) http=127\.0\.0\.1:\d+ pid=(\d+)",
        ready_line(child),
    )
    assert found
    assert int(found[2]) == child.pid
    assert answers(found[1])
    child.send_signal(number)
    code, _ = end(child)
    assert code == 0
    assert not answers(found[1])
    names = [item.name for item in read_journal(tmp_path / "journal") if isinstance(item, Event)]
    assert names[0] == "node_started"
    assert names[-1] == "node_stopped"


def test_what_a_broker_writes_is_for_its_own_user_alone(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "store"
    child = broker(start, store)
    ready_line(child)
    child.send_signal(signal.SIGTERM)
    assert end(child)[0] == 0
    found = [store, *store.rglob("*")]
    assert {path.name for path in found} >= {"commitlog", "journal", "epochs.0"}
    for path in found:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("kind", ["broker", "namesrv"])
def test_a_node_beyond_loopback_needs_a_secret_or_the_operators_word(
    start: Start, tmp_path: Path, kind: str
) -> None:
    place = f"kvConfigPath={tmp_path}/kv.json"
    if kind == "broker":
        place = f"storePathRootDir={tmp_path}/store"
    words = (kind, "--listen", "0.0.0.0:0", "--set", place, "--set", "adminHttpEnable=false")
    code, err = end(start(*words))
    assert code == 2
    (line,) = (line for line in err.splitlines() if "is reached from other machines" in line)
    assert "`trioha security init`" in line
    assert "--insecure" in line
    child = start(*words, "--insecure")
    ready_line(child)
    child.send_signal(signal.SIGTERM)
    code, err = end(child)
    assert code == 0
    assert "node_insecure" in err
    secret = "the secret of this cluster"
    anonymous = ("--set", "anonymousClients=true") if kind == "broker" else ()
    child = start(*words, *anonymous, TRIOHA_CLUSTER_SECRET=secret)
    ready_line(child)
    command = Path(f"/proc/{child.pid}/cmdline").read_bytes()
    assert secret.encode() not in command
    child.send_signal(signal.SIGTERM)
    code, err = end(child)
    assert (code, "node_insecure" in err, secret in err) == (0, False, False)


def test_a_broker_tells_its_real_addresses(start: Start, tmp_path: Path) -> None:
    child = broker(start, tmp_path / "a store", "--role", "SYNC_MASTER", "--name", "b-1")
    line = ready_line(child)
    found = re.fullmatch(
        r"trioha broker b-1 id=0 role=SYNC_MASTER ready listen=(\S+) ha=(\S+)(?: vip=(\S+))?"
        r' http=127\.0\.0\.1:\d+ store="(.+)" pid=(\d+)',
        line,
    )
    assert found, line
    assert found[4] == str(tmp_path / "a store")
    assert all(answers(address) for address in found.groups()[:3] if address)
    child.terminate()
    code, err = end(child)
    assert code == 0, err
    assert not (tmp_path / "a store" / "abort").exists()
    events = [item for item in read_journal(tmp_path / "a store/journal")]
    assert all(isinstance(item, Event) for item in events)
    names = [item.name for item in events if isinstance(item, Event)]
    assert {"node_started", "node_ready", "node_stopping", "node_stopped"} <= set(names)


def test_the_ready_line_can_be_json(start: Start, tmp_path: Path) -> None:
    child = broker(start, tmp_path, "--ready-json", "--name", "x", "--id", "3", "--role", "SLAVE")
    facts = json.loads(ready_line(child))
    assert facts["event"] == "ready"
    assert (facts["node"], facts["name"], facts["id"], facts["role"]) == ("broker", "x", 3, "SLAVE")
    assert facts["pid"] == child.pid
    assert answers(facts["listen"])


def test_a_port_in_use_is_one_line_with_the_cure(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, err = end(broker(start, tmp_path, listen=address))
    assert code == 1
    (line,) = [line for line in err.splitlines() if line.startswith("trioha: ")]
    assert f"cannot listen on {address}: Address already in use; choose another port" in line
    assert "Traceback" not in err
    assert "ExceptionGroup" not in err


def test_a_store_in_use_is_one_line_and_disturbs_nobody(start: Start, tmp_path: Path) -> None:
    first = broker(start, tmp_path)
    ready_line(first)
    before = sorted(path.name for path in (tmp_path / "journal").iterdir())
    code, err = end(broker(start, tmp_path))
    assert code == 1
    assert err.splitlines()[-1].startswith("trioha: ")
    assert "in use by another process" in err
    assert "Traceback" not in err
    assert sorted(path.name for path in (tmp_path / "journal").iterdir()) == before
    first.terminate()
    assert end(first)[0] == 0


def test_the_store_of_a_broker_with_another_name_is_refused_unless_adopted(
    start: Start, tmp_path: Path
) -> None:
    first = broker(start, tmp_path)
    ready_line(first)
    first.terminate()
    assert end(first)[0] == 0
    code, err = end(broker(start, tmp_path, "--name", "two"))
    assert code == 1
    assert "is the store of broker" in err.splitlines()[-1]
    adopting = broker(start, tmp_path, "--adopt", "--name", "two")
    assert "trioha broker two" in ready_line(adopting)


def test_two_name_servers_may_share_default_paths(start: Start, tmp_path: Path) -> None:
    first, second = namesrv(start, tmp_path), namesrv(start, tmp_path)
    ready_line(first)
    ready_line(second)
    for child in (first, second):
        child.terminate()
    notes = [end(child)[1].count("note: no journal") for child in (first, second)]
    assert sorted(notes) == [0, 1]


def test_a_node_ends_with_its_supervisor(start: Start, tmp_path: Path) -> None:
    child = namesrv(start, tmp_path, "--until-stdin-ends")
    ready_line(child)
    child.stdin.close()
    child.stdin = None
    assert end(child)[0] == 0


def test_a_second_signal_stops_at_once(start: Start, tmp_path: Path) -> None:
    child = broker(start, tmp_path, "--set", "shutdownGrace=600000")
    ready_line(child)
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        os.kill(child.pid, number)
    code, err = end(child)
    assert code in (0, 1)  # it may have been done before the second arrived
    assert "Traceback" not in err


def test_systemd_is_told(start: Start, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_S)
        child = namesrv(start, tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify"))
        address = ready_line(child).split("listen=")[1].split()[0]
        assert systemd.recv(4096).decode() == f"READY=1\nSTATUS=serving on {address}"
        child.terminate()
        assert systemd.recv(4096).decode().startswith("STOPPING=1\n")
        assert end(child)[0] == 0


def test_notes_and_json_lines_go_to_stderr(start: Start, tmp_path: Path) -> None:
    child = broker(
        start, tmp_path, *("--set", "sendMessageThreadPoolNums=1", "--log-format", "json")
    )
    ready_line(child)
    child.terminate()
    code, err = end(child)
    assert code == 0
    note, *lines = err.splitlines()
    assert note.startswith("trioha: note: --set: sendMessageThreadPoolNums has no meaning here")
    assert {json.loads(line)["event"] for line in lines} >= {"node_started", "node_ready"}
