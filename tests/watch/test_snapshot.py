from __future__ import annotations

import msgpack
import pytest
from support.fakes.raw_answers import NAMESRV, RawCluster

from trioha.watch.snapshot import ClusterSnapshot


def test_a_level_pair_is_one_set_with_both_ends_of_its_link() -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    snapshot = ClusterSnapshot.of(cluster.raw())
    (one,) = snapshot.sets
    assert [replica.address for replica in one.replicas] == [master, slave]
    replica = one.replicas[1]
    assert replica.link is not None
    assert replica.link.peer == "10.0.1.2:50001"
    assert replica.master is one.replicas[0]
    assert (replica.gap_bytes, replica.in_sync) == (0, True)
    assert replica.heard_age_s == pytest.approx(1.2)
    assert snapshot.namesrvs[0].masters == {"broker-a": master}


def test_a_recording_keeps_all_of_it() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a", 2)
    raw = cluster.raw()
    assert ClusterSnapshot.of(msgpack.unpackb(msgpack.packb(raw))) == ClusterSnapshot.of(raw)


def test_a_silent_node_keeps_its_last_numbers_and_their_age() -> None:
    cluster = RawCluster()
    _, slave = cluster.add_set("broker-a")
    cluster.silent[slave] = "did not answer within 3 s"
    for _ in range(7):
        cluster.tick()
    replica = ClusterSnapshot.of(cluster.raw()).replica(slave)
    assert replica is not None
    assert replica.max_phy_offset == 4096
    assert replica.answer.age_s == pytest.approx(7.0)
    assert replica.answer.error_age_s == pytest.approx(6.0)
    assert replica.answer.is_stale


def test_ages_of_a_silent_master_go_on() -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    cluster.silent[master] = "connection refused"
    for _ in range(10):
        cluster.tick()
    replica = ClusterSnapshot.of(cluster.raw()).replica(slave)
    assert replica is not None
    assert replica.heard_age_s == pytest.approx(11.2)


def test_who_never_answered_has_no_numbers_rather_than_zeros() -> None:
    cluster = RawCluster()
    _, slave = cluster.add_set("broker-a")
    cluster.statuses.pop(slave)
    cluster.answers.pop(slave)
    replica = ClusterSnapshot.of(cluster.raw()).replica(slave)
    assert replica is not None
    assert (replica.max_phy_offset, replica.epoch, replica.uptime_s) == (None, None, None)
    assert replica.role is None
    assert replica.answer.age_s is None
    # Its master's report of the link still counts.
    assert replica.gap_bytes == 0


@pytest.mark.parametrize("odd", [None, {}, {"connections": 7, "slave": "no"}, {"epoch": "x"}])
def test_an_older_or_odd_node_blanks_no_screen(odd: object) -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    cluster.say(master, "status", odd)
    snapshot = ClusterSnapshot.of(cluster.raw())
    found = snapshot.replica(master)
    assert found is not None
    assert (found.epoch, found.links, found.max_phy_offset) == (None, (), None)
    assert found.is_master  # by its registration
    assert snapshot.replica(slave) is not None


def test_two_slaves_of_one_host_are_told_apart_by_their_ids() -> None:
    cluster = RawCluster()
    master, first, second = cluster.add_set("broker-a", 2)
    for index in (0, 1):
        link = cluster.link(master, 1 - index)
        link.update(peer=f"10.0.1.1:{60000 + index}", home_id=index + 1, gap_bytes=index + 1)
    cluster.tick()
    snapshot = ClusterSnapshot.of(cluster.raw())
    gaps = {one.address: one.gap_bytes for one in snapshot.replicas if not one.is_master}
    assert gaps == {first: 1, second: 2}


def test_the_last_slave_of_a_host_gets_the_last_link_from_there() -> None:
    cluster = RawCluster()
    master, slave = cluster.add_set("broker-a")
    cluster.link(master)["home_id"] = None
    cluster.tick()
    replica = ClusterSnapshot.of(cluster.raw()).replica(slave)
    assert replica is not None
    assert replica.link is not None


def test_a_java_broker_shows_what_its_table_of_texts_tells() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    cluster.statuses.pop(master)
    cluster.say(master, "status", None)
    cluster.answers[master]["status"].update(error="not supported", code=3, wall_ms=None)
    table = {"commitLogMaxOffset": "900", "dispatchBehindBytes": "100", "commitLogDiskRatio": "0.5"}
    cluster.say(master, "runtime", table | {"brokerVersionDesc": "V4_9_8"})
    found = ClusterSnapshot.of(cluster.raw()).replica(master)
    assert found is not None
    assert found.is_trioha is False
    assert found.version == "RocketMQ V4_9_8"
    assert (found.max_phy_offset, found.dispatched_offset) == (900, 800)
    assert found.disk_ratio == 0.5
    assert found.epoch is None
    assert not found.answer.error


def test_two_masters_of_one_set_are_both_shown() -> None:
    cluster = RawCluster()
    _, slave = cluster.add_set("broker-a")
    cluster.statuses[slave].update(standing="MASTER", epoch=2, slave=None)
    cluster.tick()
    (one,) = ClusterSnapshot.of(cluster.raw()).sets
    assert len(one.masters) == 2
    assert one.master is not None
    assert one.master.address == slave


def test_groups_add_up_over_brokers_and_queues_have_owners() -> None:
    cluster = RawCluster()
    first, _ = cluster.add_set("broker-a")
    second, _ = cluster.add_set("broker-b")
    for master, consumed in ((first, 7), (second, 10)):
        rows = [[0, 10, consumed, cluster.wall_ms - 4000]]
        cluster.say(master, "progress", {"G": {"T": rows}})
        clients = [{"client_id": "c1", "address": "10.9.9.9:1", "language": "GO", "version": 401}]
        cluster.say(master, "members/G", {"clients": clients, "message_model": "CLUSTERING"})
    cluster.say(first, "client/G/c1", {"queues": [["T", "broker-a", 0]]})
    group = ClusterSnapshot.of(cluster.raw()).groups["G"]
    assert (group.lag, group.lag_s) == (3, 4.0)
    assert [queue.owner for queue in group.queues] == ["c1", None]
    assert group.members is not None
    (member,) = group.members
    assert (member.brokers, member.queue_count) == (("broker-a", "broker-b"), 1)


def test_a_group_of_which_nobody_tells_progress_has_no_lag_rather_than_none_behind() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    cluster.say(master, "groups", {"G": {}})
    group = ClusterSnapshot.of(cluster.raw()).groups["G"]
    assert (group.lag, group.lag_s, group.members) == (None, None, None)


def test_topics_and_queues_are_those_of_the_master() -> None:
    cluster = RawCluster()
    master, _ = cluster.add_set("broker-a")
    config = {"readQueueNums": 4, "writeQueueNums": 2, "perm": 6, "order": False}
    cluster.say(master, "topics", {"T": config})
    cluster.say(master, "topic_stats/T", [[1, 0, 5, 1234], [0, 0, 0, 0]])
    snapshot = ClusterSnapshot.of(cluster.raw())
    assert snapshot.topics["T"].read_queue_nums == 4
    assert [(one.queue_id, one.max_offset, one.updated_ms) for one in snapshot.queues] == [
        (0, 0, None),
        (1, 5, 1234),
    ]


def test_a_name_server_that_does_not_answer_is_shown_as_such() -> None:
    cluster = RawCluster()
    cluster.add_set("broker-a")
    cluster.silent[NAMESRV] = "connection refused"
    cluster.tick()
    (namesrv,) = ClusterSnapshot.of(cluster.raw()).namesrvs
    assert namesrv.answer.error == "connection refused"
    assert "broker-a" in namesrv.brokers
