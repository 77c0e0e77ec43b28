"""`trioha group history` on a real broker: its journal, asked for or read, and a recording."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.clusters.pair import Cluster
from support.processes.rig import REPO, Process, Processes
from support.processes.status import run_trioha


def test_the_lag_of_hours_is_told_by_journals_and_recordings(
    processes: Processes, tmp_path: Path
) -> None:
    cluster = Cluster(processes).start("ASYNC_MASTER", slave=False)
    at = ("-n", cluster.namesrv)
    for count in ("12", "4"):
        assert run_trioha("produce", *at, "-t", "orders", "--count", count).code == 0
        if count == "12":
            read = ("-t", "orders", "-g", "billing", "--count", "12", "--from", "first")
            assert run_trioha("consume", *at, *read).code == 0
    follow = ["journal", "follow", cluster.master.address, "--event", "consumer_lag"]
    follower = processes.add(
        Process(
            "follower",
            [sys.executable, "-m", "trioha", *follow, "--from", "0"],
            tmp_path / "follower.log",
            cwd=REPO,
        )
    )
    follower.start()
    follower.wait_for_line("group=billing lag=4")

    asked = run_trioha("group", "history", "billing", *at, "--steps", "3", "-o", "json")
    told = json.loads(asked.out)
    assert [one["lag"] for one in told["lags"]] == [None, None, 4]
    assert told["notes"] == told["rebalances"] == []
    store = cluster.master.store
    assert store is not None
    read_here = run_trioha("group", "history", "billing", "--journal", str(store), "-o", "json")
    assert json.loads(read_here.out)["lags"][-1]["lag"] == 4
    assert "####" in run_trioha("group", "history", "billing", *at, "--since", "1h ago").out

    file = str(tmp_path / "night.trioha")
    record = ("--out", file, "--interval", "100ms", "--for", "1s", "--members", "billing")
    assert run_trioha("record", *at, *record).code == 0
    replayed = run_trioha("group", "history", "billing", "--recording", file, "-o", "json")
    assert json.loads(replayed.out)["lags"][-1]["lag"] == 4

    nothing = run_trioha("group", "history", "billing", *at, "--until", "1h ago")
    assert (nothing.code, nothing.out) == (0, "No lag of billing is told for this time.\n")
    assert run_trioha("group", "history", "nosuch", *at).code == 1


def test_wrong_words_are_told(tmp_path: Path) -> None:
    backwards = run_trioha("group", "history", "g", "--since", "now", "--until", "1h ago")
    assert (backwards.code, "--until is before --since" in backwards.err) == (2, True)
    empty = run_trioha("group", "history", "g", "--journal", str(tmp_path))
    assert (empty.code, "no journal here" in empty.err) == (1, True)
    file = tmp_path / "no.trioha"
    file.write_bytes(b"no recording")
    odd = run_trioha("group", "history", "g", "--recording", str(file))
    assert (odd.code, "no recording of trioha" in odd.err) == (1, True)
