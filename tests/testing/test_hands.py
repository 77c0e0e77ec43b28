"""Each hand does what its name says, and the cluster recovers."""

from __future__ import annotations

import pytest
import trio

from trioha.client import Message, ProducerConfig, SendStatus
from trioha.errors import TriohaError
from trioha.testing import HandFailed, open_cluster, run_on_virtual_time

pytestmark = pytest.mark.trio(run=run_on_virtual_time)
SETS = pytest.mark.parametrize("layout", ["pair", "three", "raft"])
LOST_SLAVE = (SendStatus.SLAVE_NOT_AVAILABLE, SendStatus.FLUSH_SLAVE_TIMEOUT)


@SETS
@pytest.mark.parametrize("hand", ["restart", "kill", "stop", "wipe", "power_loss", "pause"])
async def test_a_struck_follower_gets_in_sync_again(layout: str, hand: str) -> None:
    async with open_cluster(layout) as cluster:
        master = await cluster.master_of()
        follower = next(broker for broker in cluster.brokers if broker is not master)
        async with cluster.load("T") as load:
            await load.more(20)
            await getattr(follower, hand)()
            await load.more(20)
            if hand == "pause":
                await follower.resume()
            elif hand != "restart":
                assert not follower.is_up
                await follower.start()
            await load.more(20)
        await cluster.assert_stores_equal()
        await cluster.assert_nothing_lost(load.sent)


@SETS
async def test_a_master_that_lost_power_loses_nothing_that_was_safe(layout: str) -> None:
    async with open_cluster(layout) as cluster:
        async with cluster.load("T") as load:
            await load.more(30)
            master = await cluster.master_of()
            await master.power_loss()
            await master.start()
            await cluster.fail_over()
            await load.more(30)
        await cluster.assert_stores_equal()
        await cluster.assert_nothing_lost(load.safe)


async def test_a_single_broker_that_lost_power_lacks_what_was_not_flushed() -> None:
    async with open_cluster("single", settings={"flushIntervalCommitLog": 1000}) as cluster:
        async with cluster.producer() as producer:
            flushed = await producer.send(Message("T", b"flushed"))
            await trio.sleep(5)
            await producer.send(Message("T", b"not yet"))
            await cluster.broker().power_loss()
        await cluster.broker().start()
        assert [message.msg_id for message in await cluster.messages("T")] == [flushed.msg_id]


async def test_a_cut_slave_is_not_waited_for_after_a_while() -> None:
    async with open_cluster("pair") as cluster, cluster.producer() as producer:
        cluster.cut("broker-a-0", "broker-a-1")
        assert (await producer.send(Message("T", b"alone"))).status in LOST_SLAVE
        cluster.heal()
        await cluster.wait_in_sync()
        assert (await producer.send(Message("T", b"both"))).status is SendStatus.SEND_OK


async def test_a_cut_of_one_way_lets_the_other_pass() -> None:
    async with open_cluster("pair") as cluster, cluster.producer() as producer:
        await producer.send(Message("T", b"warm"))
        cluster.cut("broker-a-0", "clients", one_way=True)
        with pytest.raises(TriohaError):
            await producer.send(Message("T", b"arrives, and its answer does not"))
        cluster.heal("clients")
        assert len(await cluster.messages("T")) == 2


async def test_a_slow_way_takes_its_time() -> None:
    async with open_cluster("pair") as cluster, cluster.producer() as producer:
        await producer.send(Message("T", b"warm"))
        cluster.slow("broker-a-0", "broker-a-1", latency_s=0.4)
        before_s = trio.current_time()
        assert (await producer.send(Message("T", b"slow"))).status is SendStatus.SEND_OK
        assert 0.8 <= trio.current_time() - before_s < 1.0
        cluster.heal("broker-a-0")
        before_s = trio.current_time()
        await producer.send(Message("T", b"quick"))
        assert trio.current_time() - before_s < 0.1


async def test_a_full_disk_rejects_sends_until_it_has_space() -> None:
    config = ProducerConfig(attempts_max=1)
    async with open_cluster("single") as cluster, cluster.producer(config=config) as producer:
        await producer.send(Message("T", b"before"))
        cluster.broker().disk_full()
        with pytest.raises(TriohaError, match="disk is 100% full"):
            await producer.send(Message("T", b"during"))
        cluster.broker().disk_full(False)
        await trio.sleep(2)
        await producer.send(Message("T", b"after"))
        assert len(await cluster.messages("T")) == 2


async def test_a_broker_whose_fsync_fails_ends() -> None:
    async with open_cluster("pair") as cluster, cluster.producer() as producer:
        master = cluster.broker()
        events = cluster.events()
        master.fail_fsync()
        await producer.send(Message("T", b"safe on the slave"))
        await events.wait_for("node_stopped", node="broker-a-0")
        assert not master.is_up
        await cluster.fail_over(to=1, force=True)
        assert len(await cluster.messages("T")) == 1


async def test_a_planned_failover_and_back() -> None:
    async with open_cluster("three") as cluster:
        events = cluster.events()
        assert await cluster.fail_over(to=2) is cluster.broker("broker-a", 2)
        assert (await events.wait_for("promoted", node="broker-a-2")).fields["epoch"] != 1
        assert await cluster.fail_over(to=0) is cluster.broker("broker-a", 0)


async def test_a_failover_that_is_refused_says_why() -> None:
    async with open_cluster("pair") as cluster:
        await cluster.broker("broker-a", 1).kill()
        with pytest.raises(HandFailed, match="failover of broker-a: refused"):
            await cluster.fail_over(to=1)


async def test_the_leadership_of_a_group_goes_where_the_test_wants_it() -> None:
    async with open_cluster("raft") as cluster:
        leader = await cluster.master_of()
        follower = next(broker for broker in cluster.brokers if broker is not leader)
        assert await cluster.transfer_leadership(to=follower.machine.number) is follower
        with pytest.raises(HandFailed, match="no other member"):
            await cluster.transfer_leadership(to=7)


async def test_clients_go_on_without_a_name_server() -> None:
    async with open_cluster("pair") as cluster:
        async with cluster.load("T") as load:
            await load.more(10)
            await cluster.stop_namesrv()
            await load.more(10)
        await cluster.start_namesrv()
        await trio.sleep(90)
        await cluster.assert_nothing_lost(load.sent)
