"""Sends: what is retried, what is reported, and that unknown is never called refused."""

from __future__ import annotations

import pytest
import trio
from support.fakes.cluster import FakeBroker, FakeCluster, Script

from trioha.client import (
    Message,
    MessageQueue,
    NoRoute,
    SendOutcomeUnknown,
    SendRefused,
    SendStatus,
    open_producer,
)
from trioha.errors import TriohaError, Unreachable
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.trio(run=run_on_virtual_time)

SEND = RequestCode.SEND_MESSAGE_V2
NAMESRV = "127.0.0.1:9876"
HELLO = Message("T", b"hello")


def refuse(code: ResponseCode) -> Script:
    return lambda command: command.response(code, "no")


def answer(code: ResponseCode) -> Script:
    return lambda command: command.response(
        code, ext_fields={"msgId": "X", "queueId": "1", "queueOffset": "7"}
    )


async def test_a_send_returns_where_the_message_lies(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        result = await producer.send(Message("T", b"hello", "A"))
    assert result.status is SendStatus.SEND_OK
    assert result.queue_offset == 0
    (stored,) = decode_records(broker.queues["T", result.queue.queue_id][0])
    assert (stored.body, stored.tags) == (b"hello", "A")
    assert stored.properties["UNIQ_KEY"] == result.msg_id


async def test_queues_take_turns_over_all_brokers(cluster: FakeCluster, broker: FakeBroker) -> None:
    other = cluster.add_broker("b")
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        queues = {(await producer.send(HELLO)).queue for _ in range(4)}
    assert len(queues) == 4
    assert len(broker.asked(SEND)) == len(other.asked(SEND)) == 2


async def test_a_sharding_key_keeps_to_one_queue(cluster: FakeCluster, broker: FakeBroker) -> None:
    cluster.add_broker("b")
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        assert len({(await producer.send(HELLO, key="order-7")).queue for _ in range(5)}) == 1


async def test_the_chosen_queue_is_used(cluster: FakeCluster, broker: FakeBroker) -> None:
    queue = MessageQueue("T", "a", 1)
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        assert {(await producer.send(HELLO, queue=queue)).queue for _ in range(3)} == {queue}


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ],
)
async def test_stored_with_a_caveat_is_a_result_and_not_an_error(
    cluster: FakeCluster, broker: FakeBroker, code: ResponseCode
) -> None:
    broker.scripts[SEND] = answer(code)
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        result = await producer.send(HELLO)
    assert (result.status.name, result.queue_offset) == (code.name, 7)
    assert len(broker.asked(SEND)) == 1


async def test_a_refusal_of_the_message_itself_is_not_tried_again(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.scripts[SEND] = refuse(ResponseCode.MESSAGE_ILLEGAL)
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(SendRefused, match="a refused the message: no") as caught:
            await producer.send(HELLO)
    assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert len(broker.asked(SEND)) == 1


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
    ],
)
async def test_a_refusal_by_one_broker_is_tried_at_another(
    cluster: FakeCluster, broker: FakeBroker, code: ResponseCode
) -> None:
    broker.scripts[SEND] = refuse(code)
    cluster.add_broker("b")
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        for _ in range(4):
            assert (await producer.send(HELLO)).queue.broker_name == "b"


@pytest.mark.parametrize("code", [ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION])
async def test_a_broker_that_is_master_no_more_makes_the_producer_ask_for_the_route(
    cluster: FakeCluster, broker: FakeBroker, code: ResponseCode
) -> None:
    """A planned switch: waiting for the next round of route questions would take 30 s."""
    slave = cluster.add_broker("a", 1)

    def hand_over(command: RemotingCommand) -> RemotingCommand:
        cluster.namesrv.brokers["a"] = {0: slave.address, 1: broker.address}
        return command.response(code, "handed over")

    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        assert (await producer.send(HELLO)).status is SendStatus.SEND_OK
        broker.scripts[SEND] = hand_over
        assert (await producer.send(HELLO)).status is SendStatus.SEND_OK
    assert (len(broker.asked(SEND)), len(slave.asked(SEND))) == (2, 1)


async def test_attempts_are_bounded(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.scripts[SEND] = refuse(ResponseCode.SYSTEM_BUSY)
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(SendRefused):
            await producer.send(HELLO)
    assert len(broker.asked(SEND)) == 3


async def test_a_connection_that_breaks_is_tried_at_another_broker(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    other = cluster.add_broker("b")

    def crash(command: RemotingCommand) -> None:
        broker.crash()

    broker.scripts[SEND] = crash
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        for _ in range(4):
            assert (await producer.send(HELLO)).queue.broker_name == "b"
    assert len(other.asked(SEND)) == 4


async def test_a_connection_that_breaks_and_nobody_else_leaves_the_outcome_unknown(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Fault D8, as the client tells it."""

    def crash(command: RemotingCommand) -> None:
        broker.crash()

    broker.scripts[SEND] = crash
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(SendOutcomeUnknown) as caught:
            await producer.send(HELLO)
    assert len(caught.value.msg_id) == 32


async def test_a_later_refusal_does_not_hide_that_an_attempt_may_have_been_stored(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    def disconnect(command: RemotingCommand) -> None:
        broker.disconnect()
        broker.scripts[SEND] = refuse(ResponseCode.SYSTEM_BUSY)

    broker.scripts[SEND] = disconnect
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(SendOutcomeUnknown):
            await producer.send(HELLO)
    assert len(broker.asked(SEND)) == 3


async def test_a_silent_broker_leaves_the_outcome_unknown_and_is_not_tried_again(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.scripts[SEND] = lambda command: None
    cluster.add_broker("b").scripts[SEND] = lambda command: None
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        begin_s = trio.current_time()
        with pytest.raises(SendOutcomeUnknown, match="did not answer within 6 s"):
            await producer.send(HELLO)
        assert trio.current_time() - begin_s == pytest.approx(6.0)


async def test_a_broker_that_never_took_the_request_is_unreachable_and_not_unknown(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.down = True
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(Unreachable):
            await producer.send(HELLO)


async def test_a_topic_whose_brokers_have_no_master_has_no_route(cluster: FakeCluster) -> None:
    cluster.add_broker("a", 1)
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(NoRoute, match="no broker takes messages of topic T now"):
            await producer.send(HELLO)


async def test_sends_go_on_as_soon_as_the_name_server_lists_a_master_again(
    cluster: FakeCluster,
) -> None:
    cluster.add_broker("a", 1)
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(NoRoute):
            await producer.send(HELLO)
        cluster.add_broker("a", 0)
        with pytest.raises(NoRoute):
            await producer.send(HELLO)  # this one asks again
        assert (await producer.send(HELLO)).status is SendStatus.SEND_OK


async def test_a_new_topic_borrows_the_route_of_the_default_topic(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    cluster.namesrv.topics["TBW102"] = 8
    new = Message("New", b"x")
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        await producer.send(new)
        assert len(await producer.queues("New")) == 4
        cluster.namesrv.topics["New"] = 2
        await trio.sleep(1.1)
        assert len(await producer.queues("New")) == 2


async def test_an_unknown_topic_without_a_default_topic_has_no_route(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(NoRoute, match="no broker creates topics on send"):
            await producer.send(Message("New", b"x"))


async def test_known_routes_are_asked_for_again_every_30_s(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        await producer.send(HELLO)
        other = cluster.add_broker("b")
        await trio.sleep(30.5)
        for _ in range(4):
            await producer.send(HELLO)
    assert other.asked(SEND)


async def test_a_name_server_that_is_away_does_not_stop_sends_to_known_topics(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        await producer.send(HELLO)
        cluster.namesrv.crash()
        await trio.sleep(100)
        assert (await producer.send(HELLO)).status is SendStatus.SEND_OK


async def test_oneway_sends_await_no_answer(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.scripts[SEND] = lambda command: None
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        assert len(await producer.send_oneway(HELLO)) == 32
        await trio.testing.wait_all_tasks_blocked()
    (command,) = broker.asked(SEND)
    assert command.is_oneway


async def test_a_batch_is_one_request_into_one_queue(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    batch = [Message("T", b"%d" % number) for number in range(3)]
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        result = await producer.send_batch(batch)
    assert len(result.msg_id.split(",")) == 3
    assert len(broker.queues["T", result.queue.queue_id]) == 3
    assert len(broker.asked(RequestCode.SEND_BATCH_MESSAGE)) == 1


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [Message("T", b""), Message("U", b"")],
        [Message("T", b"", delay_level=1)],
    ],
)
async def test_a_batch_no_broker_takes_is_not_sent(
    cluster: FakeCluster, broker: FakeBroker, batch: list[Message]
) -> None:
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(TriohaError):
            await producer.send_batch(batch)
    assert not broker.requests


async def test_a_body_the_broker_would_not_take_is_not_sent(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        with pytest.raises(SendRefused, match="exceeds 4194304"):
            await producer.send(Message("T", bytes((4 << 20) + 1)))
    assert not broker.requests


async def test_the_callers_own_unique_key_is_kept(cluster: FakeCluster, broker: FakeBroker) -> None:
    message = Message("T", b"x", properties={"UNIQ_KEY": "mine"})
    async with open_producer(NAMESRV, cluster_config=cluster.config) as producer:
        assert (await producer.send(message)).msg_id == "mine"


async def test_brokers_hear_a_heartbeat_on_connecting_every_30_s_and_a_farewell(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async with open_producer(NAMESRV, group="PG", cluster_config=cluster.config) as producer:
        await producer.send(HELLO)
        assert broker.requests[0].code == RequestCode.HEART_BEAT
        await trio.sleep(65)
        assert len(broker.asked(RequestCode.HEART_BEAT)) == 3
    assert broker.requests[-1].code == RequestCode.UNREGISTER_CLIENT
    assert broker.requests[-1].ext_str("producerGroup") == "PG"
