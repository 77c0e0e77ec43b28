"""A simulated fleet: name servers and brokers that answer what a console asks.

    PYTHONPATH=tests python -m bench.fleet

One process listens for all of them on loopback. It prints the address of the name server of all
clusters and then one for each cluster, and serves until its input ends. Every answer is made when
it is asked for, with numbers that have moved.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import msgpack
from support.fakes.raw_answers import link_row, node_status, slave_row

from trioha.remoting.connection import RemotingConnection
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.fastjson import ObjectKeyMap
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import RemotingCommand, encode
from trioha.wire.route import BrokerData, ClusterInfo

CLUSTERS, SETS, TOPICS, GROUPS, QUEUES = 10, 5, 200, 500, 2
"""Sets, topics and groups of each cluster, queues of a topic on each master.

Together 100 brokers, 2,000 topics of 10 queues, and 5,000 groups with 50,000 offsets.
"""


@attrs.define(eq=False)
class FleetNode:
    """One address and what it answers."""

    answer: Callable[[RemotingCommand], RemotingCommand]
    address: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = RemotingConnection()
        # A console that quits with answers on their way resets its connections.
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                connection.receive_data(data)
                while (command := connection.next_command()) is not NEED_DATA:
                    response = self.answer(command)
                    response.opaque = command.opaque
                    writer.write(encode(response))
        writer.close()


@attrs.define(eq=False)
class FleetBroker:
    """A master or a slave with its share of the topics and groups."""

    cluster: int
    name: str
    broker_id: int
    peer: str = ""
    """Address of the other member of its set."""
    address: str = ""
    _began: float = attrs.field(factory=time.monotonic)

    @property
    def moved(self) -> int:
        return int((time.monotonic() - self._began) * 100)

    def answer(self, command: RemotingCommand) -> RemotingCommand:
        make = {
            RequestCode.TRIOHA_NODE_STATUS: self._status,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._groups,
            RequestCode.GET_BROKER_CONSUME_STATS: self._progress,
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._members,
        }.get(RequestCode(command.code))
        if make is None:
            return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not in this fleet")
        return command.response(body=make(command))

    def _status(self, _: RemotingCommand) -> bytes:
        end = 4096 + self.moved * 1000
        status = node_status(
            self.name, self.broker_id, self.address, cluster=f"cluster-{self.cluster}", end=end
        )
        status["put_total"] = status["get_total"] = self.moved
        if self.broker_id:
            status["slave"] = slave_row(self.peer)
        else:
            status["connections"] = [link_row(self.peer, 1, end=end)]
        packed: bytes = msgpack.packb(status)
        return packed

    def _topics(self, _: RemotingCommand) -> bytes:
        config = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6, "order": False}
        names = [topic_name(self.cluster, number) for number in range(TOPICS)]
        return fastjson.dumps(
            {"topicConfigTable": {name: {**config, "topicName": name} for name in names}}
        )

    def _groups(self, _: RemotingCommand) -> bytes:
        names = [group_name(self.cluster, number) for number in range(GROUPS)]
        return fastjson.dumps(
            {"subscriptionGroupTable": {name: {"groupName": name} for name in names}}
        )

    def _progress(self, _: RemotingCommand) -> bytes:
        now_ms, moved = time.time_ns() // 1_000_000, self.moved
        parts = []
        for number in range(GROUPS):
            topic = topic_name(self.cluster, number % TOPICS)
            rows = [
                (
                    self._queue(topic, queue_id),
                    {
                        "brokerOffset": moved + 1000,
                        "consumerOffset": moved + number % 1000,
                        "lastTimestamp": now_ms,
                        "minOffset": 0,
                        "nextTimestamp": now_ms - 1000,
                    },
                )
                for queue_id in range(QUEUES)
            ]
            stats = {"consumeTps": 0.0, "offsetTable": ObjectKeyMap(rows)}
            parts.append({group_name(self.cluster, number): [stats]})
        return fastjson.dumps(
            {"brokerAddr": self.address, "consumeStatsList": parts, "totalDiff": 0}
        )

    def _topic_stats(self, command: RemotingCommand) -> bytes:
        topic, now_ms, moved = command.ext_str("topic"), time.time_ns() // 1_000_000, self.moved
        ends = {"minOffset": 0, "maxOffset": moved + 1000, "lastUpdateTimestamp": now_ms}
        rows = [(self._queue(topic, queue_id), ends) for queue_id in range(QUEUES)]
        return fastjson.dumps({"offsetTable": ObjectKeyMap(rows)})

    def _members(self, _: RemotingCommand) -> bytes:
        return fastjson.dumps({"connectionSet": [], "subscriptionTable": {}})

    def _queue(self, topic: str, queue_id: int) -> dict[str, Any]:
        return {"brokerName": self.name, "queueId": queue_id, "topic": topic}


def topic_name(cluster: int, number: int) -> str:
    return f"orders-{cluster}-{number:03}"


def group_name(cluster: int, number: int) -> str:
    return f"billing-{cluster}-{number:03}"


async def open_fleet() -> tuple[list[str], list[asyncio.Server]]:
    """Listen for all nodes; return the addresses of the name servers, and all servers."""
    servers: list[asyncio.Server] = []

    async def listen(answer: Callable[[RemotingCommand], RemotingCommand]) -> str:
        node = FleetNode(answer)
        server = await asyncio.start_server(node.serve, "127.0.0.1", 0, backlog=256)
        servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    infos = []
    for cluster in range(CLUSTERS):
        table = {}
        for number in range(SETS):
            name = f"broker-{cluster}-{number}"
            pair = [FleetBroker(cluster, name, broker_id) for broker_id in (0, 1)]
            for one in pair:
                one.address = await listen(one.answer)
            pair[0].peer, pair[1].peer = pair[1].address, pair[0].address
            addresses = {one.broker_id: one.address for one in pair}
            table[name] = BrokerData(f"cluster-{cluster}", name, addresses)
        infos.append(ClusterInfo(table, {f"cluster-{cluster}": tuple(table)}))
    everything = ClusterInfo(
        {name: one for info in infos for name, one in info.broker_addr_table.items()},
        {name: one for info in infos for name, one in info.cluster_addr_table.items()},
    )
    namesrvs = [await listen(partial(_registered, info)) for info in (everything, *infos)]
    return namesrvs, servers


def _registered(info: ClusterInfo, command: RemotingCommand) -> RemotingCommand:
    if command.code != RequestCode.GET_BROKER_CLUSTER_INFO:
        return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not in this fleet")
    return command.response(body=info.encode())


async def main() -> None:
    addresses, servers = await open_fleet()
    print(" ".join(addresses), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for server in servers:
        server.close()


if __name__ == "__main__":
    asyncio.run(main())
