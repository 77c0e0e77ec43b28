"""Clusters in this process: layouts, time, and the messages of checks that fail."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from trioha.client import ConsumeFrom, Message, PushConsumerConfig, ReceivedMessage
from trioha.errors import ConfigError, TriohaError
from trioha.testing import (
    LAYOUTS,
    MessageLost,
    NotSeen,
    open_cluster,
    run_on_virtual_time,
)
from trioha.testing.memory_cluster import MemoryCluster

pytestmark = pytest.mark.trio(run=run_on_virtual_time)
DAY_S = 86_400


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_every_layout_takes_and_returns_a_message(layout: str) -> None:
    async with open_cluster(layout) as cluster, cluster.producer() as producer:
        sent = [await producer.send(Message("T", b"%d" % number)) for number in range(4)]
        assert len(await cluster.consume("T")) == 4
        await cluster.assert_nothing_lost(sent)


async def test_a_table_of_nodes_is_a_layout() -> None:
    rows = [("one", 0, "SYNC_MASTER"), ("one", 5, "SLAVE"), ("two", 0, "ASYNC_MASTER")]
    async with open_cluster(rows, settings={"brokerClusterName": "C"}) as cluster:
        assert [broker.label for broker in cluster.brokers] == ["one-0", "two-0", "one-5"]
        async with cluster.admin() as admin:
            info = await admin.cluster_info()
        assert sorted(info.cluster_addr_table["C"]) == ["one", "two"]
        assert await cluster.master_of("one") is cluster.broker("one", 0)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("pear", "single, pair, three"),
        ([], "at least one"),
        ([("a", 0, "SLAVE"), ("a", 0, "SLAVE")], "only once"),
    ],
)
async def test_what_is_no_layout_is_refused_with_the_cure(layout: str, words: str) -> None:
    with pytest.raises(TriohaError, match=words):
        async with open_cluster(layout):
            raise AssertionError("it opened")


async def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="slaveTimeOut"):
        async with open_cluster("pair", settings={"slaveTimeOuts": 1}):
            raise AssertionError("it opened")


async def test_an_exception_of_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_cluster("pair"):
            raise ZeroDivisionError


async def test_stores_are_kept_where_the_test_wants_them(tmp_path: Path) -> None:
    async with open_cluster("single", root=tmp_path) as cluster, cluster.producer() as producer:
        await producer.send(Message("T", b"kept"))
    async with open_cluster("single", root=tmp_path) as cluster:
        assert [message.body for message in await cluster.messages("T")] == [b"kept"]


async def test_redeliveries_pass_at_once() -> None:
    """A message that fails 6 times is redelivered over ten minutes, and then in the DLQ."""

    async def refuse(message: ReceivedMessage) -> None:
        attempts.append(trio.current_time())
        raise ValueError("poison")

    attempts: list[float] = []
    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST, reconsume_times_max=6)
    async with open_cluster("pair") as cluster, cluster.producer() as producer:
        await producer.send(Message("T", b"poison"))
        async with cluster.consumer("T", refuse, group="G", config=config):
            await trio.sleep(800)
        assert [message.body for message in await cluster.messages("%DLQ%G")] == [b"poison"]
    assert [round(one - attempts[0]) for one in attempts] == [0, 10, 40, 100, 220, 400, 640]


async def test_a_cluster_in_real_time_runs_too() -> None:
    async def script() -> None:
        async with open_cluster("pair") as cluster, cluster.producer() as producer:
            sent = [await producer.send(Message("T", b"now"))]
            await cluster.assert_nothing_lost(sent)

    await trio.to_thread.run_sync(lambda: trio.run(script))


@pytest.mark.release
async def test_a_day_of_heartbeats_passes() -> None:
    async with open_cluster("pair") as cluster:
        await trio.sleep(DAY_S)
        await cluster.wait_in_sync()
        lost = [event for event in cluster.timeline.events if event.name == "ha_disconnected"]
        assert not lost


# The messages that a failing test gets.


async def test_a_lost_message_is_named_with_the_brokers_that_lack_it() -> None:
    async with open_cluster("pair") as cluster, cluster.producer() as producer:
        await cluster.broker("broker-a", 1).stop()
        sent = await producer.send(Message("T", b"only here"))
        await cluster.broker("broker-a", 1).start()
        await cluster.wait_in_sync()
        cluster.cut("broker-a-0", "broker-a-1")
        alone = await producer.send(Message("T", b"on the master alone"))
        await cluster.broker("broker-a", 0).kill()
        await cluster.fail_over(to=1, force=True)
        with pytest.raises(MessageLost) as caught:
            await cluster.assert_nothing_lost([sent, alone])
        text = str(caught.value)
        assert "1 of 2 messages are missing" in text
        assert alone.msg_id in text
        assert "b'on the master alone'" in text
        assert "held by broker-a-0 at" in text
        assert "lacking at broker-a-1" in text
        assert "broker-a-1: MASTER in epoch" in text
        assert "broker-a-0: down" in text
        assert "cut a=broker-a-0 b=broker-a-1" in text


@pytest.mark.parametrize("forgets", [False, True], ids=["as it should", "mutant"])
async def test_an_application_that_forgets_a_retry_is_caught(forgets: bool) -> None:
    """The mutant swallows the error of the second attempt in place of raising it."""
    handled: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"order 3" and message.reconsume_times < 2:
            if forgets and message.reconsume_times == 1:
                return
            raise ValueError("the database is away")
        handled.append(message)

    async with open_cluster("pair") as cluster, cluster.producer() as producer:
        sent = [await producer.send(Message("T", b"order %d" % number)) for number in range(5)]
        async with cluster.consumer("T", handle, group="G"):
            await trio.sleep(120)
            await cluster.wait_level("G")
        if not forgets:
            await cluster.assert_nothing_lost(sent, handled=handled)
            return
        with pytest.raises(MessageLost) as caught:
            await cluster.assert_nothing_lost(sent, handled=handled)
    text = str(caught.value)
    assert sent[3].msg_id in text
    assert "b'order 3'" in text
    assert "did not handle it; handed back: %RETRY%G attempt 1" in text


async def test_an_event_that_does_not_come_is_told_with_those_that_did() -> None:
    async with open_cluster("pair") as cluster:
        with pytest.raises(NotSeen, match=r"(?s)no event promoted epoch=2 within 5 s.*epoch_began"):
            await cluster.events().wait_for("promoted", epoch=2, within_s=5)
        with pytest.raises(TriohaError, match="no event has the name promotion"):
            await cluster.events().wait_for("promotion")


async def test_a_load_that_gets_no_answer_tells_the_last_failures() -> None:
    async with open_cluster("single") as cluster, cluster.load("T") as load:
        await load.more(5)
        await cluster.broker().kill()
        with pytest.raises(NotSeen, match="of 5 more messages were not stored within 10 s"):
            await load.more(5, within_s=10)


async def test_a_broker_that_is_not_there_is_refused_with_those_that_are() -> None:
    async with open_cluster("pair") as cluster:
        assert isinstance(cluster, MemoryCluster)
        with pytest.raises(TriohaError, match=r"\(broker-a, 0\), \(broker-a, 1\)"):
            cluster.broker("broker-b", 0)
        with pytest.raises(TriohaError, match="broker-a-0, broker-a-1, namesrv, clients, operator"):
            cluster.cut("broker-b-0")


async def test_a_group_that_consumes_orders_its_own_patience() -> None:
    async with open_cluster("single") as cluster:
        with pytest.raises(TriohaError, match="name the topic"):
            await cluster.wait_level("G")
        config = PushConsumerConfig()
        async with cluster.consumer("T", group="G", config=config):
            with pytest.raises(NotSeen, match="group G did not consume all within 3 s"):
                await cluster.wait_level("G", within_s=3)
