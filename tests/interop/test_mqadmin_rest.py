"""The rest of mqadmin 4.9.8's commands, at a cluster of both makes: exports, skips, rehearsals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.clusters.meeting import BOTH, NAMES, Meeting
from support.clusters.pair import Make
from support.peers.clients import StockProducer
from support.peers.java_tools import MqAdmin, eventually, table
from support.processes.admin import request

from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

CLUSTER = "DefaultCluster"
QUEUES = 4
TOLD_S = 30.0


@pytest.fixture(params=BOTH)
def namesrv(request: pytest.FixtureRequest, meeting: Meeting) -> str:
    make: Make = request.param
    return meeting.namesrvs[make].address


def fill(producer: StockProducer, topic: str, count: int) -> dict[Make, list[tuple[str, int]]]:
    """Bodies and queues, by the make of the broker that took them."""
    taken: dict[Make, list[tuple[str, int]]] = {make: [] for make in BOTH}
    for number in range(count):
        sent = producer.send(topic, f"{topic} {number}", tags="TagA", keys=f"k{number}")
        make = next(make for make in BOTH if NAMES[make] == sent.broker)
        taken[make].append((f"{topic} {number}", int(sent.queue_offset or 0)))
    return taken


def test_messages_of_a_queue_are_printed(
    admin: MqAdmin, meeting: Meeting, producers: dict[Make, StockProducer], topic: str, namesrv: str
) -> None:
    meeting.create_topic(topic, queues=1)
    taken = fill(producers["trioha"], topic, 6)
    for make in BOTH:
        queue = ("-t", topic, "-a", NAMES[make], "-i", "0")
        printed = admin.run(
            "printMsgByQueue", "-n", namesrv, *queue, "-p", "true", "-d", "true", "-f", "true"
        )
        assert re.findall(r"BODY: (.*)", printed) == [body for body, _ in taken[make]]
        assert re.search(
            rf"TagA +{len(taken[make])}\b|Tag: TagA +Count: {len(taken[make])}", printed
        ), printed


def test_queues_are_shared_out_and_sends_are_timed(
    admin: MqAdmin, meeting: Meeting, topic: str, namesrv: str
) -> None:
    meeting.create_topic(topic)
    hosts = ["10.0.0.1", "10.0.0.2"]
    printed = admin.run("allocateMQ", "-n", namesrv, "-t", topic, "-i", ",".join(hosts))
    shares = json.loads(printed)["result"]
    assert [len(shares[host]) for host in hosts] == [QUEUES, QUEUES]
    for make in BOTH:
        printed = admin.run("sendMsgStatus", "-n", namesrv, "-b", NAMES[make], "-c", "2")
        assert printed.count("sendStatus=SEND_OK") >= 2, printed


def test_topics_and_groups_are_exported(
    admin: MqAdmin, meeting: Meeting, topic: str, namesrv: str, tmp_path: Path
) -> None:
    meeting.create_topic(topic)
    for make in BOTH:
        address = meeting.masters[make].address
        group = f"{topic}-{make}"
        assert "success" in admin.run("updateSubGroup", "-n", namesrv, "-b", address, "-g", group)
        for kind in ("-t", "-g"):
            to = str(tmp_path / make)
            printed = admin.run("exportMetadata", "-n", namesrv, "-b", address, "-f", to, kind)
            assert "success" in printed
        topics = json.loads((tmp_path / make / "topic.json").read_text())["topicConfigTable"]
        assert topics[topic]["readQueueNums"] == topics[topic]["writeQueueNums"] == QUEUES
        groups = json.loads((tmp_path / make / "subscriptionGroup.json").read_text())
        assert group in groups["subscriptionGroupTable"]
    assert "success" in admin.run(
        "exportMetadata", "-n", namesrv, "-c", CLUSTER, "-f", str(tmp_path)
    )
    assert topic in json.loads((tmp_path / "metadata.json").read_text())["topicConfigTable"]


def test_metrics_are_exported(
    admin: MqAdmin, meeting: Meeting, namesrv: str, tmp_path: Path
) -> None:
    printed = admin.run("exportMetrics", "-n", namesrv, "-c", CLUSTER, "-f", str(tmp_path))
    assert "success" in printed, printed
    report = json.loads((tmp_path / "metrics.json").read_text())["evaluateReport"]
    ours, theirs = (report[NAMES[make]] for make in BOTH)
    assert set(ours) == set(theirs)
    for part, said in theirs.items():
        assert set(ours[part]) == set(said), part


def test_a_name_server_of_ours_takes_no_settings_over_the_wire(
    admin: MqAdmin, meeting: Meeting
) -> None:
    """RocketMQ's let any peer change what it writes where (CVE-2023-37582)."""
    change = ("-k", "orderMessageEnable", "-v", "false")
    ours, theirs = (
        admin.run("updateNamesrvConfig", "-n", meeting.namesrvs[make].address, *change)
        for make in BOTH
    )
    assert "success" in theirs
    assert "CODE: 16" in ours, ours


def test_what_piled_up_is_skipped(
    admin: MqAdmin, meeting: Meeting, producers: dict[Make, StockProducer], topic: str
) -> None:
    meeting.create_topic(topic, queues=1)
    namesrv = meeting.namesrvs["java"].address
    taken = fill(producers["trioha"], topic, 6)
    group = f"{topic}-g"
    progress: dict[str, ExtValue] = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": 0,
        "commitOffset": 1,
    }
    for make in BOTH:
        command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, progress)
        assert request(meeting.masters[make].address, command).code == ResponseCode.SUCCESS

    def skipped() -> dict[str, str]:
        rows = table(
            admin.run(
                "skipAccumulatedMessage", "-n", namesrv, "-g", group, "-t", topic, "-f", "true"
            )
        )
        return {row[0]: row[-1] for row in rows if row[0] in NAMES.values()}

    wanted = {NAMES[make]: str(len(taken[make])) for make in BOTH}
    eventually(skipped, wanted, TOLD_S)
