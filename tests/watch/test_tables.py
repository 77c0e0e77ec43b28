"""Tables are understood once for each answer."""

from __future__ import annotations

from collections.abc import Iterator

from support.fakes.raw_answers import RawCluster
from support.fakes.raw_topics import add_topics

from trioha.watch.snapshot import ClusterSnapshot, Tables


def test_what_nobody_answered_anew_is_not_understood_again() -> None:
    cluster = RawCluster()
    add_topics(cluster, *cluster.add_set("broker-a"))
    tables = Tables()
    before = ClusterSnapshot.of(cluster.raw(), tables)
    queues, groups = before.queues, before.groups
    cluster.tick()
    after = ClusterSnapshot.of(cluster.raw(), tables)
    assert after.queues is queues
    assert after.groups is groups
    assert queues
    assert groups


def test_a_newer_answer_is_understood() -> None:
    cluster = RawCluster()
    (address, *_) = cluster.add_set("broker-a")
    cluster.say(address, "topic_stats/orders", [[0, 0, 10, 1], [1, 0, 20, 1]])
    tables = Tables()
    assert [one.max_offset for one in ClusterSnapshot.of(cluster.raw(), tables).queues] == [10, 20]
    cluster.say(address, "topic_stats/orders", [[1, 0, 21, 1], [0, 0, 11, 1]])
    assert [one.max_offset for one in ClusterSnapshot.of(cluster.raw(), tables).queues] == [11, 21]


def test_a_large_table_that_is_kept_for_a_while_needs_no_look_at_its_answers() -> None:
    tables = Tables()
    rows = list(range(5_000))
    answers = [("broker-a", object())]
    made = tables.of("queues", answers, lambda: rows, at_wall_ms=0, rows_of=len)
    looked = []

    def newer() -> Iterator[tuple[str, object]]:
        looked.append("at the answers")
        yield "broker-a", object()

    for at_wall_ms in (0, 1_999):
        kept: list[int] = tables.of("queues", newer(), list, at_wall_ms=at_wall_ms, rows_of=len)
        assert kept is made
    assert not looked
    assert tables.of("queues", newer(), list, at_wall_ms=2_000, rows_of=len) == []
    assert looked


def test_topics_that_are_told_again_are_not_understood_again() -> None:
    cluster = RawCluster()
    (address, *_) = cluster.add_set("broker-a")
    told = {"orders": {"perm": 6}}
    cluster.say(address, "topics", told)
    tables = Tables()
    before = ClusterSnapshot.of(cluster.raw(), tables).topics
    cluster.tick()
    cluster.say(address, "topics", told)
    assert ClusterSnapshot.of(cluster.raw(), tables).topics is before
    cluster.say(address, "topics", {"orders": {"perm": 4}})
    assert ClusterSnapshot.of(cluster.raw(), tables).topics["orders"].perm == 4


def test_an_answer_that_is_gone_takes_its_rows_along() -> None:
    cluster = RawCluster()
    (address, *_) = cluster.add_set("broker-a")
    cluster.say(address, "progress", {"readers": {"orders": [[0, 10, 7, 1]]}})
    tables = Tables()
    assert ClusterSnapshot.of(cluster.raw(), tables).groups["readers"].lag == 3
    del cluster.answers[address]["progress"]
    assert ClusterSnapshot.of(cluster.raw(), tables).groups == {}


def test_the_same_answer_of_another_broker_is_another_table() -> None:
    cluster = RawCluster()
    first, _ = cluster.add_set("broker-a")
    cluster.say(first, "topic_stats/orders", [[0, 0, 10, 1]])
    tables = Tables()
    assert ClusterSnapshot.of(cluster.raw(), tables).queues[0].broker == "broker-a"
    for member in cluster.members.values():
        member["name"] = "broker-b"
    assert ClusterSnapshot.of(cluster.raw(), tables).queues[0].broker == "broker-b"


def test_the_groups_of_a_topic_come_with_their_lags_the_largest_first() -> None:
    cluster = RawCluster()
    first, _ = cluster.add_set("broker-a")
    second, _ = cluster.add_set("broker-b")
    lags = {first: (1, 5), second: (2, 4)}
    for address, (audit, billing) in lags.items():
        progress = {
            "audit": {"orders": [[0, 10, 10 - audit, 1]]},
            "billing": {"orders": [[0, 10, 10 - billing, 1]], "refunds": [[0, 10, 10, 1]]},
        }
        cluster.say(address, "progress", progress)
    tables = Tables()
    found = ClusterSnapshot.of(cluster.raw(), tables).groups_by_topic
    assert found == {"orders": (("billing", 9), ("audit", 3)), "refunds": (("billing", 0),)}
    assert ClusterSnapshot.of(cluster.raw(), tables).groups_by_topic is found


def test_a_thrifty_viewer_keeps_a_large_table_four_times_as_long() -> None:
    kept_s = []
    for thrifty in (False, True):
        cluster = RawCluster()
        (address, *_) = cluster.add_set("broker-a")
        tables = Tables()
        tables.thrifty = thrifty
        rows = [[number, 0, 10, 1] for number in range(12_500)]
        cluster.say(address, "topic_stats/orders", rows)
        first = ClusterSnapshot.of(cluster.raw(), tables).queues
        for second in range(1, 30):
            cluster.tick()
            cluster.say(address, "topic_stats/orders", list(rows))
            if ClusterSnapshot.of(cluster.raw(), tables).queues is not first:
                kept_s.append(second)
                break
    assert kept_s == [5, 20]
