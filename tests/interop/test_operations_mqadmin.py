"""docs/operations.md, the column of mqadmin: every command of it runs against a master of ours."""

from __future__ import annotations

import re
from pathlib import Path

from support.clusters.meeting import NAMES, Meeting
from support.clusters.pair import Make
from support.peers.clients import Clients, StockProducer
from support.peers.java_tools import QUICK_CONSUMER, MqAdmin, eventually
from support.processes.admin import put_topic

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
MAKE: Make = "trioha"
CLUSTER = "DefaultCluster"
TOPIC, GROUP, OTHER = "page-orders", "page-billing", "page-billing-2"
DLQ = f"%DLQ%{GROUP}"
OF_5 = {*("listUser", "createUser", "updateUser", "getUser", "deleteUser"), "getAcl"} | {
    "updateAcl",
    "deleteAcl",
}
"""Commands of RocketMQ 5's mqadmin: test_users_and_policies.py runs them."""
ELSEWHERE = {"queryMsgTraceById", "cloneGroupOffset"}
"""The first needs a client that traces: test_examples.py has one. The second throws if the group's
retry topic is on a broker that lacks the topic: test_nouns.py runs it where both are."""
RUNS = {
    # A cell of the page: arguments, and words that mqadmin prints then.
    "topicList": ("", TOPIC),
    "updateTopic": (f"-b BROKER -t {TOPIC} -r 4 -w 4", "success"),
    "topicRoute": (f"-t {TOPIC} -l", NAMES[MAKE]),
    "topicStatus": (f"-t {TOPIC}", NAMES[MAKE]),
    "updateTopicPerm": (f"-b BROKER -t {TOPIC} -p 6", ""),
    "updateOrderConf": (f"-t {TOPIC} -m put -v {NAMES[MAKE]}:4", "success"),
    "statsAll": (f"-t {TOPIC}", TOPIC),
    "updateSubGroup": (f"-b BROKER -g {OTHER} -r 5", "success"),
    "consumerProgress": ("", GROUP),
    "consumerProgress -g": (f"-g {GROUP}", TOPIC),
    "consumerConnection": (f"-g {GROUP}", "JAVA"),
    "resetOffsetByTime": (f"-g {GROUP} -t {TOPIC} -s 0", NAMES[MAKE]),
    "resetOffsetByTime -s 0 or now": (f"-g {GROUP} -t {TOPIC} -s now", NAMES[MAKE]),
    "skipAccumulatedMessage": (f"-g {GROUP} -t {TOPIC}", NAMES[MAKE]),
    "deleteSubGroup": (f"-b BROKER -g {OTHER} -r true", "success"),
    "sendMessage": (f"-t {TOPIC} -p hello -c paid -k order-4712", "SEND_OK"),
    "queryMsgByKey": (f"-t {TOPIC} -k order-4711", "MSG_ID"),
    "queryMsgById": ("-i OFFSET_ID", "order-4711"),
    "queryMsgByUniqueKey": (f"-t {TOPIC} -i MSG_ID", "order-4711"),
    "queryMsgByOffset": (f"-t {TOPIC} -b {NAMES[MAKE]} -i QUEUE -o OFFSET", "order-4711"),
    "printMsg": (f"-t {TOPIC}", "BODY: body"),
    "queryMsgByUniqueKey -i": (f"-t {TOPIC} -i MSG_ID", "order-4711"),
    "printMsg -t %DLQ%billing": (f"-t {DLQ}", "BODY: dead"),
    "deleteTopic -t %DLQ%billing": (f"-c {CLUSTER} -t {DLQ}", "success"),
    "clusterList": ("", NAMES[MAKE]),
    "brokerStatus": ("-b BROKER", "putTps"),
    "clusterList -m": ("", NAMES[MAKE]),
    "getBrokerConfig": ("-b BROKER", "longPollingEnable"),
    "updateBrokerConfig": ("-b BROKER -k shortPollingTimeMills -v 1000", "success"),
    "wipeWritePerm": (f"-b {NAMES[MAKE]}", "OK"),
    "addWritePerm": (f"-b {NAMES[MAKE]}", "OK"),
    "cleanExpiredCQ": ("-b BROKER", "success"),
    "cleanUnusedTopic": ("-b BROKER", "success"),
    "deleteExpiredCommitLog": ("-b BROKER", "success"),
    "getNamesrvConfig": ("", "listenPort"),
    "updateKvConfig": ("-s page-shop -k region -v eu-1", "success"),
    "deleteKvConfig": ("-s page-shop -k region", "success"),
    "producerConnection": (f"-g producers -t {TOPIC}", "JAVA"),
    "consumerStatus -s": (f"-g {GROUP}", "Rebalance OK"),
    "queryMsgById -g -d": (f"-i OFFSET_ID -g {GROUP} -d CLIENT", "CR_SUCCESS"),
    "deleteTopic": (f"-c {CLUSTER} -t {TOPIC}", "success"),
}


def commands_of_the_page() -> list[str]:
    """The commands of the last column, each once, in the page's order."""
    rows = re.findall(r"^\| [^|]+ \| `?trioha [^|]+ \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    cells = [one.strip() for row in rows for one in row.split(",")]
    return list(dict.fromkeys(one for one in cells if re.match("[a-z]+[A-Z]", one)))


def test_every_command_of_the_column_runs(
    meeting: Meeting,
    admin: MqAdmin,
    producers: dict[Make, StockProducer],
    shared_clients: Clients,
) -> None:
    commands = [one for one in commands_of_the_page() if one not in OF_5 | ELSEWHERE]
    assert commands == [one for one in RUNS if one in commands]
    assert set(commands) == RUNS.keys()
    namesrv, broker = meeting.namesrvs[MAKE].address, meeting.masters[MAKE].address
    everywhere = ";".join(node.address for node in meeting.namesrvs.values())
    for topic in (TOPIC, DLQ):
        meeting.create_topic(topic, [MAKE], 4)
        put_topic(broker, topic, 4)
    consumer = shared_clients.consumer("java", namesrv, GROUP, TOPIC, **QUICK_CONSUMER)
    sent = producers[MAKE].send(TOPIC, "body", tags="paid", keys="order-4711")
    producers[MAKE].send(DLQ, "dead")
    consumer.wait_for_count(1)
    found = admin.run("queryMsgById", "-n", namesrv, "-i", str(sent.offset_msg_id))
    (queue,) = re.findall(r"Queue ID: +(\d+)", found)
    connected = admin.run("consumerConnection", "-n", namesrv, "-g", GROUP)
    (client,) = re.findall(r"\S+@\S+", connected)
    words = {
        "CLIENT": client,
        "MSG_ID": str(sent.msg_id),
        "OFFSET_ID": str(sent.offset_msg_id),
        "QUEUE": queue,
        "OFFSET": str(sent.queue_offset),
        "BROKER": broker,
    }

    for cell, (arguments, says) in RUNS.items():
        name, *flags = cell.split()
        given = [words.get(one, one) for one in arguments.split()]
        if flags in (["-m"], ["-s"]):
            given += flags
        at = everywhere if name.startswith("delete") else namesrv

        def told(name: str = name, given: list[str] = given, at: str = at) -> str:
            return admin.run(name, "-n", at, *given)

        if name in ("consumerProgress", "resetOffsetByTime", "statsAll", "consumerStatus"):
            # A group's first commit, of each queue, and the figures come after some seconds. A Java
            # consumer whose offsets were reset answers nothing for ten.
            eventually(lambda says=says, told=told: says in told(), True, 60.0)  # type: ignore[misc]
            continue
        printed = told()
        assert words.get(says, says) in printed, (cell, printed)
        assert "Exception" not in printed, (cell, printed)
        assert "usage: mqadmin" not in printed, (cell, printed)
