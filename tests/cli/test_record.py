"""`trioha record` on a real pair: a slave stopped and gone on, as its recording has it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from support.clusters.pair import Cluster
from support.processes.rig import REPO, Process, Processes
from support.processes.status import run_trioha, wait_in_sync

from trioha.watch.recording import open_recording
from trioha.watch.replay import Replay
from trioha.watch.snapshot import ClusterSnapshot


def test_an_incident_is_recorded_told_and_can_be_replayed(
    processes: Processes, tmp_path: Path
) -> None:
    settings = {"haSendHeartbeatInterval": 200, "haHousekeepingInterval": 2000}
    settings["haReconnectInterval"] = 100
    cluster = Cluster(processes).start("SYNC_MASTER", slave=True, settings=settings)
    wait_in_sync(cluster.master)
    file = tmp_path / "incident.trioha"
    arguments = ["record", "--out", str(file), "-n", cluster.namesrv, "--interval", "200ms"]
    recorder = processes.add(
        Process(
            "record",
            [sys.executable, "-m", "trioha", *arguments, "--timeout", "1"],
            tmp_path / "record.log",
            cwd=REPO,
        )
    )
    recorder.start()
    recorder.wait_for_line("trioha record: ")
    cluster.slave.process.signal(signal.SIGSTOP)
    recorder.wait_for_line("does not answer")
    recorder.wait_for_line("lost its link")
    told = run_trioha("record", "--info", str(file))  # while it is written
    assert (told.code, "lost its link" in told.out) == (0, True), told.err
    cluster.slave.process.signal(signal.SIGCONT)
    recorder.wait_for_line("answers again")
    recorder.wait_for_line(" follows ")
    recorder.signal(signal.SIGINT)
    assert recorder.wait() == 0, recorder.tail()
    recorder.wait_for_line(r"trioha record: \d+ rounds, \d+ marks")

    facts = json.loads(run_trioha("record", "--info", str(file), "-o", "json").out)
    assert facts["cut_short"] is False
    assert facts["recorded_by"]["interval_ms"] == 200
    assert sorted(facts["nodes"]) == sorted([cluster.master.address, cluster.slave.address])
    replay = Replay(open_recording(file))
    while (mark := replay.next_mark()) is not None:
        if "lost its link" in mark.text:
            break
    snapshot = ClusterSnapshot.of(replay.raw)
    slave = snapshot.replica(cluster.slave.address)
    assert slave is not None
    assert slave.link is None
    assert slave.answer.error

    cut = tmp_path / "cut.trioha"
    cut.write_bytes(file.read_bytes()[:-5])
    told = run_trioha("record", "--info", str(cut))
    assert (told.code, "! cut short at byte " in told.out) == (0, True), told.err


def test_wrong_words_and_files_are_told(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("precious, and no recording")
    for code, says, arguments in (
        (2, "give --out FILE", ()),
        (2, "give --out FILE", ("--out", "x", "--info", str(there))),
        (2, "is no duration", ("--out", "x", "--interval", "soon")),
        (2, "is no size", ("--out", "x", "--max-size", "1KB")),
        (2, "shorter than --interval", ("--out", "x", "--for", "1s", "--interval", "2s")),
        (1, "is there already", ("--out", str(there), "--for", "2s")),
        (1, "no recording of trioha", ("--info", str(there))),
        (1, "No such file", ("--out", str(tmp_path / "no" / "x"), "--for", "2s")),
    ):
        told = run_trioha("record", *arguments, "-n", "127.0.0.1:1")
        assert (told.code, says in told.err) == (code, True), (arguments, told.err)
    assert there.read_text().startswith("precious")
