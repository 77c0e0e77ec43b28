"""`trioha node` and `trioha journal follow` against real processes."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from support.clusters.pair import Cluster
from support.processes.rig import REPO, Process, Processes
from support.processes.status import run_trioha

from trioha.services.admin.task_tree import tree_lines


def test_both_kinds_of_nodes_tell_tasks_settings_and_journal(processes: Processes) -> None:
    cluster = Cluster(processes).start()
    for address, task in ((cluster.namesrv, "namesrv.accept"), (cluster.master.address, "reput")):
        told = run_trioha("node", "tasks", address)
        assert told.code == 0, told.err
        assert any(line.strip().startswith(task) for line in told.out.splitlines())
        assert json.loads(run_trioha("node", "tasks", address, "-o", "json").out)["count"] > 5
        settings = json.loads(run_trioha("node", "config", address, "-o", "json").out)
        assert settings["listenPort"]["value"] == int(address.rpartition(":")[2])
        assert settings["listenPort"]["origin"] != "default"
        lines = run_trioha("journal", "follow", address, "--once", "--last", "100", "-o", "json")
        events = [json.loads(line)["event"] for line in lines.out.splitlines()]
        assert events[0] == "node_started"
        assert "node_ready" in events


def test_a_topic_that_is_not_there_and_a_broker_in_place_of_a_name_server_are_named(
    processes: Processes,
) -> None:
    cluster = Cluster(processes).start()
    asked = ("consume", "-t", "nosuch", "-g", "g", "--idle", "0.1")
    told = run_trioha(*asked, "-n", cluster.namesrv)
    assert (told.code, told.out) == (1, "")
    note, error = told.err.splitlines()
    assert note == "trioha: note: topic nosuch does not exist; waiting"
    assert error == "trioha: topic nosuch does not exist"
    broker = cluster.master.address
    for command in (
        asked,
        ("ha", "status"),
        ("failover", "broker-a", "--dry-run"),
        ("acl", "list"),
    ):
        told = run_trioha(*command, "-n", broker)
        assert f"{broker}" in told.out + told.err
        assert "is no name server" in told.out + told.err
        assert told.code in (1, 4)


def test_a_follower_sees_events_as_they_happen_and_survives_the_nodes_restart(
    processes: Processes, tmp_path: Path
) -> None:
    cluster = Cluster(processes).start()
    master = cluster.master
    arguments = [sys.executable, "-m", "trioha", "journal", "follow", master.address]
    follower = processes.add(
        Process("follow", [*arguments, "--last", "1"], tmp_path / "follow.log", cwd=REPO)
    )
    follower.start()
    follower.wait_for_line(r"^\d\d:\d\d:\d\d")
    master.stop()
    follower.wait_for_line("trying again")
    master.start()
    follower.wait_for_line("answers again")
    follower.wait_for_line("node_stopped")  # what it wrote last, told by its next life
    follower.wait_for_line("node_ready")
    follower.signal(signal.SIGINT)
    assert follower.wait() == 130, follower.tail()


def test_wrong_words_are_told_with_the_right_ones() -> None:
    for arguments, says in (
        (("journal", "follow", "127.0.0.1:1", "--event", "ha_conected"), "did you mean ha_conn"),
        (("journal", "follow", "nowhere"), "is not HOST:PORT"),
        (("journal", "follow", "127.0.0.1:1", "--from", "1", "--last", "1"), "give one"),
    ):
        told = run_trioha(*arguments)
        assert (told.code, says in told.err) == (2, True), told.err
    assert run_trioha("node", "tasks", "127.0.0.1:1").code == 4


def test_a_nursery_within_a_nursery_is_indented_further() -> None:
    leaf = {"name": "leaf", "waits_in": "", "nurseries": []}
    root = {
        "name": "root",
        "waits_in": "a.py:1 run",
        "nurseries": [{"tasks": [leaf], "left_out": 0}, {"tasks": [leaf], "left_out": 7}],
    }
    assert list(tree_lines(root)) == [
        "root   a.py:1 run",
        "  leaf",
        "    leaf",
        "    and 7 more",
    ]
