"""Administration against nodes in memory."""

from __future__ import annotations

import msgpack
import pytest
from support.fakes.client_messages import record
from support.fakes.cluster import FakeBroker, FakeCluster

from trioha.client import MessageQueue, NoRoute, open_admin
from trioha.errors import CommandError, RemoteProtocolError, TriohaError
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire import fastjson
from trioha.wire.bodies import encode_kv_table, encode_topic_list
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, ClusterInfo

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

NAMESRV = "127.0.0.1:9876"


@pytest.fixture
def info(cluster: FakeCluster, broker: FakeBroker) -> ClusterInfo:
    """Two masters in two clusters, one of them with a slave."""
    cluster.add_broker("b")
    info = ClusterInfo(
        {
            "a": BrokerData("C1", "a", {0: "a0:10911", 1: "a1:10911"}),
            "b": BrokerData("C2", "b", {0: "b0:10911"}),
        },
        {"C1": ("a",), "C2": ("b",)},
    )
    cluster.namesrv.scripts[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda command: command.response(
        body=info.encode()
    )
    for node in cluster.nodes.values():
        node.scripts[RequestCode.UPDATE_AND_CREATE_TOPIC] = RemotingCommand.response
    return info


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, ["a0:10911", "b0:10911"]),
        ({"cluster": "C2"}, ["b0:10911"]),
        ({"broker": "a"}, ["a0:10911"]),
    ],
)
async def test_topics_are_created_on_masters(
    cluster: FakeCluster, info: ClusterInfo, where: dict[str, str], expected: list[str]
) -> None:
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        assert await admin.cluster_info() == info
        await admin.create_topic("New", queue_nums=3, **where)  # type: ignore[arg-type]
    asked = {
        address: node.asked(RequestCode.UPDATE_AND_CREATE_TOPIC)
        for address, node in cluster.nodes.items()
    }
    assert [address for address, commands in asked.items() if commands] == expected
    (command,) = asked[expected[0]]
    assert (command.ext_str("topic"), command.ext_int("readQueueNums")) == ("New", 3)


async def test_creating_a_topic_nowhere_is_an_error(
    cluster: FakeCluster, info: ClusterInfo
) -> None:
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        with pytest.raises(TriohaError, match="no master"):
            await admin.create_topic("New", broker="z")


async def test_topics_and_routes(cluster: FakeCluster, broker: FakeBroker) -> None:
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    cluster.namesrv.scripts[code] = lambda command: command.response(
        body=encode_topic_list(["T", "U"])
    )
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        assert await admin.topics() == ("T", "U")
        assert (await admin.route("T")).master("a") == broker.address
        with pytest.raises(NoRoute):
            await admin.route("Unknown")


async def test_offsets_of_every_queue(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.put("T", 1, b"x")
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        assert await admin.offsets("T") == {
            MessageQueue("T", "a", 0): (0, 0),
            MessageQueue("T", "a", 1): (0, 1),
        }


async def test_a_message_is_asked_for_at_the_address_in_its_id(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    cluster.nodes["127.0.0.1:10911"] = broker
    broker.scripts[RequestCode.VIEW_MESSAGE_BY_ID] = lambda command: command.response(
        body=record(b"found")
    )
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        message = await admin.message_by_id("7F00000100002A9F00000000000004D2")
        assert message.body == b"found"
        with pytest.raises(RemoteProtocolError):
            await admin.message_by_id("nonsense")
    (command,) = broker.asked(RequestCode.VIEW_MESSAGE_BY_ID)
    assert command.ext_int("offset") == 1234


async def test_messages_found_by_hash_are_checked_by_key(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    stored = record(b"1", b"KEYS\x01Aa") + record(b"2", b"KEYS\x01BB\x02UNIQ_KEY\x01U")
    broker.scripts[RequestCode.QUERY_MESSAGE] = lambda command: command.response(body=stored)
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        by_key = await admin.messages_by_key("T", "Aa")
        by_id = await admin.messages_by_key("T", "U", unique=True)
        broker.scripts[RequestCode.QUERY_MESSAGE] = lambda command: command.response(
            ResponseCode.QUERY_NOT_FOUND, "none"
        )
        assert await admin.messages_by_key("T", "k") == []
    assert [message.body for message in by_key] == [b"1"]
    assert [message.body for message in by_id] == [b"2"]


async def test_progress_of_a_group(cluster: FakeCluster, broker: FakeBroker) -> None:
    stats = fastjson.dumps(
        {
            "consumeTps": 0.0,
            "offsetTable": fastjson.ObjectKeyMap(
                [
                    (
                        MessageQueue("T", "a", 0).to_dict(),
                        {"brokerOffset": 9, "consumerOffset": 4, "lastTimestamp": 0},
                    )
                ]
            ),
        }
    )
    broker.scripts[RequestCode.GET_CONSUME_STATS] = lambda command: command.response(body=stats)
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        (progress,) = await admin.consumer_progress("G", "T")
    assert (progress.queue, progress.lag) == (MessageQueue("T", "a", 0), 5)


async def test_the_end_of_a_log_is_told_by_trioha_and_by_java(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    table = encode_kv_table({"commitLogMaxOffset": "77"})
    broker.scripts[RequestCode.GET_BROKER_RUNTIME_INFO] = lambda command: command.response(
        body=table
    )
    broker.scripts[RequestCode.TRIOHA_NODE_STATUS] = lambda command: command.response(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no"
    )
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        assert await admin.log_end(broker.address) == 77
        broker.scripts[RequestCode.TRIOHA_NODE_STATUS] = lambda command: command.response(
            body=msgpack.packb({"max_phy_offset": 88})
        )
        assert await admin.log_end(broker.address) == 88


@pytest.mark.parametrize("body", [b"\xc1", b"", msgpack.packb([1])])
async def test_a_status_that_is_none_is_an_error(
    cluster: FakeCluster, broker: FakeBroker, body: bytes
) -> None:
    broker.scripts[RequestCode.TRIOHA_NODE_STATUS] = lambda command: command.response(body=body)
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        with pytest.raises(RemoteProtocolError):
            await admin.node_status(broker.address)


async def test_a_refusal_keeps_its_code(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.scripts[RequestCode.GET_BROKER_RUNTIME_INFO] = lambda command: command.response(
        ResponseCode.NO_PERMISSION, "no"
    )
    async with open_admin(NAMESRV, cluster_config=cluster.config) as admin:
        with pytest.raises(CommandError) as caught:
            await admin.runtime_info(broker.address)
    assert caught.value.code == ResponseCode.NO_PERMISSION
