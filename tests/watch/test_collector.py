from __future__ import annotations

from typing import Any

import msgpack
import pytest

from trioha.remoting.channel import Instant
from trioha.watch.collector import Collector, Interest
from trioha.watch.questions import Question
from trioha.wire import fastjson
from trioha.wire.codes import ResponseCode
from trioha.wire.fastjson import ObjectKeyMap
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo

NAMESRV = "10.0.0.9:9876"
MASTER, SLAVE = "10.0.1.1:10911", "10.0.1.2:10911"


def at(now_ms: int) -> Instant:
    return Instant(now_ms, 1_760_000_000_000 + now_ms)


def cluster_of(addresses: dict[int, str]) -> RemotingCommand:
    data = BrokerData("C", "broker-a", addresses)
    return RemotingCommand(0, body=ClusterInfo({"broker-a": data}, {"C": ("broker-a",)}).encode())


def status(**fields: object) -> RemotingCommand:
    return RemotingCommand(0, body=msgpack.packb(fields))


def keys(questions: list[Question]) -> set[tuple[str, str]]:
    return {(one.address, one.key) for one in questions}


def knowing_both(collector: Collector) -> None:
    (question,) = collector.due(at(0))
    collector.answered(question, cluster_of({0: MASTER, 1: SLAVE}), at(0))


def test_name_servers_are_asked_first_then_whom_they_name() -> None:
    collector = Collector([NAMESRV])
    (question,) = collector.due(at(0))
    assert keys([question]) == {(NAMESRV, "cluster")}
    assert collector.due(at(0)) == []
    collector.answered(question, cluster_of({0: MASTER, 1: SLAVE}), at(3))
    assert keys(collector.due(at(3))) == {(MASTER, "status"), (SLAVE, "status")}


def test_a_question_that_is_out_is_not_asked_again() -> None:
    collector = Collector([NAMESRV])
    knowing_both(collector)
    questions = {one.address: one for one in collector.due(at(0))}
    collector.answered(questions[MASTER], status(epoch=1), at(5))
    assert keys(collector.due(at(1000))) == {(NAMESRV, "cluster"), (MASTER, "status")}
    collector.failed(questions[SLAVE], "too slow", at(3000))
    assert (SLAVE, "status") in keys(collector.due(at(3000)))


def test_the_last_answer_is_kept_beside_the_reason_why_there_is_no_newer_one() -> None:
    collector = Collector([NAMESRV])
    knowing_both(collector)
    for now_ms, answers in ((0, True), (1000, False), (2000, False)):
        for question in collector.due(at(now_ms)):
            if question.address != SLAVE:
                continue
            if answers:
                collector.answered(question, status(epoch=7), at(now_ms))
            else:
                collector.failed(question, "connection refused", at(now_ms))
    answer = collector.raw(at(2500).wall_ms)["answers"][SLAVE]["status"]
    assert answer["value"] == {"epoch": 7}
    assert answer["wall_ms"] == at(0).wall_ms
    assert answer["error"] == "connection refused"
    assert answer["error_wall_ms"] == at(1000).wall_ms


def test_a_replica_that_is_no_longer_registered_is_remembered_and_asked_on() -> None:
    collector = Collector([NAMESRV])
    knowing_both(collector)
    for question in collector.due(at(0)):
        collector.answered(question, status(), at(0))
    question, *others = collector.due(at(1000))
    collector.answered(question, cluster_of({0: MASTER}), at(1000))
    members = collector.raw(at(1000).wall_ms)["members"]
    assert not members[SLAVE]["registered"]
    assert members[SLAVE]["seen_wall_ms"] == at(0).wall_ms
    assert members[MASTER]["registered"]
    for question in others:
        collector.failed(question, "gone", at(1000))
    assert (SLAVE, "status") in keys(collector.due(at(2000)))


def test_a_node_that_does_not_know_our_requests_is_asked_what_every_broker_knows() -> None:
    collector = Collector([NAMESRV])
    knowing_both(collector)
    refusal = RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not supported")
    for question in collector.due(at(0)):
        collector.answered(question, refusal, at(0))
    assert keys(collector.due(at(0))) == {(MASTER, "runtime"), (SLAVE, "runtime")}
    # It may be replaced by one of ours, so it is asked again, ten times less often.
    assert (MASTER, "status") not in keys(collector.due(at(1000)))
    assert (MASTER, "status") in keys(collector.due(at(10_000)))


def test_an_answer_that_cannot_be_read_is_a_failure_in_words() -> None:
    collector = Collector([NAMESRV])
    knowing_both(collector)
    for question in collector.due(at(0)):
        collector.answered(question, RemotingCommand(0, body=b"\xc1"), at(0))
    answer = collector.raw(0)["answers"][MASTER]["status"]
    assert answer["value"] is None
    assert "the status is not msgpack" in answer["error"]


def test_tables_are_asked_for_when_somebody_wants_them_and_of_masters_only() -> None:
    collector = Collector([NAMESRV])
    knowing_both(collector)
    collector.interest = Interest(topics=True, members_of=frozenset({"G"}))
    asked = {key for address, key in keys(collector.due(at(0))) if address == MASTER}
    assert asked == {"status", "topics", "groups", "progress", "members/G"}
    assert {key for address, key in keys(collector.due(at(0))) if address == SLAVE} == set()


def test_tables_are_asked_for_anew_after_a_change() -> None:
    collector = Collector([NAMESRV])
    knowing_both(collector)
    collector.interest = Interest(topics=True)
    questions = {one.key: one for one in collector.due(at(0)) if one.address == MASTER}
    for key in ("groups", "progress"):
        collector.answered(questions[key], RemotingCommand(0, body=b"{}"), at(1))
    collector.interest = Interest(topics=True, changes=1)
    assert keys(collector.due(at(2))) == {(MASTER, "groups"), (MASTER, "progress")}
    # That answer may be older than the change.
    collector.answered(questions["topics"], RemotingCommand(0, body=b"{}"), at(3))
    assert keys(collector.due(at(4))) == {(MASTER, "topics")}
    assert keys(collector.due(at(5))) == set()


def test_what_raw_gave_away_does_not_change_later() -> None:
    collector = Collector([NAMESRV])
    knowing_both(collector)
    before = collector.raw(at(0).wall_ms)
    packed = msgpack.packb(before)
    for question in collector.due(at(0)):
        collector.answered(question, status(epoch=1), at(0))
    for question in collector.due(at(1000)):
        collector.failed(question, "gone", at(1000))
    assert msgpack.packb(before) == packed


def test_a_member_that_died_before_we_came_is_known_from_its_set() -> None:
    collector = Collector([NAMESRV])
    (question,) = collector.due(at(0))
    collector.answered(question, cluster_of({0: MASTER}), at(0))
    (question,) = collector.due(at(0))
    collector.answered(question, status(members={"0": MASTER, "1": SLAVE}), at(0))
    member = collector.raw(at(0).wall_ms)["members"][SLAVE]
    assert (member["name"], member["id"], member["registered"]) == ("broker-a", 1, False)
    assert keys(collector.due(at(0))) == {(SLAVE, "status")}


def progress_of(groups: int, queues: int) -> RemotingCommand:
    """Offsets of groups that each read one topic."""
    table = ObjectKeyMap(
        ({"topic": "T", "brokerName": "broker-a", "queueId": number}, {"brokerOffset": 9})
        for number in range(queues)
    )
    told = [{f"g{number}": [{"offsetTable": table}]} for number in range(groups)]
    return RemotingCommand(0, body=fastjson.dumps({"consumeStatsList": told}))


def answer_all(collector: Collector, now_ms: int, groups: int = 1) -> set[str]:
    """Answer what is due to the master; return the keys."""
    due = [one for one in collector.due(at(now_ms)) if one.address == MASTER]
    for one in due:
        body = progress_of(groups, 100) if one.key == "progress" else status()
        collector.answered(one, body, at(now_ms))
    return {one.key for one in due}


def test_for_alerts_alone_offsets_of_groups_are_asked_for_seldom() -> None:
    collector = Collector([NAMESRV])
    collector.interest = Interest(alerts=True)
    knowing_both(collector)
    assert answer_all(collector, 0) == {"status"}, "the first screen comes first"
    asked = [
        now_ms
        for now_ms in range(1000, 70_000, 1000)
        if "progress" in answer_all(collector, now_ms)
    ]
    assert asked == [1000, 28_000, 55_000]


def test_large_tables_of_groups_are_asked_for_less_often() -> None:
    collector = Collector([NAMESRV])
    collector.interest = Interest(topics=True)
    knowing_both(collector)
    asked = [
        now_ms
        for now_ms in range(0, 60_000, 1000)
        if "progress" in answer_all(collector, now_ms, groups=500)
    ]
    assert asked == [0, 18_000, 36_000, 54_000], "fifty thousand rows"


def test_a_thrifty_viewer_asks_for_large_tables_of_groups_four_times_less_often() -> None:
    collector = Collector([NAMESRV])
    collector.interest = Interest(topics=True)
    collector.thrifty = True
    knowing_both(collector)
    asked = [
        now_ms
        for now_ms in range(0, 160_000, 1000)
        if "progress" in answer_all(collector, now_ms, groups=500)
    ]
    assert asked == [0, 72_000, 144_000], "fifty thousand rows"
    small = [
        now_ms
        for now_ms in range(160_000, 250_000, 1000)
        if "progress" in answer_all(collector, now_ms, groups=1)
    ]
    assert small[1:3] == [small[0] + 5_000, small[0] + 10_000], "a hundred rows cost nothing"


@pytest.mark.parametrize("thrifty", [False, True])
def test_many_topics_are_asked_about_in_turns(thrifty: bool) -> None:
    collector = Collector([NAMESRV])
    collector.interest = Interest(topics=True, stats_of_all=True)
    collector.thrifty = thrifty
    knowing_both(collector)
    names = {f"topic_stats/t{number}" for number in range(1250)}
    config = {name.removeprefix("topic_stats/"): {"perm": 6} for name in names}
    body = fastjson.dumps({"topicConfigTable": config})
    asked: list[str] = []
    counts = []
    for now_ms in range(0, 25_000, 1000):
        before = len(asked)
        while due := collector.due(at(now_ms)):
            asked += [one.key for one in due if one.key in names]
            for one in due:
                told = RemotingCommand(0, body=body) if one.key == "topics" else status()
                collector.answered(one, told, at(now_ms))
        counts.append(len(asked) - before)
    # A thrifty viewer takes its time for those that it knows.
    later = [125] * 2 if thrifty else [500] * 2
    assert [count for count in counts if count] == [500] * 3 + later
    assert set(asked[:1250]) == names, "nobody is asked twice before all were asked"


def test_the_same_tables_told_again_are_read_once() -> None:
    collector = Collector([NAMESRV])
    collector.interest = Interest(topics=True)
    knowing_both(collector)

    def told_topics(now_ms: int, response: RemotingCommand) -> dict[str, Any]:
        for question in collector.due(at(now_ms)):
            if question.key == "topics":
                collector.answered(question, response, at(now_ms))
            else:
                collector.failed(question, "no answer", at(now_ms))
        found: dict[str, Any] = collector.raw(0)["answers"][MASTER]["topics"]
        return found

    def table(perm: int) -> RemotingCommand:
        body = fastjson.dumps({"topicConfigTable": {"orders": {"perm": perm}}})
        return RemotingCommand(0, body=body)

    first = told_topics(0, table(6))
    again = told_topics(10_000, table(6))
    assert again["value"] is first["value"]
    assert again["wall_ms"] == at(10_000).wall_ms, "it is as fresh as its answer"
    refused = told_topics(20_000, RemotingCommand(ResponseCode.NO_PERMISSION))
    assert (refused["code"], refused["value"]) == (ResponseCode.NO_PERMISSION, first["value"])
    well = told_topics(30_000, table(6))
    assert (well["error"], well["value"]) == ("", first["value"])
    assert told_topics(40_000, table(4))["value"] == {"orders": {"perm": 4}}


def test_only_an_answer_that_opens_questions_makes_the_shell_look_again() -> None:
    collector = Collector([NAMESRV])
    (question,) = collector.due(at(0))
    assert collector.answered(question, cluster_of({0: MASTER}), at(0))
    (question,) = collector.due(at(0))
    assert collector.answered(question, status(members={"0": MASTER, "1": SLAVE}), at(0))
    for question in collector.due(at(1000)):
        told = cluster_of({0: MASTER}) if question.key == "cluster" else status()
        assert not collector.answered(question, told, at(1000))
