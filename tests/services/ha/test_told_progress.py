"""The successor of a killed master knows all progress that the master has told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from trioha.services.loop.transport import parse_address
from trioha.services.remoting.client import RemotingClient, open_remoting_client
from trioha.testing import ClusterBroker, open_cluster
from trioha.testing.memory_cluster import CLIENTS, MemoryCluster
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.trio(run=run_on_virtual_time)
QUEUE = {"consumerGroup": "g", "topic": "T", "queueId": "0"}


@asynccontextmanager
async def speaking_to(
    cluster: MemoryCluster, broker: ClusterBroker
) -> AsyncIterator[RemotingClient]:
    host, port = parse_address(broker.address)
    transport = await cluster.world.network.connect(CLIENTS, host, port)
    async with open_remoting_client(host, port, cluster.world.clock, transport=transport) as client:
        yield client


async def progress(client: RemotingClient) -> int:
    answer = await client.request(RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, {**QUEUE}))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.ext_int("offset")


@pytest.mark.parametrize("layout", ["pair", "raft"])
async def test_a_group_is_where_the_killed_master_said(layout: str) -> None:
    """A one-way commit, as the C++ client sends it, travels while the question is asked."""
    async with open_cluster(layout, seed=1) as cluster:
        assert isinstance(cluster, MemoryCluster)
        async with cluster.admin() as admin:
            await admin.create_topic("T")
        master = await cluster.master_of()
        async with speaking_to(cluster, master) as client:
            commit = RemotingCommand(
                RequestCode.UPDATE_CONSUMER_OFFSET, {**QUEUE, "commitOffset": "7"}
            )
            client.oneway_nowait(commit)
            assert await progress(client) == 7
            await master.kill()
        successor = await cluster.fail_over()
        async with speaking_to(cluster, successor) as client:
            assert await progress(client) == 7
