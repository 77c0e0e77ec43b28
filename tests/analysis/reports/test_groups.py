"""DLEDGER groups: times of leaders, and reports on a leader that died or stood still."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stores.journals import Diary, at, engine_over
from support.stores.told import rows_of, texts_of

from trioha.analysis.reports import failovers, replication
from trioha.analysis.results import Report, ReportOptions

OPTIONS = ReportOptions(now_ms=at(10_000))
MEMBERS = ("n0", "n1", "n2")
ADDRESSES = {member: f"127.0.0.1:2000{place}" for place, member in enumerate(MEMBERS)}


class Group:
    """Journals of three members and their name server, like those of real groups."""

    def __init__(self, root: Path) -> None:
        self.namesrv = Diary(root / "namesrv", "namesrv")
        self.namesrv.start(0, "")
        self.members = {name: Diary(root / name, f"broker-a:{name}") for name in MEMBERS}
        for name in MEMBERS:
            self.start(1, name)

    def start(self, at_s: float, name: str) -> None:
        diary = self.members[name]
        diary.tell(at_s, "node_started", node=f"broker-a:{name}", version="0", pid=1)
        self.role(at_s, name, "SLAVE")
        for peer in MEMBERS:
            if peer != name:
                diary.tell(at_s, "raft_connected", peer=peer, address=ADDRESSES[peer])
        listen = {"listen": ADDRESSES[name], "ha_listen": "", "vip_listen": ""}
        diary.tell(at_s, "node_ready", **listen, elapsed_ms=1)

    def role(self, at_s: float, name: str, role: str) -> None:
        broker_id = 0 if role == "SYNC_MASTER" else MEMBERS.index(name) + 1
        intervals = {"heartbeat_interval_ms": 150, "heartbeat_limit_ms": 1000}
        self.members[name].tell(at_s, "role", role=role, broker_id=broker_id, **intervals)

    def elect(self, at_s: float, name: str, term: int, *, unheard_s: float | None = None) -> None:
        """Make a member lead; at `unheard_s`, if given, it has heard no leader."""
        diary = self.members[name]
        if unheard_s is not None:
            told = {"leader": "", "reason": "no leader heard"}
            diary.tell(unheard_s, "raft_role", role="PRE_CANDIDATE", term=term - 1, **told)
        told = {"leader": name, "reason": "voted for by n1,n2"}
        diary.tell(at_s, "raft_role", role="LEADER", term=term, **told)
        self.role(at_s, name, "SYNC_MASTER")

    def step_down(self, at_s: float, name: str, term: int, reason: str) -> None:
        diary = self.members[name]
        diary.tell(at_s, "raft_role", role="FOLLOWER", term=term, leader="", reason=reason)
        self.role(at_s, name, "SLAVE")

    def lose(self, at_s: float, name: str) -> None:
        """Close the leader's connection at the name server, which knows the leader as 0."""
        gone = {"broker": "broker-a", "id": 0, "address": ADDRESSES[name], "cluster": "C"}
        self.namesrv.tell(at_s, "broker_unregistered", **gone, reason="connection closed")

    def go_on(self, at_s: float, *names: str) -> None:
        for name in names:
            self.members[name].alive(at_s, "SLAVE")

    def report(self, *without: str) -> Report:
        diaries = [self.members[name] for name in MEMBERS if name not in without]
        with engine_over(*diaries, self.namesrv) as engine:
            return failovers.run(engine, OPTIONS)

    def replication(self) -> Report:
        with engine_over(*self.members.values(), self.namesrv) as engine:
            return replication.run(engine, OPTIONS)


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return Group(tmp_path)


def test_a_leader_that_was_killed_is_no_second_master(group: Group) -> None:
    group.elect(2, "n1", 1)
    group.lose(12, "n1")
    group.elect(13.07, "n2", 2, unheard_s=13.0)
    group.go_on(52, "n0", "n2")
    report = group.report()
    assert report.exit_code == 0
    assert texts_of(report, "error") == [
        "broker-a had no writable master for 1.1 s (between 1.1 s and 11.1 s) from "
        "2025-11-20 12:00:12Z (broker-a:n1 in n1: it was killed, or its machine died), then "
        "broker-a:n2 in n2 took over."
    ]
    (broker,) = rows_of(report, "brokers")
    assert broker["lost_ms"] == 1_070
    lives = {row["node"]: row for row in rows_of(report, "lives")}
    assert lives["broker-a:n1"]["ending"] == "killed"
    assert [lives[f"broker-a:{name}"]["epoch"] for name in MEMBERS] == [None, 1, 2]


def test_members_tell_of_a_death_without_a_name_server(group: Group) -> None:
    group.elect(2, "n1", 1)
    for name in ("n0", "n2"):
        group.members[name].tell(
            12.0, "raft_disconnected", peer="n1", reason="n1 closed the connection"
        )
    group.elect(13, "n2", 2, unheard_s=12.9)
    group.go_on(20, "n0", "n2")
    (outage,) = rows_of(group.report(), "outages")
    assert (outage["begin_ms"], outage["end_ms"]) == (at(12), at(13))
    assert outage["cause"] == "it was killed, or its machine died"


def test_a_member_that_others_meet_again_is_not_dead(group: Group) -> None:
    group.elect(2, "n1", 1)
    n0 = group.members["n0"]
    n0.tell(12, "raft_disconnected", peer="n1", reason="n1 answers nothing")
    n0.tell(13, "raft_connected", peer="n1", address=ADDRESSES["n1"])
    group.go_on(20, "n0", "n2")
    report = group.report()
    assert rows_of(report, "outages") == []
    assert all(row["ending"] == "still there" for row in rows_of(report, "lives"))


def test_a_leader_that_stands_still_leads_no_more_once_there_is_a_newer_term(group: Group) -> None:
    """Its own journal calls it the master until it goes on; it can commit nothing meanwhile."""
    group.elect(2, "n1", 1)
    group.elect(12, "n2", 2, unheard_s=11.5)
    group.step_down(52, "n1", 2, "n2 has term 2")
    group.go_on(60, *MEMBERS)
    report = group.report()
    assert report.exit_code == 0
    (outage,) = rows_of(report, "outages")
    assert (outage["begin_ms"], outage["end_ms"]) == (at(11.5), at(12))
    assert (outage["lasted_min_ms"], outage["lasted_max_ms"]) == (500, 2_500)
    assert outage["cause"] == "no other member of the group heard it any more"
    assert not outage["is_planned"]


@pytest.mark.parametrize(
    ("reason", "is_planned"), [("n2 has term 2", True), ("no majority heard", False)]
)
def test_a_leader_says_why_it_stepped_down(group: Group, reason: str, is_planned: bool) -> None:
    group.elect(2, "n1", 1)
    group.step_down(12, "n1", 2, reason)
    group.elect(12.4, "n2", 2)
    group.go_on(20, *MEMBERS)
    (outage,) = rows_of(group.report(), "outages")
    assert (outage["lasted_ms"], outage["is_planned"]) == (400, is_planned)
    assert outage["cause"] == f"it stepped down: {reason}"


def test_two_leaders_of_one_term_are_an_error(group: Group) -> None:
    group.elect(2, "n1", 1)
    group.elect(4, "n2", 1)
    group.go_on(20, *MEMBERS)
    report = group.report()
    assert report.exit_code == 1
    assert "had two masters, broker-a:n1 and broker-a:n2" in texts_of(report, "error")[0]


def test_replication_says_of_a_group_whether_its_commit_moved(group: Group) -> None:
    group.elect(2, "n1", 1)
    n1 = group.members["n1"]
    n1.tell(10, "raft_commit_stalled", age_ms=3_000, gap_bytes=100)
    n1.tell(12, "raft_commit_resumed", committed_offset=400)
    group.go_on(22, "n1")
    report = group.replication()
    assert rows_of(report, "in_sync") == []
    (row,) = rows_of(report, "groups")
    assert (row["members"], row["led_ms"]) == (3, 20_000)
    assert (row["stalls"], row["stalled_ms"], row["share"]) == (1, 5_000, 0.25)
    assert [finding.text for finding in report.findings] == [
        "broker-a is a DLEDGER group (3 members in these journals): it answers a put once a "
        "majority has it; its commit made no progress 1 time, 5.0 s in all."
    ]
