"""RocketMQ 5.3's broker and ours with the same users and policies; its mqadmin against ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clusters.meeting import BOTH
from support.clusters.pair import Make
from support.clusters.secured import signed_request
from support.clusters.with_users import NORMAL, SUPER, start_with_users
from support.nodes.live_node import send_request
from support.peers.mqadmin_5 import mqadmin_5
from support.processes.admin import topic_command
from support.processes.rig import Node, running_processes, trioha_namesrv

from trioha.security.signature import Credentials
from trioha.wire.codes import RequestCode as C
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

STRANGER, WRONG = Credentials("nobody", "x"), Credentials("shop", "wrong")
OPERATOR = Credentials("ops", "ops-secret")
"""May look at the cluster and change it, but is no super user."""
SHOP: dict[str, ExtValue] = {"subject": "User:shop"}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    with running_processes(tmp_path_factory.mktemp("users")) as processes:
        namesrv = trioha_namesrv(processes).start()
        started = {
            make: start_with_users(processes, make, namesrv.address, f"broker-{make}")
            for make in BOTH
        }
        yield {"namesrv": namesrv, "java": started["java"], "trioha": started["trioha"]}


def request(
    code: int, fields: dict[str, ExtValue] | None = None, body: object = None
) -> RemotingCommand:
    return RemotingCommand(code, fields or {}, b"" if body is None else json.dumps(body).encode())


def user(code: int, name: str, **info: str) -> RemotingCommand:
    return request(code, {"username": name}, {"username": name, **info})


def policy(
    resource: str,
    actions: list[str],
    decision: str = "Allow",
    *,
    code: int = C.AUTH_CREATE_ACL,
    of: str = "shop",
    **more: object,
) -> RemotingCommand:
    policy_type = more.pop("policyType", "Custom")
    entry = {"resource": resource, "actions": actions, "decision": decision, **more}
    policies = [{"policyType": policy_type, "entries": [entry]}]
    subject = f"User:{of}"
    return request(code, {"subject": subject}, {"subject": subject, "policies": policies})


def send(topic: str) -> RemotingCommand:
    return send_request(topic=topic)


def retry(group: str) -> RemotingCommand:
    command = send_request(topic=f"%RETRY%{group}")
    command.ext_fields["a"] = group
    return command


def pull(group: str, topic: str) -> RemotingCommand:
    return request(
        C.PULL_MESSAGE,
        {
            **{"consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0"},
            **{"maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "subscription": "*"},
            **{"suspendTimeoutMillis": "0", "subVersion": "0"},
        },
    )


QUEUE: dict[str, ExtValue] = {"topic": "T", "queueId": "0"}
CONSUMER: dict[str, ExtValue] = {"consumerGroup": "x", "topic": "T"}
HEARTBEAT = {
    "clientID": "c",
    "producerDataSet": [],
    "consumerDataSet": [
        {
            **{"groupName": "G", "consumeType": "CONSUME_PASSIVELY", "unitMode": False},
            **{"messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"},
            "subscriptionDataSet": [
                {"topic": "T", "subString": "*", "subVersion": 0, "tagsSet": [], "codeSet": []}
            ],
        }
    ],
}
TOPICS = ("T", "X", "D", "low", "A", "abc", "cd1", "cdefg")
"""None with two prefixes: 5.3.3 takes the shorter one, its documentation and ours the longer."""
Step = tuple[Credentials | None, RemotingCommand]
STEPS: list[Step] = [
    (None, send("T")),
    (STRANGER, send("T")),
    # Users.
    (SUPER, user(C.AUTH_CREATE_USER, "shop", password="shop-secret", userType="Normal")),
    (SUPER, user(C.AUTH_CREATE_USER, "shop", password="again")),
    (SUPER, user(C.AUTH_CREATE_USER, "x")),
    (SUPER, user(C.AUTH_CREATE_USER, "plain", password="p")),
    (SUPER, user(C.AUTH_CREATE_USER, "odd", password="p", userType="Boss")),
    (SUPER, user(C.AUTH_CREATE_USER, "", password="p")),
    (WRONG, send("T")),
    (NORMAL, send("T")),
    (SUPER, request(C.AUTH_GET_USER, {"username": "shop"})),
    (SUPER, request(C.AUTH_GET_USER, {"username": "none"})),
    (SUPER, request(C.AUTH_LIST_USER)),
    (SUPER, request(C.AUTH_LIST_USER, {"filter": "sh"})),
    (SUPER, request(C.AUTH_LIST_USER, {"filter": "zz"})),
    (SUPER, user(C.AUTH_UPDATE_USER, "shop", userStatus="disable")),
    (NORMAL, send("T")),
    (SUPER, user(C.AUTH_UPDATE_USER, "shop", userStatus="enable")),
    (SUPER, user(C.AUTH_UPDATE_USER, "none", userStatus="enable")),
    (SUPER, request(C.AUTH_DELETE_USER, {"username": "none"})),
    (NORMAL, request(C.AUTH_LIST_USER)),
    (NORMAL, user(C.AUTH_CREATE_USER, "z", password="p")),
    # Policies.
    (SUPER, request(C.AUTH_GET_ACL, SHOP)),
    (SUPER, policy("Topic:T", ["Pub", "Sub"])),
    (NORMAL, send("T")),
    (NORMAL, send("X")),
    (SUPER, request(C.AUTH_GET_ACL, SHOP)),
    (SUPER, request(C.AUTH_LIST_ACL, {"subjectFilter": "shop", "resourceFilter": "Topic"})),
    (SUPER, request(C.AUTH_LIST_ACL, {"subjectFilter": "zz"})),
    (SUPER, policy("Topic:T", ["Pub"], of="none")),
    (SUPER, policy("Foo:T", ["Pub"])),
    (SUPER, policy("Topic:T", [])),
    (SUPER, policy("Topic:T", ["Fly"])),
    (SUPER, policy("Topic:T", ["Any"])),
    (SUPER, policy("Topic:T", ["Pub"], sourceIps=["1.2.3"])),
    (SUPER, policy("Topic:T", ["Pub"], "Maybe")),
    (SUPER, policy("Topic:T", ["Pub"], policyType="Odd")),
    (SUPER, policy("topic:low", ["pub"], "allow", policyType="custom")),
    (SUPER, policy("Topic:A", ["All"])),
    (SUPER, policy("*", ["Get"])),
    (SUPER, policy("Topic:*", ["Pub"], "Deny")),
    (SUPER, policy("Topic:ab*", ["Pub"], sourceIps=["10.0.0.0/8"])),
    (SUPER, policy("Topic:cd*", ["Pub"], sourceIps=["127.0.0.0/8", "10.1.2.3"])),
    (SUPER, policy("Topic:cde*", ["Pub"], "Deny")),
    (SUPER, policy("Topic:cdefg", ["Pub"])),
    (SUPER, policy("Topic:D", ["Pub"], policyType="Default")),
    (SUPER, policy("Group:G", ["Pub"], policyType="Default")),
    (SUPER, request(C.AUTH_GET_ACL, SHOP)),
    *((NORMAL, send(topic)) for topic in TOPICS),
    (SUPER, policy("Topic:T", ["Sub"], "Deny", code=C.AUTH_UPDATE_ACL)),
    (NORMAL, send("T")),
    (NORMAL, request(C.LOCK_BATCH_MQ, {}, {"consumerGroup": "G", "clientId": "c", "mqSet": []})),
    (NORMAL, request(C.HEART_BEAT, {}, HEARTBEAT)),
    (NORMAL, topic_command("N")),
    (SUPER, request(C.AUTH_DELETE_ACL, {**SHOP, "resource": "Topic:T"})),
    (SUPER, request(C.AUTH_DELETE_ACL, {**SHOP, "resource": "Topic:nope"})),
    (SUPER, request(C.AUTH_GET_ACL, SHOP)),
    (SUPER, request(C.AUTH_DELETE_ACL, SHOP)),
    (SUPER, request(C.AUTH_DELETE_ACL, SHOP)),
    (SUPER, request(C.AUTH_DELETE_ACL, {"subject": "User:none"})),
    (SUPER, request(C.AUTH_GET_ACL, {"subject": "User:none"})),
    # An operator without the rights of a super user.
    (SUPER, user(C.AUTH_CREATE_USER, "ops", password="ops-secret")),
    (SUPER, policy("Cluster:*", ["Update", "Get"], of="ops")),
    (SUPER, policy("Topic:T", ["Sub"], of="ops")),
    (SUPER, policy("Group:g*", ["Sub"], of="ops")),
    (OPERATOR, user(C.AUTH_CREATE_USER, "boss", password="p", userType="Super")),
    (OPERATOR, user(C.AUTH_UPDATE_USER, "admin", password="x")),
    (OPERATOR, user(C.AUTH_UPDATE_USER, "ops", userType="Super")),
    (OPERATOR, request(C.AUTH_DELETE_USER, {"username": "admin"})),
    (OPERATOR, request(C.QUERY_CONSUMER_OFFSET, CONSUMER | QUEUE)),
    (OPERATOR, request(C.UPDATE_CONSUMER_OFFSET, {**CONSUMER, **QUEUE, "commitOffset": "0"})),
    (OPERATOR, request(C.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "x"})),
    (OPERATOR, request(C.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "x"})),
    (OPERATOR, request(C.GET_MAX_OFFSET, QUEUE)),
    (OPERATOR, request(C.SEARCH_OFFSET_BY_TIMESTAMP, {**QUEUE, "timestamp": "1"})),
    (OPERATOR, request(C.DELETE_TOPIC_IN_BROKER, {"topic": "T"})),
    (OPERATOR, request(C.DELETE_SUBSCRIPTIONGROUP, {"groupName": "x"})),
    (OPERATOR, request(C.GET_CONSUME_STATS, CONSUMER)),
    (OPERATOR, request(C.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "x"})),
    (OPERATOR, request(C.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "T"})),
    (OPERATOR, request(C.GET_TOPIC_CONFIG, {"topic": "T"})),
    (OPERATOR, request(C.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "x"})),
    (OPERATOR, request(C.QUERY_CONSUME_QUEUE, {**CONSUMER, **QUEUE, "index": "0", "count": "1"})),
    (OPERATOR, pull("x", "T")),
    (OPERATOR, pull("x", "%RETRY%x")),
    (OPERATOR, pull("x", "X")),
    (OPERATOR, retry("x")),
    (SUPER, request(C.AUTH_DELETE_USER, {"username": "ops"})),
    (OPERATOR, pull("g1", "T")),
]


def answer_of(node: Node, step: Step) -> tuple[int, str, Any]:
    by, command = step
    again = RemotingCommand(command.code, dict(command.ext_fields), command.body)
    answer = signed_request(node.address, again, by)
    # RocketMQ 5's remark on a success says that none was set.
    words = "" if answer.code == ResponseCode.SUCCESS else answer.remark or ""
    body = json.loads(answer.body_bytes()) if answer.body_bytes() else None
    return answer.code, words, body


def test_both_answer_the_same_to_the_same_requests(nodes: dict[str, Node]) -> None:
    for number, step in enumerate(STEPS):
        java, ours = (answer_of(nodes[make], step) for make in ("java", "trioha"))
        assert ours == java, f"step {number}: {step[1]}"


LOOPHOLES: list[RemotingCommand] = [
    request(C.GET_ALL_TOPIC_CONFIG),
    request(C.GET_BROKER_CONFIG),
    request(C.GET_BROKER_RUNTIME_INFO),
    request(C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    RemotingCommand(C.UPDATE_BROKER_CONFIG, {}, b"longPollingEnable=true"),
]


@pytest.mark.parametrize("command", LOOPHOLES, ids=lambda one: C(one.code).name)
def test_what_rocketmq_lets_every_user_do_needs_a_policy_here(
    nodes: dict[str, Node], command: RemotingCommand
) -> None:
    for make in BOTH:
        answer_of(nodes[make], (SUPER, user(C.AUTH_CREATE_USER, "weak", password="weak-secret")))
    codes: dict[Make, int] = {}
    for make in BOTH:
        again = RemotingCommand(command.code, dict(command.ext_fields), command.body)
        weak = Credentials("weak", "weak-secret")
        codes[make] = signed_request(nodes[make].address, again, weak).code
    # A young Java broker has no figures for 28 yet and answers 1.
    assert codes["java"] in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    assert codes["trioha"] == ResponseCode.NO_PERMISSION


def test_mqadmin_of_rocketmq_5_manages_users_and_policies(
    nodes: dict[str, Node], tmp_path: Path
) -> None:
    namesrv, ours, java = (nodes[name] for name in ("namesrv", "trioha", "java"))
    at = ["-b", ours.address]
    forger = Credentials(SUPER.access_key, "x")
    with mqadmin_5(tmp_path / "forger", forger) as refused:
        assert "check signature failed" in refused("listUser", "-n", namesrv.address, *at)
    with mqadmin_5(tmp_path / "super", SUPER) as mqadmin:

        def run(command: str, *arguments: str) -> str:
            said = mqadmin(command, "-n", namesrv.address, *arguments)
            assert "Exception" not in said, said
            return said

        manage(run, ours, java)


def manage(run: Callable[..., str], ours: Node, java: Node) -> None:
    at = ["-b", ours.address]
    shop = Credentials("made", "made-secret")
    assert "success" in run("createUser", *at, "-u", "made", "-p", "wrong-secret", "-t", "Normal")
    assert "success" in run("updateUser", *at, "-u", "made", "-p", "made-secret")
    said = run("getUser", *at, "-u", "made")
    assert [word for word in ("made-secret", "Normal", "enable") if word not in said] == []
    assert "made" in run("listUser", *at)
    rule = ["-s", "User:made", "-r", "Topic:own,Group:own", "-a", "Pub,Sub"]
    assert "success" in run("createAcl", *at, *rule, "-d", "Allow")
    assert "success" in run("updateAcl", *at, *rule, "-d", "Allow", "-i", "127.0.0.1")
    assert answer_of(ours, (shop, send("own")))[0] == ResponseCode.SUCCESS
    said = run("getAcl", *at, "-s", "User:made")
    assert [word for word in ("Topic:own", "Group:own", "127.0.0.1") if word not in said] == []
    assert "User:made" in run("listAcl", *at)
    assert "success" in run("deleteAcl", *at, "-s", "User:made", "-r", "Topic:own")
    assert answer_of(ours, (shop, send("own")))[0] == ResponseCode.NO_PERMISSION
    assert "success" in run("deleteUser", *at, "-u", "made")

    # From a broker of RocketMQ, with the password.
    moved = Credentials("moved", "moved-secret")
    answer_of(java, (SUPER, user(C.AUTH_CREATE_USER, "moved", password="moved-secret")))
    answer_of(java, (SUPER, policy("Topic:moved", ["Pub"], of="moved")))
    across = ["-f", java.address, "-t", ours.address]
    run("copyUser", *across, "-u", "moved")
    run("copyAcl", *across, "-s", "User:moved")
    assert answer_of(ours, (moved, send("moved")))[0] == ResponseCode.SUCCESS
