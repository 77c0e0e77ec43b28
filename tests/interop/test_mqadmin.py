"""mqadmin 4.9.8 at a cluster of both makes, under either name server: each command makes sense.

What a command says of one master it also says of the other: where both were told the same, their
lines differ in the name only.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import attrs
import pytest
from support.clusters.meeting import BOTH, NAMES, Meeting
from support.clusters.pair import Make
from support.peers.clients import Clients, Sent, StockConsumer, StockProducer
from support.peers.java_tools import (
    QUICK_CONSUMER,
    RESETTABLE_CONSUMER,
    MqAdmin,
    eventually,
    fields,
    table,
)
from support.processes.admin import wait_for_progress

TOPIC = "mqadmin"
QUEUES = 4
CLUSTER = "DefaultCluster"
# Two per queue of both masters; then one more, which the group "late" has not seen.
SEEN, UNSEEN = 2, 1
COUNT = SEEN * 2 * QUEUES
# Progress goes to the brokers every five seconds, or with the next pull.
PROGRESS_S = 30.0


@attrs.frozen
class Scene:
    """A topic on both masters, read by the group "live" and half read by the group "late"."""

    sent: list[Sent]
    live: StockConsumer


@pytest.fixture(scope="module")
def scene(meeting: Meeting, producers: dict[Make, StockProducer], shared_clients: Clients) -> Scene:
    meeting.create_topic(TOPIC)
    live, late = (
        shared_clients.consumer("java", node.address, group, TOPIC, wait=False, **options)
        for node, group, options in zip(
            meeting.namesrvs.values(),
            ("live", "late"),
            (RESETTABLE_CONSUMER, QUICK_CONSUMER),
            strict=True,
        )
    )
    for consumer in (live, late):
        consumer.wait_until_ready()
    producer = producers["trioha"]
    sent = [
        producer.send(TOPIC, f"body {number}", tags="TagA", keys=f"key-{number}")
        for number in range(COUNT)
    ]
    late.wait_for_count(COUNT)
    # A consumer that is stopped tells of what its listener had returned from, not of the rest.
    for make in BOTH:
        wait_for_progress(address(meeting, make), "late", TOPIC, QUEUES, PROGRESS_S)
    late.stop()
    producer.send_all(TOPIC, [f"unseen {number}" for number in range(UNSEEN * 2 * QUEUES)])
    live.wait_for_count(COUNT + UNSEEN * 2 * QUEUES)
    return Scene(sent, live)


@pytest.fixture(params=BOTH)
def namesrv(request: pytest.FixtureRequest, meeting: Meeting) -> str:
    make: Make = request.param
    return meeting.namesrvs[make].address


def address(meeting: Meeting, make: Make) -> str:
    return meeting.masters[make].address


def test_cluster_list(admin: MqAdmin, meeting: Meeting, scene: Scene, namesrv: str) -> None:
    rows = table(admin.run("clusterList", "-n", namesrv))
    assert [row[:5] for row in rows] == [
        [CLUSTER, NAMES[make], "0", address(meeting, make), "V4_9_8"] for make in ("java", "trioha")
    ]
    # Load, waiting, age of the oldest message in hours, disk use.
    *_, hours, space = rows[1]
    assert 0 <= float(hours) < 1
    assert 0 < float(space) < 1
    totals = {row[1]: row for row in table(admin.run("clusterList", "-m", "-n", namesrv))}
    assert int(totals[NAMES["trioha"]][4]) >= COUNT / 2


def test_topic_route(admin: MqAdmin, meeting: Meeting, scene: Scene, namesrv: str) -> None:
    rows = table(admin.run("topicRoute", "-n", namesrv, "-t", TOPIC, "-l"))
    assert rows == [
        *(
            [CLUSTER, NAMES[make], f"{{0={address(meeting, make)}}}", "4", "4", "6"]
            for make in ("java", "trioha")
        ),
        ["Total:", "2", "8", "8"],
    ]
    printed = admin.run("topicRoute", "-n", namesrv, "-t", "nosuchtopic")
    assert "No topic route info in name server for the topic: nosuchtopic" in printed
    assert admin.run("topicClusterList", "-n", namesrv, "-t", TOPIC).split() == [CLUSTER]


def test_topic_list(admin: MqAdmin, scene: Scene, namesrv: str) -> None:
    topics = set(admin.run("topicList", "-n", namesrv).split())
    system = {"TBW102", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", CLUSTER, *NAMES.values()}
    assert {TOPIC, "%RETRY%live", "%RETRY%late", *system} <= topics
    groups = {
        row[2]
        for row in table(admin.run("topicList", "-n", namesrv, "-c"))
        if row[1] == TOPIC and len(row) > 2
    }
    assert {"live", "late"} <= groups


def test_topic_status(admin: MqAdmin, scene: Scene, namesrv: str) -> None:
    rows = table(admin.run("topicStatus", "-n", namesrv, "-t", TOPIC))
    assert [row[:4] for row in rows] == [
        [NAMES[make], str(queue_id), "0", str(SEEN + UNSEEN)]
        for make in ("java", "trioha")
        for queue_id in range(QUEUES)
    ]
    today = time.strftime("%Y-%m-%d")
    yesterday = time.strftime("%Y-%m-%d", time.localtime(time.time() - 86_400))
    assert {row[4] for row in rows} <= {today, yesterday}


def test_consumer_progress(admin: MqAdmin, scene: Scene, namesrv: str) -> None:
    printed = admin.run("consumerProgress", "-n", namesrv, "-g", "late")
    rows = [row[:6] for row in table(printed) if row[0] == TOPIC]
    assert rows == [
        [TOPIC, NAMES[make], str(queue_id), str(SEEN + UNSEEN), str(SEEN), str(UNSEEN)]
        for make in ("java", "trioha")
        for queue_id in range(QUEUES)
    ]
    assert fields(printed)["Diff Total"] == str(UNSEEN * 2 * QUEUES)

    def live() -> str | None:
        return fields(admin.consumer_progress(namesrv, "live")).get("Diff Total")

    eventually(live, "0", PROGRESS_S)
    groups = {row[0]: row for row in table(admin.run("consumerProgress", "-n", namesrv))}
    assert groups["late"][1:3] == ["0", "OFFLINE"]
    assert groups["live"][1:5] == ["1", "V4_9_8", "PUSH", "CLUSTERING"]


@pytest.mark.parametrize("make", BOTH)
def test_broker_consume_stats(
    admin: MqAdmin, meeting: Meeting, scene: Scene, namesrv: str, make: Make
) -> None:
    printed = admin.run("brokerConsumeStats", "-n", namesrv, "-b", address(meeting, make))
    rows = [row[:7] for row in table(printed) if row[:2] == [TOPIC, "late"]]
    assert rows == [
        [TOPIC, "late", NAMES[make], str(queue_id), str(SEEN + UNSEEN), str(SEEN), str(UNSEEN)]
        for queue_id in range(QUEUES)
    ]
    assert int(fields(printed)["Diff Total"]) >= UNSEEN * QUEUES


def test_broker_status(admin: MqAdmin, meeting: Meeting, scene: Scene, namesrv: str) -> None:
    ours, theirs = (
        fields(admin.run("brokerStatus", "-n", namesrv, "-b", address(meeting, make)))
        for make in BOTH
    )
    assert ours["brokerVersionDesc"] == theirs["brokerVersionDesc"] == "V4_9_8"
    assert int(ours["msgPutTotalTodayNow"]) >= COUNT / 2
    assert int(ours["commitLogMaxOffset"]) >= COUNT / 2 * 150
    assert ours["dispatchBehindBytes"] == "0"
    assert abs(int(ours["earliestMessageTimeStamp"]) / 1000 - time.time()) < 3600
    assert len(ours["putTps"].split()) == len(ours["getTransferedTps"].split()) == 3
    # The exporter makes a metric of each range.
    our_ranges, java_ranges = (
        re.sub(r":\d+", "", told["putMessageDistributeTime"]) for told in (ours, theirs)
    )
    assert java_ranges in (our_ranges, "null")  # Java's has none in its first minute
    assert our_ranges.count("[") == 13
    # Ours has every key that tools and exporters look for.
    log = "commitLogDiskRatio_"  # and a path
    assert {name for name in theirs if not name.startswith(log)} <= set(ours)
    assert sum(name.startswith(log) for name in ours) == 1


def test_configurations_are_exported(
    admin: MqAdmin, namesrv: str, meeting: Meeting, tmp_path: Path
) -> None:
    """`exportConfigs` dies of a NullPointerException where a broker lacks one of its settings."""
    admin.run("exportConfigs", "-n", namesrv, "-c", CLUSTER, "-f", str(tmp_path))
    exported = json.loads((tmp_path / "configs.json").read_text())
    ours, theirs = (exported["brokerConfigs"][NAMES[make]] for make in BOTH)
    assert set(ours) == set(theirs)


def test_traffic_of_topics_and_groups(
    admin: MqAdmin, scene: Scene, namesrv: str, meeting: Meeting
) -> None:
    """`statsAll` showed nothing of ours: request 315 had no answer."""

    def are_counted() -> bool:
        printed = table(admin.run("statsAll", "-n", namesrv, "-t", TOPIC))
        (late,) = [row for row in printed if row[:2] == [TOPIC, "late"]]
        put, consumed = int(late[-2]), int(late[-1])
        # Ours had half of them; Java counts from its second sample of a topic on.
        return put >= COUNT / 2 and consumed > 0

    eventually(are_counted, True, PROGRESS_S)


def test_connections(admin: MqAdmin, scene: Scene, namesrv: str) -> None:
    printed = admin.run("consumerConnection", "-n", namesrv, "-g", "live")
    rows = table(printed)
    assert rows[0][0].startswith("127.0.0.1@")
    assert rows[0][2:] == ["JAVA", "V4_9_8"]
    assert [TOPIC, "*"] in rows
    assert ["%RETRY%live", "*"] in rows
    said = fields(printed)
    assert said["ConsumeType"] == "CONSUME_PASSIVELY"
    assert said["MessageModel"] == "CLUSTERING"
    assert said["ConsumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
    (producer, *_) = table(
        admin.run("producerConnection", "-n", namesrv, "-g", "producers", "-t", TOPIC)
    )
    assert producer[3:] == ["JAVA", "V4_9_8"]
    offline = admin.run("consumerConnection", "-n", namesrv, "-g", "late")
    assert "CODE: 206" in offline


@pytest.mark.parametrize("make", BOTH)
def test_producers_of_a_broker(
    admin: MqAdmin, meeting: Meeting, scene: Scene, namesrv: str, make: Make
) -> None:
    printed = admin.run("producer", "-n", namesrv, "-b", address(meeting, make))
    (line, *_) = [line for line in printed.splitlines() if "(producers)" in line]
    assert "clientId=127.0.0.1@" in line
    assert "language=JAVA, version=409" in line
    (told,) = re.findall(r"lastUpdateTimestamp=(\d+)", line)
    assert abs(int(told) / 1000 - time.time()) < 120


def test_consumer_status(admin: MqAdmin, scene: Scene, namesrv: str) -> None:
    """The broker hands the question on to the client (307)."""
    printed = admin.run("consumerStatus", "-n", namesrv, "-g", "live")
    assert "Same subscription in the same group of consumer" in printed
    assert "Rebalance OK" in printed
    ((*_, version, path),) = [row for row in table(printed) if row[0] == "1"]
    assert version == "V4_9_8"
    status = (Path(str(admin.process.cwd)) / path).read_text()
    assert len(re.findall(rf"^{TOPIC} +broker-", status, re.MULTILINE)) >= 2 * QUEUES


@pytest.mark.parametrize("make", BOTH)
def test_messages_are_found(admin: MqAdmin, scene: Scene, namesrv: str, make: Make) -> None:
    number = next(n for n, sent in enumerate(scene.sent) if sent.broker == NAMES[make])
    sent = scene.sent[number]
    assert sent.offset_msg_id is not None
    assert sent.msg_id is not None

    by_id = admin.run("queryMsgById", "-n", namesrv, "-i", sent.offset_msg_id)
    check_message(by_id, number)
    assert fields(by_id)["OffsetID"] == sent.offset_msg_id
    assert "consumerGroup=live, trackType=CONSUMED" in by_id
    assert "consumerGroup=late, trackType=NOT_ONLINE" in by_id

    # Both ids look alike here, so this one is looked for as a unique key.
    check_message(
        admin.run("queryMsgByUniqueKey", "-n", namesrv, "-t", TOPIC, "-i", sent.msg_id), number
    )
    by_key = table(admin.run("queryMsgByKey", "-n", namesrv, "-t", TOPIC, "-k", f"key-{number}"))
    queue_id = fields(by_id)["Queue ID"]
    assert by_key == [[sent.msg_id, queue_id, str(sent.queue_offset)]]
    by_offset = admin.run(
        *("queryMsgByOffset", "-n", namesrv, "-t", TOPIC, "-b", NAMES[make]),
        *("-i", queue_id, "-o", str(sent.queue_offset)),
    )
    check_message(by_offset, number)
    assert fields(by_offset)["OffsetID"] == sent.offset_msg_id


def check_message(printed: str, number: int) -> None:
    said = fields(printed)
    assert (said["Topic"], said["Tags"], said["Keys"]) == (TOPIC, "[TagA]", f"[key-{number}]")
    body = Path(said["Message Body Path"])
    assert body.read_text() == f"body {number}"
    body.unlink()


@pytest.mark.parametrize("make", BOTH)
def test_consume_queue_is_shown(
    admin: MqAdmin, meeting: Meeting, scene: Scene, namesrv: str, make: Make
) -> None:
    printed = admin.run(
        *("queryCq", "-n", namesrv, "-t", TOPIC, "-q", "1", "-i", "0", "-c", "2"),
        *("-b", address(meeting, make)),
    )
    assert f"max: {SEEN + UNSEEN}, min: 0" in printed
    # Java's hash of "TagA".
    assert printed.count("tagsCode=2598919") == 2


@pytest.mark.parametrize("make", BOTH)
def test_topics_are_made_changed_and_deleted(
    admin: MqAdmin, meeting: Meeting, namesrv: str, make: Make, topic: str
) -> None:
    broker = address(meeting, make)
    everywhere = ";".join(node.address for node in meeting.namesrvs.values())

    def perm() -> list[str]:
        return table(admin.run("topicRoute", "-n", namesrv, "-t", topic, "-l"))[0][1:]

    printed = admin.run(
        "updateTopic", "-n", namesrv, "-b", broker, "-t", topic, "-r", "3", "-w", "2"
    )
    assert f"create topic to {broker} success." in printed
    eventually(perm, [NAMES[make], f"{{0={broker}}}", "3", "2", "6"], PROGRESS_S)
    printed = admin.run("updateTopicPerm", "-n", namesrv, "-b", broker, "-t", topic, "-p", "4")
    assert "from 6 to 4" in printed
    eventually(perm, [NAMES[make], f"{{0={broker}}}", "3", "2", "4"], PROGRESS_S)

    printed = admin.run(
        "updateTopic", "-n", namesrv, "-c", CLUSTER, "-t", topic, "-r", "5", "-w", "5"
    )
    assert printed.count("success") == 2

    def total() -> list[str]:
        return table(admin.run("topicRoute", "-n", namesrv, "-t", topic, "-l"))[-1]

    eventually(total, ["Total:", "2", "10", "10"], PROGRESS_S)
    assert "success" in admin.run("deleteTopic", "-n", everywhere, "-c", CLUSTER, "-t", topic)
    assert "No topic route info" in admin.run("topicRoute", "-n", namesrv, "-t", topic)


@pytest.mark.parametrize("make", BOTH)
def test_groups_are_made_cloned_and_deleted(
    admin: MqAdmin, meeting: Meeting, scene: Scene, make: Make
) -> None:
    namesrv, broker, group = meeting.namesrvs["trioha"].address, address(meeting, make), f"g-{make}"
    printed = admin.run("updateSubGroup", "-n", namesrv, "-b", broker, "-g", group, "-r", "7")
    assert f"create subscription group to {broker} success." in printed
    config = fields(admin.run("getConsumerConfig", "-n", namesrv, "-g", group), "=")
    assert config["groupName"] == group
    assert config["retryMaxTimes"] == "7"
    assert "success" in admin.run("deleteSubGroup", "-n", namesrv, "-b", broker, "-g", group)
    assert "retryMaxTimes" not in admin.run("getConsumerConfig", "-n", namesrv, "-g", group)


@pytest.mark.parametrize("make", BOTH)
def test_a_name_server_wipes_and_adds_write_permission(
    admin: MqAdmin, namesrv: str, meeting: Meeting, make: Make, topic: str
) -> None:
    meeting.create_topic(topic, [make])

    def perm() -> str:
        return table(admin.run("topicRoute", "-n", namesrv, "-t", topic, "-l"))[0][-1]

    assert "OK" in admin.run("wipeWritePerm", "-n", namesrv, "-b", NAMES[make])
    assert perm() == "4"
    assert "OK" in admin.run("addWritePerm", "-n", namesrv, "-b", NAMES[make])
    assert perm() == "6"


def test_a_name_server_keeps_keys_and_values(admin: MqAdmin, namesrv: str) -> None:
    put = ("updateOrderConf", "-n", namesrv, "-t", "ordered", "-m", "put", "-v", "broker-x:2")
    assert "success" in admin.run(*put)
    printed = admin.run("updateOrderConf", "-n", namesrv, "-t", "ordered", "-m", "get")
    assert "orderConf=[broker-x:2]" in printed
    assert "success" in admin.run("updateOrderConf", "-n", namesrv, "-t", "ordered", "-m", "delete")
    assert "success" in admin.run("updateKvConfig", "-n", namesrv, "-s", "NS", "-k", "k", "-v", "v")
    assert "success" in admin.run("deleteKvConfig", "-n", namesrv, "-s", "NS", "-k", "k")
    port = namesrv.rsplit(":", 1)[1]
    assert fields(admin.run("getNamesrvConfig", "-n", namesrv), "=")["listenPort"] == port


@pytest.mark.parametrize("make", BOTH)
def test_configuration_of_a_broker(
    admin: MqAdmin, meeting: Meeting, namesrv: str, make: Make
) -> None:
    broker = address(meeting, make)
    config = fields(admin.run("getBrokerConfig", "-n", namesrv, "-b", broker), "=")
    assert config["brokerName"] == NAMES[make]
    assert config["listenPort"] == broker.rsplit(":", 1)[1]
    for period_ms in ("1001", "1000"):
        change = ("-k", "shortPollingTimeMills", "-v", period_ms)
        assert "success" in admin.run("updateBrokerConfig", "-n", namesrv, "-b", broker, *change)
        config = fields(admin.run("getBrokerConfig", "-n", namesrv, "-b", broker), "=")
        assert config["shortPollingTimeMills"] == period_ms


def test_messages_sent_and_read_by_hand(
    admin: MqAdmin, meeting: Meeting, namesrv: str, topic: str
) -> None:
    meeting.create_topic(topic)
    for make in BOTH:
        send = (
            "sendMessage",
            "-n",
            namesrv,
            "-t",
            topic,
            "-p",
            f"from {make}",
            "-k",
            "k",
            "-c",
            "T",
        )
        rows = table(admin.run(*send, "-b", NAMES[make], "-i", "2"))
        assert [row[:3] for row in rows] == [[NAMES[make], "2", "SEND_OK"]]
    for command in ("printMsg", "consumeMessage"):
        printed = admin.run(command, "-n", namesrv, "-t", topic)
        assert set(re.findall(r"BODY: (.*)", printed)) == {f"from {make}" for make in BOTH}
    rows = table(admin.run("checkMsgSendRT", "-n", namesrv, "-t", topic, "-a", "8", "-s", "100"))
    assert [row[2] for row in rows[:-1]] == ["true"] * 8


@pytest.mark.parametrize("make", BOTH)
def test_cleaning(admin: MqAdmin, meeting: Meeting, namesrv: str, make: Make) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        printed = admin.run(command, "-n", namesrv, "-b", address(meeting, make))
        assert printed.strip() == "success", f"{command}: {printed}"


# Last: it moves the groups of the scene.
def test_offsets_are_reset(admin: MqAdmin, meeting: Meeting, scene: Scene) -> None:
    """An absent group through the tables, a present one through its client (222, 220)."""
    namesrv = meeting.namesrvs["java"].address
    reset = ("resetOffsetByTime", "-n", namesrv, "-t", TOPIC)
    clone = (
        "cloneGroupOffset",
        "-n",
        namesrv,
        "-s",
        "late",
        "-d",
        "twin",
        "-t",
        TOPIC,
        "-o",
        "true",
    )
    assert "success" in admin.run(*clone)
    rows = table(admin.run(*reset, "-g", "late", "-s", "now"))
    moved = {(row[0], row[5]) for row in rows if row[0] in NAMES.values()}
    assert moved == {(name, str(SEEN + UNSEEN)) for name in NAMES.values()}
    assert len([row for row in rows if row[0] in NAMES.values()]) == 2 * QUEUES

    before = len(scene.live.messages)
    rows = table(admin.run(*reset, "-g", "live", "-s", "0"))
    assert {(row[0], row[2]) for row in rows if row[0] in NAMES.values()} == {
        (name, "0") for name in NAMES.values()
    }
    scene.live.wait_for_count(before + COUNT + UNSEEN * 2 * QUEUES, 60.0)
