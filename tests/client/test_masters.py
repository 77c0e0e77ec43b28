"""One question asked of every master."""

from __future__ import annotations

import pytest
from support.fakes.cluster import FakeBroker, FakeCluster

from trioha.client.cluster import open_cluster
from trioha.client.masters import ask_masters, masters_of
from trioha.errors import CommandError, TriohaError
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import RequestCode
from trioha.wire.route import BrokerData, ClusterInfo

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

NAMESRV = "127.0.0.1:9876"


@pytest.fixture
def masters(cluster: FakeCluster, broker: FakeBroker) -> FakeCluster:
    """Two masters, one of them with a slave; the third set has a slave alone."""
    info = ClusterInfo(
        {
            "b": BrokerData("C", "b", {0: "b0:10911"}),
            "a": BrokerData("C", "a", {0: "a0:10911", 1: "a1:10911"}),
            "c": BrokerData("C", "c", {1: "c1:10911"}),
        },
        {"C": ("a", "b", "c")},
    )
    cluster.namesrv.scripts[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda command: command.response(
        body=info.encode()
    )
    return cluster


async def test_every_master_is_asked_in_the_order_of_names(masters: FakeCluster) -> None:
    async def ask(address: str) -> str:
        return f"I am {address}"

    async with open_cluster(NAMESRV, masters.config) as client:
        answers = await ask_masters(client, "", ask)
        assert await ask_masters(client, "b", ask) == {"b": "I am b0:10911"}
    assert list(answers.items()) == [("a", "I am a0:10911"), ("b", "I am b0:10911")]


@pytest.mark.parametrize("name", ["c", "nowhere"])
async def test_a_set_without_a_master_is_an_error(masters: FakeCluster, name: str) -> None:
    async with open_cluster(NAMESRV, masters.config) as client:
        with pytest.raises(TriohaError, match=f"no master of {name} is registered"):
            await masters_of(client, name)


@pytest.mark.parametrize(
    ("code", "told"), [(3, "b: b0:10911 is no trioha broker, or an older one"), (1, "b: full")]
)
async def test_an_error_names_the_set(masters: FakeCluster, code: int, told: str) -> None:
    async def ask(address: str) -> None:
        raise CommandError(code, "full")

    async with open_cluster(NAMESRV, masters.config) as client:
        with pytest.raises(CommandError) as refused:
            await ask_masters(client, "b", ask)
    assert (refused.value.code, refused.value.remark) == (code, told)
