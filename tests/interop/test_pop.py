"""Stock clients of RocketMQ 5 that pop, at the stock proxy; a Java consumer pops without it."""

from __future__ import annotations

import json
import subprocess
import time

import attrs
import pytest
from support.clusters.pair import SMALL_FILES, Cluster
from support.clusters.raft_group import raft_group
from support.peers.java import INTEROP, java_command, java_environment, require_java
from support.peers.proxy import Python5, java_proxy, run_js_5, start_python_5
from support.peers.rust import require_rust, rust_driver
from support.processes.admin import create_topic, request, topic_command, wait_for_route
from support.processes.rig import (
    Node,
    Process,
    Processes,
    start_all,
    trioha_broker,
    trioha_namesrv,
)
from support.processes.status import run_trioha

from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

# One proxy serves all of them.
pytestmark = pytest.mark.xdist_group("pop")
INVISIBLE_S = 10
"""The least that the proxy takes."""
CLIENT_S = 90.0
SWITCHED_S = 25.0
"""The proxy asks for routes every two seconds; hidden messages come back after ten."""
ROUTE_S = 8.0
"""Time until the proxy knows the new master; a handle is good for ten seconds."""
TOPICS = ("simple", "push", "java", "js", "rust", "DefaultHeartBeatSyncerTopic")
"""The last is the proxy's own; it gives up when it waits for three seconds to see it created."""


@attrs.frozen
class Served:
    """A cluster, the proxy in front of it, and a client at the proxy."""

    namesrv: Node
    broker: Node
    proxy: Node
    client: Python5


@pytest.fixture(scope="module")
def served(shared_processes: Processes) -> Served:
    namesrv = trioha_namesrv(shared_processes, name="pop-namesrv").start()
    broker = trioha_broker(
        shared_processes,
        namesrv.address,
        name="pop-broker",
        settings={**SMALL_FILES, "transactionCheckInterval": 1000},
    ).start()
    for topic in TOPICS:
        create_topic(broker.address, namesrv.address, topic, queues=2)
    proxy = java_proxy(shared_processes, namesrv.address)
    start_all([proxy])
    return Served(namesrv, broker, proxy, start_python_5(shared_processes, proxy.address))


def create_typed_topic(served: Served, topic: str, message_type: str) -> None:
    command = topic_command(topic, 2)
    command.ext_fields["attributes"] = f"+message.type={message_type}"
    assert request(served.broker.address, command).code == ResponseCode.SUCCESS
    wait_for_route(served.namesrv.address, topic)


def create_orderly_group(served: Served, group: str) -> None:
    body = json.dumps({"groupName": group, "consumeMessageOrderly": True}).encode()
    command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    assert request(served.broker.address, command).code == ResponseCode.SUCCESS


def test_a_simple_consumer_and_a_broker_that_is_killed(served: Served) -> None:
    """Receive, acknowledge, change the invisible time; what is in flight survives kill -9."""
    client = served.client
    client.run("subscribe", topic="simple", group="simple-group")
    client.run("send", topic="simple", bodies=list("abcdef"))
    got = client.run("receive", group="simple-group", count=6, invisible_s=INVISIBLE_S)
    assert sorted(got) == [[body, 1] for body in "abcdef"]
    client.run("ack", group="simple-group", bodies=["a", "b"])
    hidden_s = time.monotonic()
    client.run("hide", group="simple-group", body="f", seconds=INVISIBLE_S)
    served.broker.kill()
    served.broker.start()
    client.run("ack", group="simple-group", bodies=["c"])
    again = client.run(
        "receive", group="simple-group", count=3, invisible_s=INVISIBLE_S, within_s=20
    )
    assert sorted(again) == [["d", 2], ["e", 2], ["f", 2]]
    assert time.monotonic() - hidden_s >= INVISIBLE_S, "f came back before its time"
    client.run("ack", group="simple-group", bodies=["d", "e", "f"])


def test_a_push_consumer_gets_what_failed_once_more(served: Served) -> None:
    client = served.client
    client.run("send", topic="push", bodies=["good", "bad", "fine"])
    client.run("push", topic="push", group="push-group", failing=["bad"])
    for body in ("good", "bad", "fine"):
        client.wait_for(body, event="message", body=body, attempt=1)
    client.wait_for("bad, once more", event="message", body="bad", attempt=2)
    attempts = [event["body"] for event in client.events if event.get("attempt")]
    assert sorted(attempts) == ["bad", "bad", "fine", "good"]


def test_the_node_js_client_receives_and_acknowledges(served: Served) -> None:
    assert run_js_5(served.proxy.address, "js", "js-group") == [f"js-{i}" for i in range(5)]


def test_an_ordered_group_waits_for_the_message_that_failed(served: Served) -> None:
    """The topic is of type FIFO and the group is orderly: by that the proxy pops in order."""
    client = served.client
    create_typed_topic(served, "ordered", "FIFO")
    create_orderly_group(served, "ordered-group")
    bodies = [f"in-order-{i}" for i in range(6)]
    client.run("send", topic="ordered", bodies=bodies, group="one")
    client.run("push", topic="ordered", group="ordered-group", failing=["in-order-2"])
    client.wait_for("the last", event="message", body="in-order-5")
    got = [event["body"] for event in client.events if event.get("body", "") in bodies]
    assert got == [*bodies[:3], *bodies[2:]]


def test_java_s_push_consumer_in_pop_mode(served: Served, processes: Processes) -> None:
    """The consumer fails once, and gets the message again after the ten seconds it asks for."""
    require_java("proxy")
    client = served.client
    client.run("send", topic="java", bodies=["one", "two", "three-again"])
    home = processes.root / "pop-consumer"
    source = str(INTEROP / "java-5.3" / "PopConsumer.java")
    arguments = [served.namesrv.address, served.broker.address, "java", "java-group"]
    process = processes.add(
        Process(
            "pop-consumer",
            java_command(source, home, arguments, release="proxy"),
            processes.root / "logs" / "pop-consumer.log",
            java_environment(home),
            home,
        )
    )
    process.start()
    for line in ("one 0", "two 0", "three-again 0", "three-again 1"):
        process.wait_for_line(rf"got {line} of java", 30)
    process.write_line("")
    process.wait_for_line("lag 0")


def test_java_s_grpc_client_with_messages_of_each_type(
    served: Served, processes: Processes
) -> None:
    """Tags, invisible time, delays, order, transactions, and the check of topics' types."""
    require_java("grpc")
    for message_type in ("NORMAL", "DELAY", "FIFO", "TRANSACTION"):
        create_typed_topic(served, message_type.lower(), message_type)
    create_orderly_group(served, "fifo-group")
    home = processes.root / "grpc-client"
    source = str(INTEROP / "java-grpc" / "GrpcClient.java")
    done = subprocess.run(
        java_command(source, home, [served.proxy.address], release="grpc"),
        env=java_environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
    )
    told = [line.removeprefix("told ") for line in done.stdout.splitlines() if line[:5] == "told "]
    assert done.returncode == 0, f"{told}\n{done.stderr[-4000:]}"
    assert told[:3] == [
        "normal tagged red [k1] {p=v} 1",
        "again tagged 2 false",
        "delayed later true false",
    ]
    assert told[3:8] == [f"ordered in-order-{number}" for number in (0, 1, 1, 2, 3)]
    assert told[8] == "of a transaction committed"
    assert sorted(told[9:-3]) == ["asked dropped", "asked kept", "of a transaction kept"]
    assert told[-3:] == ["refused fifo", "refused normal-late", "refused normal-ordered"]


@attrs.frozen
class Popping:
    """The stock Python client at a proxy of its own; it has popped four messages of one topic."""

    client: Python5
    topic: str

    def receive(self, count: int, within_s: float = SWITCHED_S) -> list[list[object]]:
        """Receive messages; return body and attempt of each, sorted."""
        found = self.client.run(
            "receive",
            group=f"{self.topic}-group",
            count=count,
            invisible_s=INVISIBLE_S,
            within_s=within_s,
        )
        return sorted(found)

    def ack(self, *bodies: str, within_s: float = 0) -> None:
        self.client.run("ack", group=f"{self.topic}-group", bodies=bodies, within_s=within_s)


def start_popping(processes: Processes, namesrv: str, topic: str) -> Popping:
    client = start_python_5(processes, java_proxy(processes, namesrv).start().address)
    popping = Popping(client, topic)
    client.run("subscribe", topic=topic, group=f"{topic}-group")
    client.run("send", topic=topic, bodies=list("abcd"))
    assert popping.receive(4) == [[body, 1] for body in "abcd"]
    popping.ack("a")
    return popping


def test_what_was_popped_survives_a_planned_and_a_forced_switch(processes: Processes) -> None:
    """Each of five messages is received until it is acknowledged, and none after that.

    A receipt handle of one master is acknowledged at the next one.
    """
    cluster = Cluster(processes).start("SYNC_MASTER", slave=True)
    for topic in ("switched", TOPICS[-1]):
        create_topic(cluster.master.address, cluster.namesrv, topic, queues=2)
    popping = start_popping(processes, cluster.namesrv, "switched")

    switched = run_trioha("failover", "broker-a", "--yes", "-n", cluster.namesrv)
    assert switched.code == 0, switched.err
    popping.ack("b", within_s=ROUTE_S)
    popping.client.run("send", topic="switched", bodies=["e"])
    assert popping.receive(3) == [["c", 2], ["d", 2], ["e", 1]]
    popping.ack("e")

    cluster.slave.kill()
    forced = run_trioha("failover", "broker-a", "--yes", "--force", "-n", cluster.namesrv)
    assert forced.code == 0, forced.err
    popping.ack("d", within_s=ROUTE_S)
    assert popping.receive(1) == [["c", 3]]
    popping.ack("c")
    assert popping.receive(1, within_s=INVISIBLE_S + 5) == []


@pytest.mark.release
def test_what_was_popped_survives_the_death_of_a_leader(processes: Processes) -> None:
    namesrv = trioha_namesrv(processes).start()
    group = raft_group(processes, namesrv.address, name="broker-raft")
    leader = group.start()
    for topic in ("elected", TOPICS[-1]):
        group.create_topic(topic, 2)
    popping = start_popping(processes, namesrv.address, "elected")
    leader.kill()
    group.wait_for_leader(other_than=leader)
    popping.ack("b", within_s=ROUTE_S)
    assert popping.receive(2) == [["c", 2], ["d", 2]]
    popping.ack("c", "d")
    assert popping.receive(1, within_s=INVISIBLE_S + 5) == []


@pytest.mark.release
def test_the_rust_grpc_client_receives_again_what_it_did_not_acknowledge(served: Served) -> None:
    """Built for minutes where it was not built before, so not in the gate."""
    require_rust()
    done = subprocess.run(
        [rust_driver(), served.proxy.address, "rust", "rust-group"],
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
    )
    told = [line.removeprefix("told ") for line in done.stdout.splitlines() if line[:5] == "told "]
    assert done.returncode == 0, f"{told}\n{done.stderr[-4000:]}\n{done.stdout[-4000:]}"
    words = 'red ["k1"] {"p": "v"}'
    assert sorted(told[:2]) == [f"got one {words} 1", f"got two {words} 1"]
    assert told[2:] == [f"again two {words} 2", "early false"]
