"""The nouns at a cluster of both makes: what they leave behind is what mqadmin 4.9.8 leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.clusters.meeting import BOTH, NAMES, Meeting
from support.clusters.pair import Make
from support.peers.clients import Clients, StockProducer
from support.peers.java_tools import RESETTABLE_CONSUMER, MqAdmin, eventually
from support.processes.admin import request

from trioha.cli import run
from trioha.wire import fastjson
from trioha.wire.bodies import group_table_from_dict, topic_table_from_dict
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

CLUSTER = "DefaultCluster"


class Cli:
    """The command line, in this process, at one name server."""

    def __init__(self, namesrv: str, capture: pytest.CaptureFixture[str]) -> None:
        self._namesrv = namesrv
        self._capture = capture

    def json(self, *arguments: str) -> Any:
        code, printed = self._run(*arguments)
        assert code == 0, (arguments, printed)
        return json.loads(printed)

    def refused(self, *arguments: str) -> Any:
        code, printed = self._run(*arguments, "--dry-run")
        assert code == 1, (arguments, printed)
        return json.loads(printed)

    def _run(self, *arguments: str) -> tuple[int, str]:
        self._capture.readouterr()
        code = run([*arguments, "-n", self._namesrv, "-o", "json"])
        return code, self._capture.readouterr().out


@pytest.fixture
def cli(meeting: Meeting, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(";".join(node.address for node in meeting.namesrvs.values()), capsys)


def ask(meeting: Meeting, make: Make, code: RequestCode, **fields: Any) -> Any:
    answer = request(meeting.masters[make].address, RemotingCommand(code, dict(fields)))
    return fastjson.loads(answer.body_bytes()) if answer.code == 0 else None


def state_of(meeting: Meeting, make: Make, topic: str, group: str) -> tuple[Any, Any]:
    """Return one broker's topic and group; None where it has none."""
    topics = topic_table_from_dict(ask(meeting, make, RequestCode.GET_ALL_TOPIC_CONFIG))[1]
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    groups = group_table_from_dict(ask(meeting, make, code))[1]
    return topics.get(topic), groups.get(group)


def state(meeting: Meeting, topic: str, group: str) -> list[object]:
    """Return what both brokers and both name servers hold of topic and group, without the names."""
    found: list[object] = []
    for make in BOTH:
        one, other = state_of(meeting, make, topic, group)
        found.append(one and {**one.to_dict(), "topicName": "", "order": ""})
        found.append(other and {**other.to_dict(), "groupName": ""})
    for namesrv in meeting.namesrvs.values():
        fields: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic}
        answer = request(namesrv.address, RemotingCommand(RequestCode.GET_KV_CONFIG, fields))
        found.append(answer.ext_fields.get("value"))
        route = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        found.append(request(namesrv.address, route).code)
    return found


def test_the_same_job_leaves_the_same_state(meeting: Meeting, admin: MqAdmin, cli: Cli) -> None:
    namesrv = meeting.namesrvs["trioha"].address
    everywhere = ";".join(node.address for node in meeting.namesrvs.values())

    cli.json("topic", "create", "by-trioha", "--queues", "3", "--order")
    admin.run(
        *("updateTopic", "-n", everywhere, "-c", CLUSTER, "-t", "by-mqadmin"),
        *("-r", "3", "-w", "3", "-o", "true"),
    )
    cli.json("group", "create", "g-trioha", "--retry-max", "5", "--retry-queues", "2")
    admin.run(
        *("updateSubGroup", "-n", namesrv, "-c", CLUSTER, "-g", "g-mqadmin"),
        *("-r", "5", "-m", "true", "-d", "true"),
    )
    cli.json("group", "alter", "g-trioha", "--retry-queues", "1")
    ours, theirs = (
        state(meeting, "by-trioha", "g-trioha"),
        state(meeting, "by-mqadmin", "g-mqadmin"),
    )
    assert ours == theirs
    assert "broker-java:3;broker-trioha:3" in ours

    cli.json("topic", "delete", "by-trioha", "--yes")
    admin.run("deleteTopic", "-n", everywhere, "-c", CLUSTER, "-t", "by-mqadmin")
    cli.json("group", "delete", "g-trioha", "--yes")
    admin.run("deleteSubGroup", "-n", everywhere, "-c", CLUSTER, "-g", "g-mqadmin", "-r", "true")
    # mqadmin leaves the order of a topic that is gone at the name servers.
    order = "broker-java:3;broker-trioha:3"
    theirs = [one for one in state(meeting, "by-mqadmin", "g-mqadmin") if one != order]
    ours = state(meeting, "by-trioha", "g-trioha")
    assert [one for one in ours if one] == [one for one in theirs if one]
    assert order not in ours


def test_what_mqadmin_has_set_on_one_broker_is_kept(
    meeting: Meeting, admin: MqAdmin, cli: Cli
) -> None:
    """A 4.9 broker tells all topics and groups, or none."""
    namesrv = meeting.namesrvs["trioha"].address
    retries: dict[Make, int] = {"java": 9, "trioha": 4}
    for make in BOTH:
        address = meeting.masters[make].address
        extra = ("-o", "true", "-u", str(make == "java").lower())
        topic = ("updateTopic", "-n", namesrv, "-b", address, "-t", "uneven", "-r", "2", "-w", "2")
        admin.run(*topic, *extra)
        admin.run(
            *("updateSubGroup", "-n", namesrv, "-b", address, "-g", "uneven-g"),
            *("-r", str(retries[make]), "-m", "true", "-d", "true"),
        )
    cli.json("topic", "alter", "uneven", "--queues", "3", "-b", "broker-java")
    cli.json("group", "alter", "uneven-g", "--no-consume")
    found = {make: state_of(meeting, make, "uneven", "uneven-g") for make in BOTH}
    assert {make: topic.topic_sys_flag for make, (topic, _) in found.items()} == {
        "java": 1,
        "trioha": 0,
    }
    assert {make: group.retry_max_times for make, (_, group) in found.items()} == retries
    assert not any(group.consume_enable for _, group in found.values())
    entries = cli.json("namesrv", "kv", "get", "ORDER_TOPIC_CONFIG", "uneven")["entries"]
    assert entries == {"uneven": "broker-java:3;broker-trioha:2"}


def test_a_connected_java_consumer(
    meeting: Meeting, cli: Cli, producers: dict[Make, StockProducer], shared_clients: Clients
) -> None:
    """Commands describe it, show its threads, hand it a message, and move its offsets."""
    topic, group = "nouns", "noun-readers"
    meeting.create_topic(topic, queues=1)
    namesrv = meeting.namesrvs["trioha"].address
    consumer = shared_clients.consumer("java", namesrv, group, topic, **RESETTABLE_CONSUMER)
    sent = producers["trioha"].send_all(topic, [f"body {number}" for number in range(6)])
    consumer.wait_for_count(6)

    def told() -> tuple[set[str], int]:
        # A broker leaves a topic out whose subscription no heartbeat has told it yet.
        detail = cli.json("group", "describe", group)
        brokers = {one["broker"] for one in detail["queues"] if one["topic"] == topic}
        return brokers, int(detail["lag"])

    eventually(told, (set(NAMES.values()), 0), 30.0)
    detail = cli.json("group", "describe", group)
    (member,) = detail["members"]
    assert (member["language"], member["version"]) == ("JAVA", "4.9.8")
    mine = [one for one in detail["queues"] if one["topic"] == topic]
    assert {one["owner"] for one in mine} == {member["client_id"]}

    info = cli.json("client", "describe", group, "--stacks")
    assert info["subscriptions"][topic] == "*"
    assert "java.lang.Thread" in info["stacks"] or "at java" in info["stacks"]
    listed = cli.json("client", "list", "-g", group)["clients"]
    assert [one["client_id"] for one in listed] == [member["client_id"]]

    for one in (sent[0], next(other for other in sent if other.broker != sent[0].broker)):
        assert one.msg_id is not None
        done = cli.json("client", "consume-directly", group, one.msg_id, "-t", topic)
        assert done["result"] == "CR_SUCCESS"
    consumer.wait_for_count(8)

    # RocketMQ's broker can only be told a time; ours pushes the offsets of the queues named.
    where = ["group", "reset-offsets", group, "-t", topic, "--to-offset", "0"]
    assert cli.refused(*where)["refusals"][0].startswith("broker-java is RocketMQ's broker")
    reset = cli.json(*where, "--queue", "broker-trioha:0", "--yes")
    assert reset["members"] == [member["client_id"]]
    assert any("10 s" in note for note in reset["notes"])
    (queue,) = [one for one in mine if one["broker"] == "broker-trioha"]
    consumer.wait_for_count(8 + queue["offset"], within_s=30.0)


def offsets(meeting: Meeting, group: str, topic: str) -> dict[Make, int | None]:
    found: dict[Make, int | None] = {}
    for make in BOTH:
        fields: dict[str, Any] = {"consumerGroup": group, "topic": topic, "queueId": 0}
        command = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        answer = request(meeting.masters[make].address, command)
        found[make] = answer.ext_int("offset") if answer.code == 0 else None
    return found


def test_offsets_are_set_and_cloned_as_by_mqadmin(
    meeting: Meeting, admin: MqAdmin, cli: Cli, producers: dict[Make, StockProducer]
) -> None:
    topic = "nouns-offsets"
    meeting.create_topic(topic, queues=1)
    meeting.create_topic("%RETRY%set-mqadmin", queues=1)  # mqadmin finds a group's brokers by it
    sent = producers["trioha"].send_all(topic, [f"body {number}" for number in range(8)])
    assert {one.broker for one in sent} == set(NAMES.values())
    for group in ("set-trioha", "set-mqadmin"):
        for make in BOTH:
            fields: dict[str, Any] = {
                "consumerGroup": group,
                "topic": topic,
                "queueId": 0,
                "commitOffset": 3,
            }
            command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            assert request(meeting.masters[make].address, command).code == 0
    namesrv = meeting.namesrvs["trioha"].address

    cli.json("group", "reset-offsets", "set-trioha", "-t", topic, "--to", "earliest", "--yes")
    admin.run("resetOffsetByTime", "-n", namesrv, "-g", "set-mqadmin", "-t", topic, "-s", "1")
    assert offsets(meeting, "set-trioha", topic) == {"trioha": 0, "java": 0}
    assert offsets(meeting, "set-mqadmin", topic) == {"trioha": 0, "java": 0}

    cli.json("group", "skip", "set-trioha", "-t", topic, "--yes")
    admin.run("skipAccumulatedMessage", "-n", namesrv, "-g", "set-mqadmin", "-t", topic)
    assert offsets(meeting, "set-trioha", topic) == {"trioha": 4, "java": 4}
    assert offsets(meeting, "set-mqadmin", topic) == {"trioha": 4, "java": 4}

    cli.json("group", "clone-offsets", "set-trioha", "copy-trioha", "-t", topic)
    admin.run(
        *("cloneGroupOffset", "-n", namesrv, "-s", "set-mqadmin", "-d", "copy-mqadmin"),
        *("-t", topic, "-o", "true"),
    )
    assert offsets(meeting, "copy-trioha", topic) == offsets(meeting, "copy-mqadmin", topic)


def test_messages_settings_and_entries_are_left_as_by_mqadmin(
    meeting: Meeting, admin: MqAdmin, cli: Cli
) -> None:
    namesrv = meeting.namesrvs["trioha"].address
    everywhere = ";".join(node.address for node in meeting.namesrvs.values())
    broker, name = meeting.masters["trioha"].address, NAMES["trioha"]

    for topic in ("sent-by-trioha", "sent-by-mqadmin"):
        meeting.create_topic(topic, ["trioha"], queues=1)
    cli.json("message", "send", "sent-by-trioha", "hello", "--tag", "paid", "--key", "k-1")
    admin.run(
        *("sendMessage", "-n", namesrv, "-t", "sent-by-mqadmin", "-p", "hello"),
        *("-c", "paid", "-k", "k-1"),
    )
    found = [
        [
            (one["body"], one["tags"], one["keys"])
            for one in cli.json("message", "browse", topic)["messages"]
        ]
        for topic in ("sent-by-trioha", "sent-by-mqadmin")
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 1

    key = "shortPollingTimeMills"
    held = []
    cli.json("broker", "config", "set", name, key, "700")
    held.append(cli.json("broker", "config", "get", name, key))
    admin.run("updateBrokerConfig", "-n", namesrv, "-b", broker, "-k", key, "-v", "1000")
    admin.run("updateBrokerConfig", "-n", namesrv, "-b", broker, "-k", key, "-v", "700")
    held.append(cli.json("broker", "config", "get", name, key))
    admin.run("updateBrokerConfig", "-n", namesrv, "-b", broker, "-k", key, "-v", "1000")
    assert held[0] == held[1]

    cli.json("namesrv", "kv", "put", "by-trioha", "region", "eu-1")
    admin.run(
        *("updateKvConfig", "-n", everywhere, "-s", "by-mqadmin", "-k", "region", "-v", "eu-1")
    )
    kept = [cli.json("namesrv", "kv", "list", one) for one in ("by-trioha", "by-mqadmin")]
    assert [one["entries"] for one in kept] == [{"region": "eu-1"}] * 2
    cli.json("namesrv", "kv", "delete", "by-trioha", "region", "--yes")
    admin.run("deleteKvConfig", "-n", everywhere, "-s", "by-mqadmin", "-k", "region")
    for name in ("by-trioha", "by-mqadmin"):
        for node in meeting.namesrvs.values():
            fields: dict[str, Any] = {"namespace": name, "key": "region"}
            asked = RemotingCommand(RequestCode.GET_KV_CONFIG, fields)
            assert "value" not in request(node.address, asked).ext_fields
