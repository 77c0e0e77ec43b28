"""mqadmin 5.3.3: every command, at a master of ours and at one of Java's 4.9.7, each with its own.

docs/compatibility.md lists each command with what came of it; this test reads that list.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.clusters.meeting import BOTH, NAMES, Meeting, start_meeting
from support.clusters.pair import Make
from support.peers.java import require_java
from support.peers.mqadmin_5 import mqadmin_5
from support.processes.admin import put_topic, request
from support.processes.rig import REPO, Processes

from trioha.security.signature import Credentials
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

PAGE = (REPO / "docs" / "compatibility.md").read_text()
NOBODY = Credentials("nobody", "secret-7")
QUEUES = 2
LINES = """
updateTopic -b {address} -t {topic} -r 2 -w 2
updateTopicList -b {address} -f {home}/topics.json
updateTopicPerm -b {address} -t {topic} -p 6
updateSubGroup -b {address} -g {group}
updateSubGroupList -b {address} -f {home}/groups.json
topicList
topicRoute -t {topic}
topicStatus -t {topic}
topicClusterList -t {topic}
allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2
sendMessage -t {topic} -p hello -k k1 -c A -b {name} -i 0
consumeMessage -t {topic} -b {name} -i 0 -o 0 -c 1
queryMsgById -i {id} -t {topic}
queryMsgByUniqueKey -i {id} -t {topic}
queryMsgByKey -t {topic} -k k1
queryMsgByOffset -t {topic} -b {name} -i 0 -o 0
queryMsgTraceById -i {id}
queryCq -t {topic} -q 0 -i 0 -c 1 -b {address}
printMsg -t {topic}
printMsgByQueue -t {topic} -a {name} -i 0 -p true -d true -f true
clusterList
brokerStatus -b {address}
haStatus -b {address}
getBrokerEpoch -b {name}
getBrokerConfig -b {address}
updateBrokerConfig -b {address} -k brokerFastFailureEnable -v true
getConsumerConfig -g {group}
consumerProgress -g {group}
brokerConsumeStats -b {address}
consumerConnection -g {group} -b {address}
consumerStatus -g {group} -b {address}
producer -b {address}
producerConnection -g nobody -t {topic}
cloneGroupOffset -s {group} -d {group}-2 -t {topic}
resetOffsetByTime -g {group} -t {topic} -s now
skipAccumulatedMessage -g {group} -t {topic}
setConsumeMode -b {address} -t {topic} -g {group} -m POP -q 8
checkMsgSendRT -t {topic} -a 2 -s 16
sendMsgStatus -b {name} -s 16 -c 2
statsAll -t {topic}
cleanExpiredCQ -b {address}
cleanUnusedTopic -b {address}
deleteExpiredCommitLog -b {address}
resetMasterFlushOffset -b {address} -o 0
getColdDataFlowCtrInfo -b {address}
updateColdDataFlowCtrGroupConfig -b {address} -g {group} -v 1000000
removeColdDataFlowCtrGroupConfig -b {address} -g {group}
setCommitLogReadAheadMode -b {address} -m 0
exportPopRecord -b {address}
exportMetadata -b {address} -f {home} -t
exportConfigs -c DefaultCluster -f {home}
exportMetrics -c DefaultCluster -f {home}
updateStaticTopic -t static-{topic} -qn 2 -b {name}
getNamesrvConfig
updateNamesrvConfig -k orderMessageEnable -v false
updateKvConfig -s mqadmin-5 -k k -v v
deleteKvConfig -s mqadmin-5 -k k
updateOrderConf -t {topic} -v {name}:2 -m put
wipeWritePerm -b {name}
addWritePerm -b {name}
listUser -b {address}
listAcl -b {address}
deleteSubGroup -b {address} -g {group}
deleteTopic -c DefaultCluster -t {topic}
""".strip().splitlines()


def outcome(printed: str) -> str:
    """`done`, the code that a node answered with, or the exception that ended the command."""
    printed = "\n".join(line for line in printed.splitlines() if "|-" not in line)
    assert "usage: mqadmin" not in printed, printed
    if code := re.search(r"CODE: (\d+)", printed):
        return code[1]
    causes = re.findall(r"(\w+(?:Exception|Error))\b", printed)
    return causes[-1] if causes else "done"


def prepare(meeting: Meeting, make: Make, topic: str, group: str, home: Path) -> None:
    """The group has progress and a retry topic at its master, as after a consumer's stop."""
    address = meeting.masters[make].address
    for name in (topic, f"%RETRY%{group}"):
        put_topic(address, name, QUEUES)
        for queue_id in range(QUEUES):
            commit = RemotingCommand(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {"topic": name, "consumerGroup": group, "queueId": queue_id, "commitOffset": 0},
            )
            assert request(address, commit).code == ResponseCode.SUCCESS
    home.mkdir(parents=True)
    queues = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    (home / "topics.json").write_text(json.dumps([{"topicName": "listed", **queues}]))
    (home / "groups.json").write_text(json.dumps([{"groupName": "listed"}]))


def run_all(meeting: Meeting, make: Make, home: Path) -> tuple[set[str], dict[str, str]]:
    """Names of all commands, and what came of each one of `LINES` at this make."""
    topic, group = f"mqadmin-5-{make}", f"mqadmin-5-group-{make}"
    prepare(meeting, make, topic, group, home / "files")
    words = {"topic": topic, "group": group, "home": home / "files", "name": NAMES[make]}
    words |= {"address": meeting.masters[make].address, "id": ""}
    namesrv = meeting.namesrvs[make].address
    found: dict[str, str] = {}
    with mqadmin_5(home / "mqadmin", NOBODY) as run:
        for line in LINES:
            command, *arguments = (word.format(**words) for word in line.split())
            printed = run(command, "-n", namesrv, *arguments)
            found[command] = outcome(printed)
            if command == "sendMessage":
                words["id"] = printed.split()[-1]
        return set(run("commands").split()), found


def listed() -> dict[str, set[str]]:
    """The table of the page: what came of commands, and their names."""
    section = PAGE.split("## mqadmin 5.3.3\n")[1].split("\n## ")[0]
    return {
        row[1].strip(): set(re.findall(r"`(\w+)`", row[2]))
        for row in re.finditer(r"^\| ([^|`]+) \| (`[^|]+) \|", section, re.MULTILINE)
    }


def test_every_command_does_what_the_page_says(processes: Processes, tmp_path: Path) -> None:
    require_java("5.3")
    meeting = start_meeting(processes)
    with ThreadPoolExecutor(len(BOTH)) as pool:
        (names, ours), (_, theirs) = pool.map(
            lambda make: run_all(meeting, make, tmp_path / make), BOTH
        )
    found: defaultdict[str, set[str]] = defaultdict(set)
    for command, said in ours.items():
        same = said == theirs[command]
        found[said if same else f"{said}; at RocketMQ 4.9.7 {theirs[command]}"].add(command)
    found["not run"] = names - ours.keys()
    assert dict(found) == listed()
