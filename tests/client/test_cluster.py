"""Connections and name servers."""

from __future__ import annotations

import pytest
import trio
from support.fakes.cluster import FakeBroker, FakeCluster, FakeNamesrv

from trioha.client.cluster import open_cluster
from trioha.errors import TriohaError, Unreachable
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.trio(run=run_on_virtual_time)


def unlock() -> RemotingCommand:
    """Any request that a fake broker answers without knowing more."""
    return RemotingCommand(RequestCode.UNREGISTER_CLIENT, {"clientID": "c"})


def route_of(topic: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


async def test_requests_at_the_same_time_share_one_connection(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_cluster("127.0.0.1:9876", cluster.config) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(client.request, broker.address, unlock())
        assert cluster.connects == [broker.address]
        assert len(broker.requests) == 10


async def test_a_lost_connection_is_opened_again_by_the_next_request(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_cluster("127.0.0.1:9876", cluster.config) as client:
        await client.request(broker.address, unlock())
        broker.disconnect()
        await trio.testing.wait_all_tasks_blocked()
        await client.request(broker.address, unlock())
        assert cluster.connects == [broker.address] * 2


async def test_a_cancelled_opener_does_not_fail_those_who_wait_with_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_cluster("127.0.0.1:9876", cluster.config) as client:
        with trio.CancelScope() as impatient:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.connection, broker.address)
                await trio.lowlevel.checkpoint()
                impatient.cancel()
        assert not (await client.connection(broker.address)).closed


async def test_nobody_listening_is_unreachable(cluster: FakeCluster) -> None:
    async with open_cluster("127.0.0.1:9876", cluster.config) as client:
        with pytest.raises(Unreachable, match="'nowhere' is not an address"):
            await client.connection("nowhere")
        with pytest.raises(Unreachable, match=r"b0:1.*refused"):
            await client.request("b0:1", unlock())


async def test_silence_is_unreachable_after_the_request_timeout(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.scripts[RequestCode.UNREGISTER_CLIENT] = lambda command: None
    async with open_cluster("127.0.0.1:9876", cluster.config) as client:
        begin_s = trio.current_time()
        with pytest.raises(Unreachable, match="did not answer within 3 s"):
            await client.request(broker.address, unlock())
        assert trio.current_time() - begin_s == pytest.approx(3.0)


async def test_the_name_server_that_answered_last_is_asked_first(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    dead = FakeNamesrv("127.0.0.2:9876")
    dead.down = True
    cluster.add_node(dead)
    async with open_cluster("127.0.0.2:9876;127.0.0.1:9876", cluster.config) as client:
        for _ in range(5):
            await client.ask_namesrv(route_of("T"))
    assert cluster.connects.count("127.0.0.2:9876") <= 1
    assert len(cluster.namesrv.requests) == 5


async def test_when_no_name_server_answers_each_is_named(cluster: FakeCluster) -> None:
    cluster.namesrv.down = True
    async with open_cluster("127.0.0.1:9876;127.0.0.3:9876", cluster.config) as client:
        with pytest.raises(Unreachable, match=r"127.0.0.3:9876.*|127.0.0.1:9876.*") as caught:
            await client.ask_namesrv(route_of("T"))
    assert "127.0.0.1:9876" in str(caught.value)
    assert "127.0.0.3:9876" in str(caught.value)


@pytest.mark.parametrize("text", ["", " ; ", "host", "host:x", "host:99999"])
async def test_a_list_of_name_servers_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(TriohaError):
        async with open_cluster(text):
            pass


async def test_connections_outlive_a_cancelled_block_until_it_is_left(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    with trio.CancelScope() as scope:
        async with open_cluster("127.0.0.1:9876", cluster.config) as client:
            await client.connection(broker.address)
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await client.request(broker.address, unlock())
    assert len(broker.requests) == 1
