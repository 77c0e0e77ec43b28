"""A question for the settings of a group (352), beside RocketMQ 5.3.3: what it creates."""

from __future__ import annotations

from support.clusters.pair import SMALL_FILES
from support.peers.java import java_broker, require_java
from support.processes.admin import request
from support.processes.rig import Node, Processes, start_all, trioha_broker, trioha_namesrv
from support.processes.status import run_trioha

from trioha.wire import fastjson
from trioha.wire.bodies import group_table_from_dict
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.json_fields import object_of
from trioha.wire.remoting_command import RemotingCommand

ASKED = ("new", "CID_RMQ_SYS_new", "TOOLS_CONSUMER", "bad name!", "a" * 300)
OF_JAVA_5 = {"CID_RMQ_SYS_TRANS"}
"""A group of the system that only RocketMQ 5 has from the beginning."""


def test_a_group_is_created_by_a_question_for_it_where_rocketmq_creates_it(
    processes: Processes,
) -> None:
    require_java("5.3")
    namesrv = trioha_namesrv(processes).start()
    nodes: dict[str, Node] = {}
    for auto in (True, False):
        settings = {**SMALL_FILES, "autoCreateSubscriptionGroup": auto}
        name = f"auto-{auto}".lower()
        nodes[f"trioha {auto}"] = trioha_broker(
            processes, namesrv.address, name=f"t-{name}", settings=settings
        )
        nodes[f"java {auto}"] = java_broker(
            processes, namesrv.address, name=f"j-{name}", settings=settings, release="5.3"
        )
    start_all(nodes.values())
    for command in ("describe", "delete"):
        done = run_trioha("group", command, "nosuch", "-n", namesrv.address)
        assert done.code == 1
        assert "nosuch" in done.err
    told = {name: (_answers(node), _groups(node) - OF_JAVA_5) for name, node in nodes.items()}
    assert told["trioha True"] == told["java True"]
    assert told["trioha False"] == told["java False"]
    assert [told[f"java {auto}"][0]["new"] for auto in (True, False)] == [
        ResponseCode.SUCCESS,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    ]
    assert "nosuch" not in told["java True"][1]


def _answers(node: Node) -> dict[str, int]:
    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    return {
        name: request(node.address, RemotingCommand(code, {"group": name})).code for name in ASKED
    }


def _groups(node: Node) -> set[str]:
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    body = request(node.address, RemotingCommand(code)).body_bytes()
    return set(group_table_from_dict(object_of(fastjson.loads(body), "groups"))[1])
