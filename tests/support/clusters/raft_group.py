"""Groups in DLEDGER mode of either make. Only the name server is asked which member leads.

`raft_drills.hurt_group` is for groups of trioha's whose members are hurt and asked one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import attrs

from support.clusters.pair import SMALL_FILES, Make
from support.peers.java import java_broker
from support.processes.admin import put_topic, request, wait_for_route
from support.processes.rig import (
    Node,
    Processes,
    ProcessFailed,
    raft_member,
    start_all,
)
from support.suite.ports import distinct_ports
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import ClusterInfo

MEMBERS = 3
START_S = 120.0
# Java takes five to ten seconds to elect, and as long again to register when it is unlucky.
ELECTED_S = 60.0
TOPIC_S = 30.0
ASK_PERIOD_S = 0.02


@attrs.define(eq=False)
class RaftGroup:
    """A group under one name server. Members are n0, n1, …, in the order of `nodes`."""

    make: Make
    name: str
    namesrv: str
    nodes: list[Node]

    def start(self, within_s: float = ELECTED_S) -> Node:
        """Start all members; returns the leader once the name server knows it."""
        start_all(self.nodes, START_S)
        return self.wait_for_leader(within_s)

    def addresses(self) -> Mapping[int, str]:
        """Return addresses by broker id, the leader's at 0; empty if the name server has none."""
        answer = request(self.namesrv, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        if answer.remark and "ConcurrentModificationException" in answer.remark:
            return {}  # Java's tables changed while it wrote them out
        assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"
        info = ClusterInfo.decode(answer.body_bytes())
        broker = info.broker_addr_table.get(self.name)
        return broker.broker_addrs if broker is not None else {}

    def wait_for_leader(self, within_s: float = ELECTED_S, other_than: Node | None = None) -> Node:
        """The member that the name server calls broker 0, once it is one that runs."""
        deadline = time.monotonic() + within_s
        while True:
            address = self.addresses().get(0)
            for node in self.nodes:
                if node.address == address and node.running and node is not other_than:
                    return node
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{self.name} has no leader after {within_s} s: {address}")
            time.sleep(ASK_PERIOD_S)

    def wait_for_followers(self, within_s: float = ELECTED_S) -> None:
        """Wait until the name server knows every member that runs."""
        running = {node.address for node in self.nodes if node.running}
        deadline = time.monotonic() + within_s
        while (found := set(self.addresses().values())) != running:
            assert time.monotonic() < deadline, f"{self.name} is {found}, not {running}"
            time.sleep(ASK_PERIOD_S)

    def followers_of(self, leader: Node) -> list[Node]:
        return [node for node in self.nodes if node is not leader]

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create `topic` and wait for its route, and until every member that runs knows it.

        A Java follower copies topics every ten seconds; as a leader it would not know this one.
        """
        put_topic(self.wait_for_leader().address, topic, queues)
        wait_for_route(self.namesrv, topic)
        for node in self.nodes:
            if node.running:
                wait_for_topic(node.address, topic)


def raft_group(
    processes: Processes,
    namesrv: str,
    *,
    make: Make = "trioha",
    name: str = "broker-a",
    members: int = MEMBERS,
    settings: Mapping[str, object] = SMALL_FILES,
    java_broker: Callable[..., Node] = java_broker,
) -> RaftGroup:
    """A group whose members are not yet started; each keeps its ports over a restart."""
    ports = distinct_ports(members)
    # Java's Raft has ports of its own; ours goes over the port that clients use.
    raft_ports = distinct_ports(members, apart_from=ports) if make == "java" else ports
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(raft_ports))

    def member(number: int, port: int) -> Node:
        id_ = f"n{number}"
        if make == "trioha":
            address = f"127.0.0.1:{port}"
            return raft_member(
                processes,
                namesrv,
                name=name,
                member_id=id_,
                peers=peers,
                address=address,
                settings=settings,
            )
        raft = {"enableDLegerCommitLog": True, "dLegerGroup": name, "dLegerPeers": peers}
        return java_broker(
            processes,
            namesrv,
            name=name,
            broker_id=number,
            port=port,
            settings={**settings, **raft, "dLegerSelfId": id_},
        )

    return RaftGroup(make, name, namesrv, [member(*each) for each in enumerate(ports)])


def wait_for_topic(broker: str, topic: str, within_s: float = TOPIC_S) -> None:
    """Wait until this very broker knows `topic`."""
    deadline = time.monotonic() + within_s
    name = f'"{topic}"'.encode()
    while True:
        answer = request(broker, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
        assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"
        if name in answer.body_bytes():
            return
        assert time.monotonic() < deadline, f"{broker} does not know {topic} after {within_s} s"
        time.sleep(ASK_PERIOD_S)
