"""DLEDGER groups: what is understood of their members, what is called wrong, what is planned."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.raft_status import GROUP, RawGroup, address_of, raft_status
from support.fakes.raw_answers import RawCluster

from trioha.errors import CommandError, OutcomeUnknown, RemoteProtocolError
from trioha.watch.alerts import AlertLevel, Alerts, judge
from trioha.watch.condition import condition_of, condition_of_set
from trioha.watch.marks import MarkFinder
from trioha.watch.raft import RaftState, member_number, members_told
from trioha.watch.raft_change import Do, plan_change, read_change
from trioha.watch.replica_set import ReplicaSet
from trioha.watch.rules import RULES, Area
from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand


def a_group(*, learner: bool = False) -> RawGroup:
    return RawGroup(RawCluster(), learner=learner)


def seen(group: RawGroup) -> ClusterSnapshot:
    group.cluster.tick()
    return ClusterSnapshot.of(group.cluster.raw())


def set_of(group: RawGroup) -> ReplicaSet:
    found = seen(group).set_of(GROUP)
    assert found is not None
    return found


def words(group: RawGroup) -> dict[str, str]:
    """The state of each member, and under "" the group's."""
    one = set_of(group)
    found = {replica.member_id or "?": condition_of(replica).word for replica in one.replicas}
    return {"": condition_of_set(one).word, **found}


def wrong(group: RawGroup) -> dict[str, AlertLevel]:
    """Every rule that one look finds broken."""
    verdicts = judge(seen(group), RULES, list(Area))
    return {one.rule.name: one.level for one in verdicts if one.level}


def test_a_group_that_is_well() -> None:
    group = a_group(learner=True)
    one = set_of(group)
    assert [replica.member_id for replica in one.replicas] == ["n0", "n1", "n2", "n3"]
    assert [replica.standing for replica in one.replicas] == [
        *("LEADER", "FOLLOWER", "FOLLOWER", "LEARNER")
    ]
    assert one.master is one.replicas[0]
    assert one.replicas[1].gap_bytes == 0
    assert one.replicas[1].heard_age_s == 0.08
    assert words(group) == {
        "": "3/3 voters",
        "n0": "leads",
        "n1": "in sync",
        "n2": "in sync",
        "n3": "in sync",
    }
    assert wrong(group) == {}


def impair(group: RawGroup) -> None:
    group.raft("n1")["impaired"] = True


def fail(group: RawGroup) -> None:
    group.raft("n1")["failed"] = "fsync: Input/output error"


def wait_for_founders(group: RawGroup) -> None:
    group.raft("n1")["bootstrap"] = "waits for n2"


def lose_touch(group: RawGroup) -> None:
    group.row("n1")["heard_age_ms"] = 4000


def fall_behind(group: RawGroup) -> None:
    group.row("n1").update(gap_bytes=300 << 20)


def compare(group: RawGroup) -> None:
    group.row("n1")["phase"] = "COMPARE"


def copy(group: RawGroup) -> None:
    group.row("n1")["phase"] = "INSTALL_SNAPSHOT"


def fill_disk(group: RawGroup) -> None:
    group.raft("n1")["writable"] = False


@pytest.mark.parametrize(
    ("harm", "word", "rules"),
    [
        (impair, "impaired", {"raft_impaired": AlertLevel.WARN}),
        (fail, "failed", {}),
        (wait_for_founders, "waiting", {}),
        (
            lose_touch,
            "unheard",
            {
                "link_down": AlertLevel.CRIT,
                "not_in_sync": AlertLevel.WARN,
                "raft_no_spare": AlertLevel.WARN,
            },
        ),
        (fall_behind, "behind", {"gap_bytes": AlertLevel.CRIT, "not_in_sync": AlertLevel.WARN}),
        (compare, "comparing", {"not_in_sync": AlertLevel.WARN}),
        (copy, "copying", {"not_in_sync": AlertLevel.WARN}),
        (fill_disk, "disk full", {}),
    ],
)
def test_a_follower_that_is_not_well(
    harm: Callable[[RawGroup], None], word: str, rules: dict[str, AlertLevel]
) -> None:
    group = a_group()
    harm(group)
    told = words(group)
    assert told["n1"] == word
    assert (told["n0"], told["n2"]) == ("leads", "in sync")
    assert wrong(group) == rules


def test_a_leader_that_does_not_serve_yet_is_no_master_to_send_to() -> None:
    group = a_group()
    group.raft("n0")["is_serving"] = False
    assert words(group)["n0"] == "opening"
    assert wrong(group) == {"no_master": AlertLevel.CRIT}


def test_commits_that_stand_still_are_told() -> None:
    group = a_group()
    group.raft("n0")["uncommitted_age_ms"] = 3500
    assert words(group)["n0"] == "stalled"
    assert wrong(group) == {"raft_commit_stalled": AlertLevel.WARN}
    group.raft("n0")["uncommitted_age_ms"] = 12_000
    assert wrong(group) == {"raft_commit_stalled": AlertLevel.CRIT}


def test_a_leader_without_a_majority_is_cut_off() -> None:
    group = a_group()
    for member in ("n1", "n2"):
        group.row(member)["heard_age_ms"] = 1500
    assert words(group)["n0"] == "cut off"
    assert words(group)[""] == "1/3 voters"


def test_nobody_leads_and_why() -> None:
    group = a_group()
    for member in ("n1", "n2"):
        group.raft(member).update(role="PRE_CANDIDATE", leader_id="")
    group.kill("n0")
    assert words(group) == {
        "": "no leader",
        "n0": "unreachable",
        "n1": "electing",
        "n2": "electing",
    }
    assert wrong(group)["no_master"] is AlertLevel.CRIT
    group.kill("n2")
    text = condition_of_set(set_of(group)).why
    assert text == "1 of 3 voters answer and may vote, 2 are needed; nothing can be sent to it"


def test_a_deposed_leader_that_has_not_heard_of_it_is_no_second_master() -> None:
    group = a_group()
    group.elect("n1", 5)
    group.cluster.statuses[address_of("n0")]["raft"] = raft_status("n0", term=4)
    group.cluster.members[address_of("n0")]["id"] = 1
    one = set_of(group)
    assert [replica.member_id for replica in one.masters] == ["n1"]
    assert one.master is not None
    assert one.master.member_id == "n1"
    assert "two_masters" not in wrong(group)


def test_two_leaders_of_one_term_are_a_split() -> None:
    group = a_group()
    group.raft("n1").update(role="LEADER", leader_id="n1", is_serving=True)
    assert wrong(group)["two_masters"] is AlertLevel.CRIT


def test_a_new_leader_and_a_lost_follower_are_marks() -> None:
    group, finder = a_group(), MarkFinder()
    finder.look(seen(group))
    group.kill("n0")
    group.elect("n1", 5, without="n0")
    found = [mark.text for mark in finder.look(seen(group))]
    assert f"{GROUP}: {address_of('n1')} is master now, after {address_of('n0')}" in found
    (dead,) = (one for one in set_of(group).replicas if one.address == address_of("n0"))
    assert (dead.is_master, dead.standing, dead.heard_age_s) == (False, None, 60.0)
    group.row("n2", "n1")["heard_age_ms"] = 5000
    assert any("lost its link" in mark.text for mark in finder.look(seen(group)))


def test_a_removed_member_is_missed_by_nobody_and_a_dead_one_is() -> None:
    group = a_group()
    alerts = Alerts({"replica_absent": RULES["replica_absent"]})
    group.kill("n2")
    group.cluster.members[address_of("n2")]["registered"] = False
    for _ in range(32):
        alerts.look(seen(group))
    assert [one.subject for one in alerts.active] == [f"{GROUP} n2 at {address_of('n2')}"]
    for member in ("n0", "n1"):
        group.raft(member)["configuration"]["voters"] = ["n0", "n1"]
    alerts.look(seen(group))
    assert alerts.active == ()
    assert words(group)["n2"] == "removed"


def test_a_member_that_never_answered_is_known_by_its_leader() -> None:
    group = a_group()
    address = address_of("n2")
    group.kill("n2")
    group.row("n2")["heard_age_ms"] = 60_000
    group.cluster.members[address]["registered"] = False
    del group.cluster.answers[address]
    one = set_of(group)
    (dead,) = (two for two in one.replicas if two.address == address)
    assert (dead.raft, dead.member_id, dead.gap_bytes) == (None, "n2", 0)
    found = [
        verdict.rule.name for verdict in judge(seen(group), RULES, list(Area)) if verdict.level
    ]
    assert "heartbeat_age" not in found
    assert {"replica_absent", "raft_no_spare", "not_in_sync"} <= set(found)


def test_whoever_leads_tells_of_members_that_nobody_registered() -> None:
    status = {"raft": raft_status("n0", voters=("n0", "n2"))}
    status["raft"]["addresses"]["n1"] = "10.0.1.2:10911"
    assert members_told(status) == {"n0": address_of("n0"), "n2": address_of("n2")}
    assert members_told({}) == {}
    assert [member_number(name) for name in ("n0", "n2", "x", "n", "n" + "9" * 30)] == [
        *(1, 3, 0, 0, 0)
    ]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.sampled_from(("", "n1", "x")),
    lambda inner: st.lists(inner, max_size=2) | st.fixed_dictionaries({"n1": inner, "x": inner}),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(raft_status("n0"))), PLAIN))
def test_odd_fields_of_another_version_raise_nothing(changed: dict[str, object]) -> None:
    group = a_group()
    for member in ("n0", "n1"):
        group.raft(member).update(changed)
    snapshot = seen(group)
    for replica in snapshot.replicas:
        condition_of(replica)
    list(judge(snapshot, RULES, list(Area)))
    for one in snapshot.sets:
        condition_of_set(one)
        for do in Do:
            plan_change(one, do, "n1", "10.0.0.9:10911")


def test_a_node_of_no_group_has_no_state() -> None:
    assert RaftState.of(None) is None
    assert RaftState.of({"role": "LEADER"}) is None


# Plans.


def test_a_transfer_without_a_name_goes_to_who_lacks_least() -> None:
    group = a_group()
    group.row("n1")["gap_bytes"] = 1000
    plan = plan_change(set_of(group), Do.TRANSFER)
    assert (plan.member, plan.may_run, plan.leader_address) == ("n2", True, address_of("n0"))
    assert plan.would == "n2 leads in a term of its own, n0 follows; nothing is lost"


@pytest.mark.parametrize(
    ("do", "member", "says"),
    [
        (Do.TRANSFER, "n0", "n0 leads already"),
        (Do.TRANSFER, "n7", "n7 is no member; there are n0, n1, n2, n3"),
        (Do.TRANSFER, "n3", "n3 is a learner: promote it first"),
        (Do.TRANSFER, "n2", "n2 has not been heard for 9.0 s"),
        (Do.TRANSFER, "n1", "n1 is 300.0 MiB behind"),
        (Do.ADD, "n1", "n1 is a member already"),
        (Do.ADD, "n4", "n1 has the address 10.0.1.2:10911 already"),
        (Do.PROMOTE, "n1", "n1 is a voter already"),
        (Do.PROMOTE, "n4", "n4 is no member; there are n0, n1, n2, n3"),
        (Do.REMOVE, "n4", "n4 is no member; there are n0, n1, n2, n3"),
        (Do.REMOVE, "n1", "nothing could be committed any more"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    do: Do, member: str, says: str
) -> None:
    group = a_group(learner=True)
    group.row("n1")["gap_bytes"] = 300 << 20
    group.row("n2")["heard_age_ms"] = 9000
    plan = plan_change(set_of(group), do, member, address_of("n1"))
    assert not plan.may_run
    assert says in plan.refusals[0]


def test_what_a_removal_costs_is_said() -> None:
    group = a_group(learner=True)
    plan = plan_change(set_of(group), Do.REMOVE, "n0")
    assert plan.may_run
    assert plan.costs == "the group survives the loss of 0, not 1"
    assert "it leads until that is committed" in plan.would
    learner = plan_change(set_of(group), Do.REMOVE, "n3")
    assert (learner.may_run, learner.costs) == (True, "")


def test_without_a_leader_there_is_nobody_to_ask() -> None:
    group = a_group()
    for member in ("n0", "n1", "n2"):
        group.raft(member).update(role="CANDIDATE", followers=[])
    plan = plan_change(set_of(group), Do.TRANSFER, "n1")
    assert plan.refusals == (
        f"{GROUP} has no leader that can make the change: nothing can be sent to it until one is "
        "elected",
    )


def test_a_master_slave_set_is_sent_to_the_other_command() -> None:
    cluster = RawCluster()
    cluster.add_set(GROUP)
    one = ClusterSnapshot.of(cluster.raw()).set_of(GROUP)
    assert one is not None
    assert "`trioha failover`" in plan_change(one, Do.TRANSFER, "n1").refusals[0]


def test_answers_of_a_leader() -> None:
    request, one = RemotingCommand(1), set_of(a_group(learner=True))
    plan = plan_change(one, Do.TRANSFER, "n1")
    body = msgpack.packb({"leader": "n1", "term": 5})
    assert read_change(plan, request.response(body=body)) == f"n1 leads {GROUP} since term 5"
    for do, member, words in (
        (Do.ADD, "n4", "n4 is a learner of"),
        (Do.PROMOTE, "n3", "n3 votes in"),
        (Do.REMOVE, "n2", "n2 is no member of"),
    ):
        assert words in read_change(plan_change(one, do, member, "h:1"), request.response())
    with pytest.raises(CommandError, match="a transfer runs"):
        read_change(plan, request.response(ResponseCode.NO_PERMISSION, "a transfer runs"))
    with pytest.raises(OutcomeUnknown, match="no majority"):
        read_change(
            plan, request.response(ResponseCode.SYSTEM_ERROR, "outcome unknown: no majority in 5 s")
        )
    with pytest.raises(RemoteProtocolError):
        read_change(plan, request.response(body=b"\xc1"))
