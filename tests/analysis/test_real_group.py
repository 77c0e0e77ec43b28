"""A real group of three whose leader is killed under load: what the analysis says of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs
import pytest
from support.clusters.raft_group import raft_group
from support.histories.load import Load
from support.processes.analyze import Answers, analyze
from support.processes.rig import running_processes, trioha_namesrv

pytestmark = pytest.mark.slow

MESSAGES = 300
TOPIC = "sent"
SLACK_MS = 50
"""A dead process's connections are seen closed a moment after its death."""


@attrs.frozen
class Killed:
    """Times of a leader's kill, by this machine's clock, and the reports on it."""

    killed_ms: int
    dead_by_ms: int
    """Time by which the process and its connections had ended: the kernel takes a while."""
    serves_again_by_ms: int
    answers: Answers


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    with running_processes(tmp_path_factory.mktemp("group")) as processes:
        namesrv = trioha_namesrv(processes).start()
        group = raft_group(processes, namesrv.address)
        leader = group.start()
        group.create_topic(TOPIC)
        load = Load(leader.address, TOPIC, seed=1, senders=1, pace_s=0.002).start()
        load.wait_for_acked(MESSAGES)
        killed_ms = _now_ms()
        leader.kill()
        dead_by_ms = _now_ms()
        load.stop()
        following = group.wait_for_leader(other_than=leader)
        load = Load(following.address, TOPIC, seed=2, senders=1, pace_s=0.002).start()
        load.wait_for_acked(1)
        serves_again_by_ms = _now_ms()
        load.wait_for_acked(MESSAGES)
        load.stop()
        for node in [*group.nodes, namesrv]:
            node.stop()
        journal = processes.root / namesrv.name / "journal"
        out = tmp_path_factory.mktemp("answers") / "out"
        stores = [str(node.store) for node in group.nodes]
        reports = ("--report", "failovers", "--report", "replication")
        answers = analyze(out, [*stores, "--journal", str(journal), "--engine", "local", *reports])
        yield Killed(killed_ms, dead_by_ms, serves_again_by_ms, answers)


def test_a_killed_leader_is_an_outage_and_no_second_master(killed: Killed) -> None:
    outage, *stops = killed.answers.rows("failovers", "outages")
    assert killed.answers.code == 0
    assert killed.killed_ms <= outage["begin_ms"] <= killed.dead_by_ms + SLACK_MS
    assert outage["begin_ms"] < outage["end_ms"] <= killed.serves_again_by_ms
    assert outage["lasted_min_ms"] <= outage["lasted_ms"] <= outage["lasted_max_ms"]
    # The log shows it as well: what clients stored has this gap, or a larger one.
    assert outage["lasted_max_ms"] <= outage["write_gap_ms"]
    assert not outage["is_planned"]
    assert all(stop["is_planned"] for stop in stops), "a leader that is stopped hands over"
    broker = killed.answers.row("failovers", "brokers")
    assert broker["mttr_ms"] == outage["lasted_ms"]
    assert broker["availability"] < 1


def test_nothing_is_said_of_slaves_in_sync(killed: Killed) -> None:
    assert killed.answers.rows("replication", "in_sync") == []
    assert killed.answers.row("replication", "groups")["members"] == 3
    assert killed.answers.findings("replication", "warning") == []


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
