"""A real set of three whose master is killed under load and follows again, analysed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import attrs
import pytest
from support.clusters.replica_set import ReplicaSet
from support.histories.load import Load
from support.processes.admin import create_topic
from support.processes.analyze import Answers, analyze
from support.processes.rig import running_processes
from support.suite.skips import importable, skip_unless

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]

MESSAGES = 200
TOPIC = "sent"
SLACK_MS = 50
"""A dead process's connections are seen closed a moment after the kill."""


@attrs.frozen
class Killed:
    """Stores and a journal of the set, and its history by this machine's clock."""

    inputs: list[str]
    killed: str
    """Store of the master that was killed."""
    killed_ms: int
    serves_again_by_ms: int
    acked: int


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    with running_processes(tmp_path_factory.mktemp("set")) as processes:
        nodes = ReplicaSet(processes, slave_count=2).start()
        master = nodes.master
        create_topic(master.address, nodes.namesrv, TOPIC, 4)
        load = Load(master.address, TOPIC, seed=1, senders=1, pace_s=0.002).start()
        load.wait_for_acked(MESSAGES)
        killed_ms = _now_ms()
        master.kill()
        load.stop()
        switch = nodes.fail_over("--force")
        assert switch.code == 0, switch.text
        later = Load(nodes.master.address, TOPIC, seed=2, senders=1, pace_s=0.002).start()
        later.wait_for_acked(1)
        serves_again_by_ms = _now_ms()
        master.start()
        nodes.wait_whole()
        later.wait_for_acked(MESSAGES)
        later.stop()
        nodes.wait_level()
        nodes.stop()
        [namesrv] = nodes.namesrvs
        namesrv.stop()
        journal = processes.root / namesrv.name / "journal"
        stores = [str(node.store) for node in nodes.nodes]
        acked = load.acked + later.acked
        yield Killed(
            [*stores, "--journal", str(journal)],
            str(master.store),
            killed_ms,
            serves_again_by_ms,
            acked,
        )


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.release)])
def answers(
    killed: Killed, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Answers:
    engine = ["--engine", request.param]
    if request.param == "spark":
        skip_unless(importable("pyspark"), "needs the extra spark")
        engine += ["--master", "local[2]"]
    return analyze(tmp_path_factory.mktemp("answers") / "out", [*killed.inputs, *engine])


def test_the_kill_is_one_unplanned_outage_within_its_bounds(
    killed: Killed, answers: Answers
) -> None:
    [outage] = [row for row in answers.rows("failovers", "outages") if not row["is_planned"]]
    assert killed.killed_ms <= outage["begin_ms"] <= killed.killed_ms + SLACK_MS
    assert outage["begin_ms"] < outage["end_ms"] <= killed.serves_again_by_ms
    assert outage["lasted_min_ms"] <= outage["lasted_ms"] <= outage["lasted_max_ms"]
    assert outage["lasted_max_ms"] <= outage["write_gap_ms"]
    assert answers.row("failovers", "brokers")["mttr_ms"] == outage["lasted_ms"]


def test_all_three_stores_agree_and_hold_what_was_acknowledged(
    killed: Killed, answers: Answers
) -> None:
    assert answers.code == 0
    pairs = answers.rows("divergence", "pairs")
    assert [pair["verdict"] for pair in pairs] == ["equal"] * 3
    assert answers.findings("integrity", "error") == []
    counts = {row["messages"] for row in answers.rows("throughput", "topics", topic=TOPIC)}
    assert len(counts) == 1
    assert counts.pop() >= killed.acked


def test_every_link_of_both_masters_is_there(answers: Answers) -> None:
    links = answers.rows("replication", "links")
    # Two slaves of the first master; one of them, and the first master itself, of the second.
    assert len(links) == 4
    assert all(link["sessions"] >= 1 for link in links)
    assert all(link["transferred_bytes"] > 0 for link in links)


def test_percentiles_and_samples_state_their_bounds(answers: Answers) -> None:
    tables = [table for report in answers.reports.values() for table in report["tables"]]
    bounds = {"1/64": r"p\d\d_(ms|bytes)", "ten seconds": "lag_max|consumer_lag"}
    for words, names in bounds.items():
        found = [
            table
            for table in tables
            if any(re.search(rf"^(.*_)?({names})$", column["name"]) for column in table["columns"])
        ]
        assert found or words == "ten seconds"
        assert all(words in table["note"] for table in found)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
