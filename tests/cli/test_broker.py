"""`trioha broker`, `cluster`, `namesrv`, `client`: against a cluster, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.clusters.operated import Operated, operate

from trioha.cli.failures import ExitCode


def test_brokers_are_listed_and_described(operator: Operated) -> None:
    brokers = operator.json("broker", "list")["brokers"]
    assert [(one["name"], one["id"], one["role"]) for one in brokers] == [
        ("broker-a", 0, "ASYNC_MASTER"),
        ("broker-b", 0, "ASYNC_MASTER"),
    ]
    assert all(one["error"] == "" and one["version"].startswith("trioha ") for one in brokers)
    assert "VERSION" in operator.ok("broker", "list", "-o", "wide")
    detail = operator.json("broker", "describe", "broker-a")
    assert detail["status"]["role"] == "ASYNC_MASTER"
    assert detail["runtime"]["brokerVersionDesc"] == "V4_9_8"
    assert "RUNTIME" in operator.ok("broker", "describe", "broker-a", "--id", "0", "-o", "wide")
    stats = operator.json("broker", "stats", "broker-a")
    assert len(stats["put_per_s"]) == 3
    assert "commitlog" in operator.ok("broker", "stats", "broker-a")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["broker", "describe", "broker-x"], 1, "no broker broker-x; did you mean broker-"),
        (["broker", "describe", "broker-a", "--id", "7"], 1, "has no node 7; its nodes are: 0"),
        (["broker", "describe", "a\x1b"], 2, "control characters"),
        (["broker", "config", "get", "broker-a", "longPolingEnable"], 1, "longPollingEnable?"),
        (["broker", "config", "set", "broker-a", "nosuch", "1"], 1, "has no setting nosuch"),
        (["broker", "config", "set", "broker-a", "brokerName", "x"], 5, "can not be set remotely"),
        (["broker", "config", "set", "broker-a", "slaveReadEnable", "maybe"], 5, "slaveReadEnable"),
        (["broker", "drain", "broker-a"], 2, "nobody is here to type broker-a"),
        (["broker", "list", "--cluster", "Elsewhere"], 1, "no cluster Elsewhere"),
        (["client", "list", "-g", "nosuch"], 1, "no client of group nosuch is connected"),
        (["client", "describe", "nosuch"], 1, "no consumer of group nosuch is connected"),
        (["namesrv", "kv", "get", "nowhere", "x"], 1, "there is no x in nowhere"),
        (["namesrv", "kv", "delete", "nowhere", "x", "--yes"], 1, "there is no x in nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    operator: Operated, arguments: list[str], code: int, says: str
) -> None:
    assert says in operator.refused(code, *arguments)


def test_a_setting_is_changed_kept_and_noted(operator: Operated) -> None:
    key = "shortPollingTimeMills"
    before = operator.ok("broker", "config", "get", "broker-a", key)
    planned = operator.json("broker", "config", "set", "broker-a", key, "777", "--dry-run")
    assert planned["before"] == {"broker-a/0": before.strip()}
    assert operator.json("broker", "config", "set", "broker-a", key, "777")["done"]
    assert operator.ok("broker", "config", "get", "broker-a", key) == "777\n"
    operator.call(lambda cluster: cluster.broker("broker-a", 0).restart())
    assert operator.json("broker", "config", "get", "broker-a", key)["settings"] == {key: "777"}
    assert "longPollingEnable" in operator.ok("broker", "config", "get", "broker-a")
    log = operator.cluster.timeline.log().decode()
    events = [line for line in log.splitlines() if "setting_changed" in line]
    assert any("777" in event for event in events)
    operator.ok("broker", "config", "set", "broker-a", key, before.strip())


def test_masters_are_cleaned(operator: Operated) -> None:
    assert operator.json("broker", "clean")["brokers"] == ["broker-a", "broker-b"]
    said = operator.ok("broker", "clean", "-b", "broker-b", "--what", "log")
    assert said == "broker-b: log are cleaned\n"


def test_a_lone_master_is_drained_of_its_producers_and_its_messages(operator: Operated) -> None:
    operator.ok("topic", "create", "drained", "--queues", "1")
    operator.send("drained", 4)
    done = operator.trioha("broker", "drain", "broker-b", "--yes", "--wait", "1")
    assert done.code == ExitCode.FAILED
    assert "broker-b 0 at " in done.out
    assert "is NOT safe to stop yet" in done.out
    ids = operator.send("drained", 4)
    assert ids
    queues = operator.json("topic", "describe", "drained")["queues"]
    assert {one["broker"]: one["messages"] for one in queues}["broker-b"] == 2
    assert "takes messages again" in operator.ok("broker", "drain", "broker-b", "--undo")


def test_a_cluster_is_described_and_its_traffic_shown(operator: Operated) -> None:
    detail = operator.json("cluster", "describe")
    assert detail["clusters"] == {"DefaultCluster": ["broker-a", "broker-b"]}
    assert "NAME SERVER" in operator.ok("cluster", "describe", "--cluster", "DefaultCluster")
    top = operator.json("cluster", "top", "--count", "1")
    assert len(top["brokers"]) == 2
    assert "BROKER" in operator.ok("cluster", "top", "--once")
    found = operator.trioha("cluster", "health", "-o", "json")
    assert json.loads(found.out)["checked"] > 0


def test_name_servers_are_asked_and_their_entries_changed(operator: Operated) -> None:
    (one,) = operator.json("namesrv", "list")["namesrvs"]
    assert (one["brokers"], one["nodes"], one["error"]) == (2, 2, "")
    assert operator.json("namesrv", "config")["settings"]
    assert "SETTING" in operator.ok("namesrv", "config")
    assert operator.json("namesrv", "kv", "put", "shop", "region", "eu")["done"]
    assert operator.ok("namesrv", "kv", "get", "shop", "region") == "eu\n"
    assert operator.json("namesrv", "kv", "list", "shop")["entries"] == {"region": "eu"}
    assert "(was eu)" in operator.ok("namesrv", "kv", "put", "shop", "region", "us", "--dry-run")
    assert operator.json("namesrv", "kv", "delete", "shop", "region", "--yes")["done"]
    assert operator.json("namesrv", "kv", "list", "shop")["entries"] == {}


def test_a_silent_name_server_is_exit_code_4(operator: Operated) -> None:
    done = operator.trioha("namesrv", "list", "-n", f"{operator.namesrv};10.9.9.9:9876")
    assert done.code == ExitCode.UNREACHABLE
    assert "10.9.9.9:9876" in done.out


def test_connected_clients_are_listed(operator: Operated) -> None:
    operator.ok("topic", "create", "clients", "--queues", "1")
    with operator.reading("clients", "clientele"), operator.sending("clients", every_s=0.05):
        operator.eventually(lambda: len(operator.json("client", "list")["clients"]) >= 2)
        found = operator.json("client", "list")["clients"]
        assert ("consumer", "clientele") in {(one["kind"], one["group"]) for one in found}
        assert "clientele" in operator.ok("client", "list", "-g", "clientele", "-o", "wide")
        operator.eventually(
            lambda: "broker-b" in operator.ok("client", "describe", "clientele")  # a queue of each
        )
        # The Python client takes no message from an operator: its broker says so.
        ids = operator.send("clients", 1)
        done = operator.trioha("client", "consume-directly", "clientele", ids[0], "-t", "clients")
        assert done.code == ExitCode.REFUSED


@pytest.fixture(scope="module")
def pair_itself() -> Iterator[Operated]:
    with operate("pair") as operated:
        yield operated


def test_a_master_with_a_slave_is_drained_by_a_failover(
    pair_itself: Operated, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pair_itself.listen(capsys, monkeypatch)
    assert pair.json("cluster", "health")["state"] in ("OK", "WARNING")
    pair.ok("topic", "create", "kept", "--queues", "2")
    pair.send("kept", 4)
    plan = pair.json("broker", "drain", "broker-a", "--dry-run")
    assert plan["way"] == "failover"
    assert "becomes master of broker-a" in plan["would"][0]
    with pair.sending("kept", every_s=0.05):
        done = pair.json("broker", "drain", "broker-a", "--yes", "--wait", "0", code=1)
        assert (done["way"], done["safe_to_stop"]) == ("failover", False)
    roles = {one["id"]: one["role"] for one in pair.json("broker", "list")["brokers"]}
    assert roles == {0: "SLAVE", 1: "SYNC_MASTER"}, "a node keeps its id"
    again = pair.json("broker", "drain", "broker-a", "--id", "0", "--yes", "--wait", "20")
    assert (again["way"], again["safe_to_stop"]) == ("nothing", True)
    assert pair.json("topic", "describe", "kept")["messages"] >= 4


def test_an_empty_cluster_is_no_success_where_something_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with operate("single") as operated:
        one = operated.listen(capsys, monkeypatch)
        one.call(lambda cluster: cluster.broker("broker-a", 0).stop())
        for arguments in (
            ["topic", "describe", "x"],
            ["topic", "create", "x"],
            ["group", "describe", "x"],
            ["broker", "describe", "x"],
            ["cluster", "describe"],
            ["cluster", "health"],
            ["cluster", "top", "--once"],
            ["message", "get", "-t", "x", "y"],
            ["dlq", "browse", "x"],
        ):
            assert one.refused(ExitCode.FAILED, *arguments)
        for noun in ("topic", "group", "broker", "dlq"):
            assert one.ok(noun, "list").startswith("No ")
