"""Whole brokers that change roles under clients: real stores, real sockets on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgpack
import trio

from trioha.client import Message, open_admin, open_producer, open_push_consumer
from trioha.client.cluster import Cluster, ClusterConfig, open_cluster
from trioha.client.failover import audit_records, new_order, run_failover
from trioha.client.message import SendStatus
from trioha.client.producer import Producer
from trioha.config import BrokerConfig, BrokerRole, NamesrvConfig
from trioha.failover.outcome import Outcome, Result
from trioha.remoting.connection import RemotingConnection
from trioha.services.broker import serve_broker
from trioha.services.loop.clock import Clock
from trioha.services.namesrv.server import serve_namesrv
from trioha.services.node.listeners import BrokerAddresses
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import ExtValue, RemotingCommand, encode

BROKER = "broker-a"
SEGMENT_BYTES = 1 << 20


@attrs.define(eq=False)
class Pair:
    """A name server and two brokers, each with its own store below `root`."""

    root: Path
    nursery: trio.Nursery
    namesrv: str = ""
    addresses: dict[int, BrokerAddresses] = attrs.Factory(dict)
    shutdowns: dict[int, trio.Event] = attrs.Factory(dict)
    stopped: dict[int, trio.Event] = attrs.Factory(dict)
    events: dict[int, RecordedEvents] = attrs.Factory(dict)

    async def start_broker(self, broker_id: int) -> None:
        old = self.addresses.get(broker_id)
        config = BrokerConfig(
            broker_id=broker_id,
            broker_role=BrokerRole.SLAVE if broker_id else BrokerRole.SYNC_MASTER,
            store_path_root_dir=str(self.root / str(broker_id)),
            store_path_commit_log=str(self.root / str(broker_id) / "commitlog"),
            mapped_file_size_commit_log=SEGMENT_BYTES,
            max_message_size=1 << 16,
            max_hash_slot_num=100,
            max_index_num=400,
            bind_address="127.0.0.1",
            listen_port=0 if old is None else parse_address(old.listen)[1],
            ha_listen_port=0 if old is None else parse_address(old.ha_listen)[1],
            admin_http_enable=False,
            vip_channel=False,
            namesrv_addr=self.namesrv,
            ha_reconnect_interval=100,
        )
        events, shutdown = RecordedEvents(), trio.Event()
        self.events[broker_id], self.shutdowns[broker_id] = events, shutdown
        stopped = self.stopped[broker_id] = trio.Event()

        async def serve(*, task_status: trio.TaskStatus[BrokerAddresses]) -> None:
            await serve_broker(config, shutdown, events, task_status=task_status)
            stopped.set()

        self.addresses[broker_id] = await self.nursery.start(serve)

    async def stop_broker(self, broker_id: int) -> None:
        self.shutdowns[broker_id].set()
        await self.stopped[broker_id].wait()

    def log_of(self, broker_id: int) -> bytes:
        folder = self.root / str(broker_id) / "commitlog"
        return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


@asynccontextmanager
async def running_pair(root: Path) -> AsyncIterator[Pair]:
    """Run both brokers, the slave in sync."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            pair, stop = Pair(root, nursery), trio.Event()
            config = NamesrvConfig(
                bind_address="127.0.0.1",
                listen_port=0,
                admin_http_enable=False,
                kv_config_path=str(root / "kv.json"),
            )
            namesrv = await nursery.start(partial(serve_namesrv, config, stop, RecordedEvents()))
            pair.namesrv = namesrv.listen
            for broker_id in (0, 1):
                await pair.start_broker(broker_id)
            await in_sync(pair)
            yield pair
            for shutdown in pair.shutdowns.values():
                shutdown.set()
            stop.set()


async def in_sync(pair: Pair) -> None:
    """Wait until some node has a slave that is in sync. Not ideal: it polls, as no event tells."""
    while True:
        for addresses in pair.addresses.values():
            links = (await status_of(addresses.listen))["connections"]
            if any(link["in_sync"] for link in links):
                return
        await trio.sleep(0.02)


async def status_of(address: str) -> Mapping[str, Any]:
    async with open_remoting_client(*parse_address(address), Clock()) as client:
        response = await client.request(RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
        status: Mapping[str, Any] = msgpack.unpackb(response.body_bytes(), strict_map_key=False)
        return status


@asynccontextmanager
async def operator_of(pair: Pair) -> AsyncIterator[Cluster]:
    async with open_cluster(pair.namesrv, ClusterConfig(request_timeout_s=2)) as cluster:
        yield cluster


async def failover(pair: Pair, to: int) -> Outcome:
    async with operator_of(pair) as cluster:
        return await run_failover(cluster, new_order(cluster, BROKER, to=to))


async def step(client: RemotingClient, code: RequestCode, **fields: object) -> dict[str, Any]:
    body = msgpack.packb({"ticket_id": "ab" * 8, **fields})
    response = await client.request(RemotingCommand(code, body=body))
    assert response.code == ResponseCode.SUCCESS, response.remark
    told: dict[str, Any] = msgpack.unpackb(response.body_bytes(), strict_map_key=False)
    return told


async def take_ticket(client: RemotingClient, ttl_ms: int = 30_000) -> None:
    await step(
        client,
        RequestCode.FAILOVER_TICKET,
        broker_name=BROKER,
        operator="anna@ops",
        ttl_ms=ttl_ms,
    )


def send(topic: str = "T", opaque: int = 0) -> RemotingCommand:
    fields: dict[str, ExtValue] = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": 1, "f": 0}
    more: dict[str, ExtValue] = {"g": 1000, "h": 0, "i": ""}
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, {**fields, **more}, b"hello", opaque)


async def test_producers_go_on_through_switches_and_queue_offsets_neither_jump_nor_repeat(
    tmp_path: Path,
) -> None:
    offsets: dict[int, list[int]] = {}
    async with running_pair(tmp_path) as pair:
        enough = trio.Event()

        async def produce(producer: Producer) -> None:
            while not enough.is_set():
                result = await producer.send(Message("T", b"x" * 100))
                assert result.status is SendStatus.SEND_OK
                offsets.setdefault(result.queue.queue_id, []).append(result.queue_offset)

        async with open_producer(pair.namesrv) as producer, trio.open_nursery() as nursery:
            await producer.send(Message("T", b"first"))
            for _ in range(4):
                nursery.start_soon(produce, producer)
            for to in (1, 0, 1):
                await trio.sleep(0.2)
                outcome = await failover(pair, to)
                assert outcome.result is Result.DONE, outcome.message
                await in_sync(pair)
            enough.set()
        async with operator_of(pair) as cluster:
            records, silent = await audit_records(cluster, BROKER)
        assert [record["plan"]["target"]["home_id"] for record in records] == [1, 0, 1]
        assert silent == []
        async with open_admin(pair.namesrv) as admin:
            ends = {queue.queue_id: end for queue, (_, end) in (await admin.offsets("T")).items()}
    for queue_id, got in offsets.items():
        assert len(set(got)) == len(got), "a repeat"
        assert ends[queue_id] - len(got) in (0, 1), "a gap, but for the first message"
    assert pair.log_of(0) == pair.log_of(1)


async def test_consumers_and_delayed_messages_survive_a_switch(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        received: list[bytes] = []
        async with open_producer(pair.namesrv) as producer:
            await producer.send(Message("T", b"before"))
        async with (
            open_producer(pair.namesrv) as producer,
            open_push_consumer(pair.namesrv, "G", {"T": "*"}) as consumer,
        ):
            await producer.send(Message("T", b"delayed", delay_level=1))
            outcome = await failover(pair, 1)
            assert outcome.result is Result.DONE, outcome.message
            await producer.send(Message("T", b"after"))
            async for message in consumer:
                received.append(message.body)
                if set(received) == {b"before", b"delayed", b"after"}:
                    break
    assert received.count(b"delayed") == 1


async def test_puts_that_were_parked_are_stored_when_nothing_comes_of_the_switch(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as pair:
        host, port = parse_address(pair.addresses[0].listen)
        async with (
            open_remoting_client(host, port, Clock()) as operator,
            open_remoting_client(host, port, Clock()) as client,
        ):
            await client.request(send())
            await take_ticket(operator)
            paused = await step(operator, RequestCode.PAUSE_WRITES, pause_ms=400)
            before_s = trio.current_time()
            answers: list[RemotingCommand] = []

            async def put() -> None:
                answers.append(await client.request(send()))

            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(put)
                told = await status_of(pair.addresses[0].listen)
                assert told["max_phy_offset"] == paused["max_phy_offset"]
                assert told["ticket"]["operator"] == "anna@ops"
            assert trio.current_time() - before_s >= 0.3
            assert [answer.code for answer in answers] == [0, 0, 0]
            assert sorted(answer.ext_int("queueOffset") for answer in answers) == [1, 2, 3]
        assert "writes_resumed" in pair.events[0].names()


async def test_a_broker_that_ends_in_the_middle_of_a_switch_tells_who_is_parked(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as pair:
        host, port = parse_address(pair.addresses[0].listen)
        async with (
            open_remoting_client(host, port, Clock()) as operator,
            open_remoting_client(host, port, Clock()) as client,
        ):
            await take_ticket(operator)
            await step(operator, RequestCode.PAUSE_WRITES, pause_ms=20_000)
            answers: list[RemotingCommand] = []

            async def put() -> None:
                answers.append(await client.request(send()))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(put)
                await wait_parked(operator)
                pair.shutdowns[0].set()
            assert answers[0].code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "shutting down" in (answers[0].remark or "")


async def wait_parked(client: RemotingClient) -> None:
    """Wait until a put is parked. Not ideal: no event tells, so it asks, pausing again."""
    while True:
        if (await step(client, RequestCode.PAUSE_WRITES, pause_ms=20_000))["puts_parked"]:
            return
        await trio.sleep(0.01)


async def test_who_handed_over_and_hears_nothing_more_asks_the_target_and_goes_on(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as pair:
        master, target = pair.addresses[0], pair.addresses[1]
        async with (
            open_remoting_client(*parse_address(master.listen), Clock()) as operator,
            open_remoting_client(*parse_address(master.listen), Clock()) as client,
        ):
            await take_ticket(operator, ttl_ms=500)
            await step(operator, RequestCode.PAUSE_WRITES, pause_ms=400)
            told = await step(
                operator,
                RequestCode.HAND_OVER,
                epoch=2,
                home_id=1,
                address=target.listen,
                ha_address=target.ha_listen,
            )
            assert told["standing"] == "FENCED"
            answer = await client.request(send())
            assert answer.ext_int("queueOffset") == 0, "parked, and stored when it went on"
        status = await status_of(master.listen)
        assert (status["standing"], status["epoch"], status["role"]) == ("MASTER", 1, "SYNC_MASTER")
        assert (await status_of(target.listen))["standing"] == "SLAVE"


async def test_a_target_that_hangs_up_or_answers_nonsense_is_asked_again(tmp_path: Path) -> None:
    asked = 0

    async def serve_at_last(stream: trio.SocketStream) -> None:
        nonlocal asked
        asked += 1
        async with stream:
            if asked == 1:
                await stream.receive_some(1)
            elif asked == 2:
                question = await receive(stream)
                await stream.send_all(encode(question.response(body=b"\x81\x90\x01")))
                await stream.receive_some(1)
            else:
                async with await trio.open_tcp_stream(*parse_address(target.listen)) as onward:
                    await pipe(stream, onward)

    async with running_pair(tmp_path) as pair, trio.open_nursery() as nursery:
        master, target = pair.addresses[0], pair.addresses[1]
        serve = partial(trio.serve_tcp, serve_at_last, 0, host="127.0.0.1")
        (between,) = await nursery.start(serve)
        async with (
            open_remoting_client(*parse_address(master.listen), Clock()) as operator,
            open_remoting_client(*parse_address(master.listen), Clock()) as client,
        ):
            await take_ticket(operator, ttl_ms=500)
            await step(operator, RequestCode.PAUSE_WRITES, pause_ms=400)
            await step(
                operator,
                RequestCode.HAND_OVER,
                epoch=2,
                home_id=1,
                address=f"127.0.0.1:{between.socket.getsockname()[1]}",
                ha_address=target.ha_listen,
            )
            answer = await client.request(send())
            assert answer.ext_int("queueOffset") == 0, "parked, and stored when it went on"
        assert asked == 3
        assert (await status_of(master.listen))["standing"] == "MASTER"
        nursery.cancel_scope.cancel()


async def receive(stream: trio.SocketStream) -> RemotingCommand:
    machine = RemotingConnection()
    while (command := machine.next_command()) is NEED_DATA:
        machine.receive_data(bytes(await stream.receive_some()))
    return command


async def pipe(one: trio.SocketStream, other: trio.SocketStream) -> None:
    """Copy both ways, until either end closes."""
    async with trio.open_nursery() as nursery:

        async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
            async for piece in source:
                await sink.send_all(piece)
            nursery.cancel_scope.cancel()

        nursery.start_soon(copy, one, other)
        nursery.start_soon(copy, other, one)


async def test_requests_by_an_old_route_are_forwarded_to_the_new_master(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as pair:
        old = pair.addresses[0].listen
        async with open_remoting_client(*parse_address(old), Clock()) as client:
            assert (await client.request(send())).code == ResponseCode.SUCCESS
            outcome = await failover(pair, 1)
            assert outcome.result is Result.DONE, outcome.message
            answers = [await client.request(send()) for _ in range(3)]
            assert [answer.code for answer in answers] == [0, 0, 0]
            assert [answer.ext_int("queueOffset") for answer in answers] == [1, 2, 3]
            commit = RemotingCommand(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {"consumerGroup": "G", "topic": "T", "queueId": 1, "commitOffset": 3},
            )
            assert (await client.request(commit)).code == ResponseCode.SUCCESS
            # This commit may be the older one, late on its way: no group is rewound like this.
            commit.ext_fields["commitOffset"] = 2
            assert (await client.request(commit)).code == ResponseCode.SERVICE_NOT_AVAILABLE
            routes = (await status_of(old))["forwarding"]
            assert routes["master"] == pair.addresses[1].listen
            assert (routes["forwarded_total"], routes["clients"]) == (5, 1)
        new = pair.addresses[1].listen
        async with open_remoting_client(*parse_address(new), Clock()) as client:
            query = RemotingCommand(
                RequestCode.QUERY_CONSUMER_OFFSET,
                {"consumerGroup": "G", "topic": "T", "queueId": 1},
            )
            assert (await client.request(query)).ext_int("offset") == 3


async def test_a_master_that_was_replaced_while_it_was_away_comes_back_as_a_slave(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as pair:
        async with open_remoting_client(
            *parse_address(pair.addresses[0].listen), Clock()
        ) as client:
            await client.request(send())
        await pair.stop_broker(0)
        async with operator_of(pair) as cluster:
            outcome = await run_failover(cluster, new_order(cluster, BROKER))
        assert outcome.result is Result.DONE, outcome.message
        await pair.start_broker(0)
        await in_sync(pair)
        told = await status_of(pair.addresses[0].listen)
        assert (told["standing"], told["epoch"], told["id"]) == ("SLAVE", 3, 1)
        assert told["follows"] == pair.addresses[1].listen
        assert (await status_of(pair.addresses[1].listen))["id"] == 0
    assert pair.log_of(0) == pair.log_of(1)
