"""`trioha bundle` of a real pair with planted secrets: nothing of them gets out."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path

import pytest
from support.clusters.pair import Cluster
from support.processes.rig import Processes
from support.processes.status import run_trioha, wait_in_sync
from support.suite.archives import unpack

from trioha.cli import progress, run
from trioha.journal.file import JournalFile
from trioha.watch.recording import open_recording

SECRET = "correct-horse-battery"


def unpacked(path: Path, into: Path) -> dict[str, bytes]:
    unpack(path, into)
    (root,) = into.iterdir()
    return {
        str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()
    }


def planted_journal(directory: Path) -> Path:
    journal = JournalFile(directory / "journal", "old", lambda: 2**41, bytes_max=1 << 20)
    journal.event("handler_failed", error=f"bad setting haSecret={SECRET}", peer="p")
    journal.event("node_stopped", reason=f'{{"password": "{SECRET}"}}')
    journal.close()
    return directory


def test_a_bundle_has_everything_but_secrets(processes: Processes, tmp_path: Path) -> None:
    settings = {"haSecret": SECRET, "haReconnectInterval": 100}
    cluster = Cluster(processes).start("SYNC_MASTER", slave=True, settings=settings)
    wait_in_sync(cluster.master)
    recording = tmp_path / "night.trioha"
    where = ("-n", cluster.namesrv)
    told = run_trioha(
        "record", "--out", str(recording), *where, "--for", "1s", "--interval", "0.2s"
    )
    assert told.code == 0, told.err
    cluster.slave.process.signal(signal.SIGSTOP)
    out = tmp_path / "incident.tar.gz"
    old = planted_journal(tmp_path / "old-store")
    arguments = ["bundle", "--out", str(out), *where, "--recording", str(recording)]
    told = run_trioha(*arguments, "--journal", str(old), "--timeout", "1", "-o", "json")
    assert told.code == 0, told.err
    manifest = json.loads(told.out)
    assert "broker-a-1" in told.err  # it does not answer
    files = unpacked(out, tmp_path / "x")

    assert {entry["name"] for entry in manifest["files"]} | {"manifest.json"} == set(files)
    for entry in manifest["files"]:
        assert hashlib.sha256(files[entry["name"]]).hexdigest() == entry["sha256"]
        assert len(files[entry["name"]]) == entry["bytes"]
    master = f"nodes/broker-a-0@{cluster.master.address.replace(':', '_')}"
    config = json.loads(files[f"{master}/config.json"])["settings"]
    (row,) = [row for row in config if row["key"] == "haSecret"]
    assert row["value"] == "******"
    assert row["origin"]
    events = [json.loads(line)["event"] for line in files[f"{master}/journal.jsonl"].splitlines()]
    assert "ha_connected" in events
    assert json.loads(files[f"{master}/status.json"])["role"] == "SYNC_MASTER"
    assert "root" in json.loads(files[f"{master}/tasks.json"])
    alerts = json.loads(files["cluster/alerts.json"])
    assert any(row["rule"] == "broker_silent" and row["level"] == "CRIT" for row in alerts)
    assert json.loads(files["machine/version.json"])["trioha"]
    assert json.loads(files["machine/doctor.json"])
    assert any(name.startswith("journals/") for name in files)
    assert b"broker-a" in files["screenshots/1-replication.svg"]

    packed = tmp_path / "packed.trioha"
    packed.write_bytes(files["recordings/night.trioha"])
    inside = open_recording(packed)
    raws = [json.dumps(inside.raw(number)) for number in range(len(inside.frames))]
    for text in [*(data.decode(errors="replace") for data in files.values()), *raws, told.out]:
        assert SECRET not in text
    assert out.stat().st_mode & 0o077 == 0


def test_without_a_cluster_it_packs_what_is_on_this_machine(tmp_path: Path) -> None:
    out = tmp_path / "dead.tgz"
    old = planted_journal(tmp_path / "store")
    told = run_trioha("bundle", "--out", str(out), "--offline", "--journal", str(old))
    assert told.code == 0, told.err
    files = unpacked(out, tmp_path / "x")
    (journal,) = [data for name, data in files.items() if name.startswith("journals/")]
    assert len(journal.splitlines()) == 2
    assert SECRET.encode() not in b"".join(files.values())
    assert not any(name.startswith("nodes/") for name in files)


def test_nothing_is_overwritten_and_what_is_missing_is_told(tmp_path: Path) -> None:
    out = tmp_path / "b.tar.gz"
    out.write_text("precious")
    told = run_trioha("bundle", "--out", str(out), "--offline")
    assert (told.code, "is there already" in told.err) == (1, True)
    assert out.read_text() == "precious"
    broken = tmp_path / "broken.trioha"
    broken.write_text("no recording")
    told = run_trioha(
        *("bundle", "--out", str(out), "--overwrite", "-n", "127.0.0.1:1"),
        *("--recording", str(broken), "--journal", str(tmp_path)),
    )
    assert told.code == 0, told.err
    for says in ("Connection refused", "no recording of trioha; not packed", "no journal here"):
        assert says in told.err
    manifest = json.loads(unpacked(out, tmp_path / "x")["manifest.json"])
    assert len(manifest["missing"]) >= 3


def test_a_long_bundle_tells_how_far_it_is(
    processes: Processes,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(processes).start("ASYNC_MASTER", slave=True)
    monkeypatch.setattr(progress, "_LINE_INTERVAL_S", 0.0)
    assert run(["bundle", "--out", str(tmp_path / "b.tar.gz"), "-n", cluster.namesrv]) == 0
    said = capsys.readouterr().err
    assert "asking  100 %  3 of 3 nodes" in said
    assert "packing  100 %  3 of 3 parts" in said
