"""Brokers of both makes with the same accounts: the same answers to clients, tools and forgers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clusters.meeting import BOTH
from support.clusters.pair import Cluster, Make
from support.clusters.secured import (
    FOREIGN_GROUP,
    FOREIGN_TOPIC,
    OPERATOR,
    OWN,
    OWN_GROUP,
    OWN_TOPIC,
    WRONG,
    signed_request,
    start_secured,
)
from support.nodes.live_node import send_request
from support.peers.clients import Clients, SendFailed
from support.peers.java import mqadmin
from support.peers.mqadmin_5 import mqadmin_5
from support.processes.rig import running_processes

from trioha.security.signature import Credentials
from trioha.wire.codes import RequestCode as C
from trioha.wire.codes import ResponseCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from trioha.wire.remoting_command import ExtValue, RemotingCommand

STRANGER = Credentials("stranger-1", "client-secret")
_JAVA_LINE = re.compile(r", org\.apache\.rocketmq\.[\w.]+\(\w+\.java:\d+\)$")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Make, Cluster]]:
    with running_processes(tmp_path_factory.mktemp("secured")) as processes:
        yield {make: start_secured(processes, make) for make in BOTH}


def heartbeat(group: str, topic: str) -> bytes:
    consumer = ConsumerData(group, subscriptions=[SubscriptionData(topic)])
    return HeartbeatData("client@1", [], [consumer]).encode()


def pull(group: str, topic: str) -> dict[str, ExtValue]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }


def offset(group: str, topic: str) -> dict[str, ExtValue]:
    return {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "0"}


def retry(group: str) -> RemotingCommand:
    command = send_request(topic=f"%RETRY%{group}")
    command.ext_fields["a"] = group
    return command


REQUESTS: dict[str, RemotingCommand] = {
    "send to a foreign topic": send_request(topic=FOREIGN_TOPIC),
    "send to a foreign retry topic": retry(FOREIGN_GROUP),
    "pull from a foreign topic": RemotingCommand(C.PULL_MESSAGE, pull(OWN_GROUP, FOREIGN_TOPIC)),
    "pull as a foreign group": RemotingCommand(C.PULL_MESSAGE, pull(FOREIGN_GROUP, OWN_TOPIC)),
    "query a foreign topic": RemotingCommand(
        C.QUERY_MESSAGE,
        {
            "topic": FOREIGN_TOPIC,
            "key": "k",
            "maxNum": "1",
            "beginTimestamp": "0",
            "endTimestamp": "1",
        },
    ),
    "beat as a foreign group": RemotingCommand(
        C.HEART_BEAT, {}, heartbeat(FOREIGN_GROUP, OWN_TOPIC)
    ),
    "beat for a foreign topic": RemotingCommand(
        C.HEART_BEAT, {}, heartbeat(OWN_GROUP, FOREIGN_TOPIC)
    ),
    "leave a foreign group": RemotingCommand(
        C.UNREGISTER_CLIENT, {"clientID": "client@1", "consumerGroup": FOREIGN_GROUP}
    ),
    "list a foreign group": RemotingCommand(
        C.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": FOREIGN_GROUP}
    ),
    "commit for a foreign group": RemotingCommand(
        C.UPDATE_CONSUMER_OFFSET, offset(FOREIGN_GROUP, OWN_TOPIC)
    ),
    "commit for a foreign topic": RemotingCommand(
        C.UPDATE_CONSUMER_OFFSET, offset(OWN_GROUP, FOREIGN_TOPIC)
    ),
    "send back for a foreign group": RemotingCommand(
        C.CONSUMER_SEND_MSG_BACK,
        {"group": FOREIGN_GROUP, "offset": "0", "delayLevel": "3", "originTopic": OWN_TOPIC},
    ),
    "make a topic": RemotingCommand(C.UPDATE_AND_CREATE_TOPIC, {"topic": "T"}),
    "delete a topic": RemotingCommand(C.DELETE_TOPIC_IN_BROKER, {"topic": OWN_TOPIC}),
    "set a setting": RemotingCommand(C.UPDATE_BROKER_CONFIG, {}, b"longPollingEnable=false"),
    "make a group": RemotingCommand(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b"{}"),
    "delete a group": RemotingCommand(C.DELETE_SUBSCRIPTIONGROUP, {"groupName": OWN_GROUP}),
}
"""Each asks for one right that `OWN` does not have, so that both brokers name the same one."""


def answer_of(cluster: Cluster, request: RemotingCommand, by: Credentials | None) -> Any:
    again = RemotingCommand(request.code, dict(request.ext_fields), request.body)
    answer = signed_request(cluster.master.address, again, by)
    return answer.code, _JAVA_LINE.sub("", answer.remark or "")


@pytest.mark.parametrize("what", REQUESTS)
@pytest.mark.parametrize("by", [OWN, WRONG, STRANGER, None], ids=str)
def test_both_reject_with_the_same_code_and_words(
    secured: dict[Make, Cluster], what: str, by: Credentials | None
) -> None:
    java, ours = (answer_of(secured[make], REQUESTS[what], by) for make in ("java", "trioha"))
    assert ours == java
    assert ours[0] == ResponseCode.SYSTEM_ERROR
    assert ours[1].startswith("org.apache.rocketmq.acl.common.AclException: ")


@pytest.mark.parametrize("make", BOTH)
def test_the_java_client_uses_its_topic_and_is_told_of_others(
    secured: dict[Make, Cluster], clients: Clients, make: Make
) -> None:
    namesrv = secured[make].namesrv
    own = {"access_key": OWN.access_key, "secret_key": OWN.secret_key}
    producer = clients.producer("java", namesrv, **own)
    consumer = clients.consumer("java", namesrv, OWN_GROUP, OWN_TOPIC, **own)
    bodies = [f"java {number}" for number in range(10)]
    producer.send_all(OWN_TOPIC, bodies)
    consumer.wait_for_bodies(bodies)
    with pytest.raises(SendFailed) as failed:
        producer.send(FOREIGN_TOPIC, "never stored")
    assert f"AclException: No default permission for topic:{FOREIGN_TOPIC}" in str(failed.value)
    producer.stop()
    consumer.stop()
    wrong = {"access_key": WRONG.access_key, "secret_key": WRONG.secret_key}
    for keys, words in (
        ({}, "No accessKey is configured"),
        (wrong, f"Check signature failed for accessKey={WRONG.access_key}"),
    ):
        stranger = clients.producer("java", namesrv, group="others", **keys)
        with pytest.raises(SendFailed) as failed:
            stranger.send(OWN_TOPIC, "never stored")
        assert f"AclException: {words}" in str(failed.value)
        stranger.stop()


def tools_of(account: Credentials, home: Path) -> Path:
    """A home of mqadmin with the keys of an account."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    keys = f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n"
    (home / "conf" / "tools.yml").write_text(keys)
    return home


def test_mqadmin_changes_accounts(secured: dict[Make, Cluster], tmp_path: Path) -> None:
    cluster = secured["trioha"]
    operator, client = tools_of(OPERATOR, tmp_path / "o"), tools_of(OWN, tmp_path / "c")
    where = ["-n", cluster.namesrv, "-b", cluster.master.address]
    account = ["-a", "second-1", "-s", "second-secret", "-t", f"{OWN_TOPIC}=PUB", "-i", "DENY"]
    second = Credentials("second-1", "second-secret")
    code, words = answer_of(cluster, send_request(topic=OWN_TOPIC), second)
    assert "No acl config for second-1" in words

    done = mqadmin(client, "updateAclConfig", *where, *account)
    assert "Need admin permission for request code=50" in done.stdout + done.stderr
    done = mqadmin(operator, "updateAclConfig", *where, *account)
    assert (
        f"create or update plain access config to {cluster.master.address} success" in done.stdout
    )
    code, words = answer_of(cluster, send_request(topic=OWN_TOPIC), second)
    assert code == ResponseCode.SUCCESS, words

    done = mqadmin(operator, "clusterAclConfigVersion", *where)
    assert "get broker's plain access config version success" in done.stdout
    assert re.search(r"broker-a +127\.0\.0\.1:\d+ +\S+plain_acl\.yml +1 +20\d\d", done.stdout)

    done = mqadmin(operator, "updateGlobalWhiteAddr", *where, "-g", "10.99.0.*")
    assert "update global white remote addresses" in done.stdout, done.stdout + done.stderr
    done = mqadmin(operator, "deleteAclConfig", *where, "-a", "second-1")
    assert "success" in done.stdout, done.stdout + done.stderr
    code, words = answer_of(cluster, send_request(topic=OWN_TOPIC), second)
    assert "No acl config for second-1" in words


def keys_of(account: Credentials) -> dict[str, str]:
    return {"access_key": account.access_key, "secret_key": account.secret_key}


@pytest.mark.parametrize("make", BOTH)
def test_the_go_client_uses_its_topic_and_is_told_of_others(
    secured: dict[Make, Cluster], clients: Clients, make: Make
) -> None:
    namesrv = secured[make].namesrv
    producer = clients.producer("go", namesrv, **keys_of(OWN))
    consumer = clients.consumer("go", namesrv, OWN_GROUP, OWN_TOPIC, **keys_of(OWN))
    bodies = [f"go {number}" for number in range(10)]
    producer.send_all(OWN_TOPIC, bodies)
    consumer.wait_for_bodies(bodies)
    with pytest.raises(SendFailed) as failed:
        producer.send(FOREIGN_TOPIC, "never stored")
    assert f"AclException: No default permission for topic:{FOREIGN_TOPIC}" in str(failed.value)
    producer.stop()
    consumer.stop()


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(
    ("by", "words"),
    [
        (WRONG, f"Check signature failed for accessKey={WRONG.access_key}"),
        (STRANGER, f"No acl config for {STRANGER.access_key}"),
        (None, "No accessKey is configured"),
    ],
    ids=str,
)
def test_the_go_client_without_the_right_keys_is_told_why(
    secured: dict[Make, Cluster], clients: Clients, make: Make, by: Credentials | None, words: str
) -> None:
    keys = {} if by is None else keys_of(by)
    producer = clients.producer("go", secured[make].namesrv, group="strangers", **keys)
    for topic in (OWN_TOPIC, FOREIGN_TOPIC):
        with pytest.raises(SendFailed) as failed:
            producer.send(topic, "never stored")
        assert f"AclException: {words}" in str(failed.value)
    producer.stop()


def test_the_go_client_consumes_nothing_of_a_foreign_topic(
    secured: dict[Make, Cluster], clients: Clients
) -> None:
    operator = clients.producer("go", secured["trioha"].namesrv, **keys_of(OPERATOR))
    operator.send(FOREIGN_TOPIC, "not for the client")
    spy = clients.consumer(
        "go", secured["trioha"].namesrv, OWN_GROUP, FOREIGN_TOPIC, **keys_of(OWN)
    )
    reader = clients.consumer(
        "go", secured["trioha"].namesrv, "operators", FOREIGN_TOPIC, **keys_of(OPERATOR)
    )
    reader.wait_for_bodies(["not for the client"])
    assert not spy.messages


def test_mqadmin_of_rocketmq_5_signs_for_the_same_accounts(
    secured: dict[Make, Cluster], tmp_path: Path
) -> None:
    cluster = secured["trioha"]
    told: dict[str, str] = {}
    for account in (OPERATOR, WRONG):
        where = ["-n", cluster.namesrv, "-b", cluster.master.address]
        with mqadmin_5(tmp_path / account.secret_key, account) as run:
            told[account.secret_key] = run("updateTopic", *where, "-t", "made-by-5")
    assert "success" in told[OPERATOR.secret_key]
    assert "Check signature failed for accessKey=client-1" in told[WRONG.secret_key]
