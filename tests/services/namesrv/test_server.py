"""A name server on loopback sockets; where time matters, the test moves the clock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from support.handlers.namesrv import MASTER, register_request, route_request
from trio.testing import MockClock

from trioha.config import NamesrvConfig
from trioha.errors import StoreError, TriohaError
from trioha.services.loop.clock import Clock
from trioha.services.namesrv.server import serve_namesrv
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand, encode

PUT: dict[str, ExtValue] = {"namespace": "ns", "key": "k", "value": "v"}


class Node:
    def __init__(self, config: NamesrvConfig) -> None:
        self.config = config
        self.events = RecordedEvents()
        self.shutdown = trio.Event()
        self.address = ""
        self.admin_http = ""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[RemotingClient]:
        async with open_remoting_client(*parse_address(self.address), Clock.virtual()) as client:
            yield client

    def kv_file(self) -> dict[str, dict[str, dict[str, str]]]:
        data: dict[str, dict[str, dict[str, str]]] = json.loads(
            Path(self.config.kv_config_path).read_bytes()
        )
        return data

    async def wait_event(self, name: str) -> dict[str, object]:
        """Let the node's tasks run until the event is there; return it."""
        while name not in self.events.names():
            await trio.lowlevel.checkpoint()
        return self.events.of(name)[-1]


@asynccontextmanager
async def open_node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(
        NamesrvConfig(
            bind_address="127.0.0.1",
            listen_port=0,
            kv_config_path=str(tmp_path / "namesrv" / "kvConfig.json"),
        )
    )
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(
            lambda task_status: serve_namesrv(
                node.config,
                node.shutdown,
                node.events,
                clock=Clock.virtual(),
                task_status=task_status,
            )
        )
        node.address, node.admin_http = addresses.listen, addresses.admin_http
        yield node
        node.shutdown.set()


async def ask_route(client: RemotingClient) -> int:
    return (await client.request(route_request("T"))).code


async def test_brokers_register_and_clients_find_them(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_node(tmp_path) as node, node.connect() as client:
            assert await ask_route(client) == ResponseCode.TOPIC_NOT_EXIST
            assert (await client.request(register_request())).code == 0
            assert await ask_route(client) == ResponseCode.SUCCESS
            unknown = await client.request(RemotingCommand(217, {"topic": "T"}))
            assert unknown.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            told = {"listen": node.address, "admin_http": node.admin_http}
            assert node.events.of("node_ready") == [told]


async def test_a_broker_is_gone_at_once_when_its_connection_closes(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_node(tmp_path) as node, node.connect() as client:
            async with node.connect() as broker:
                await broker.request(register_request())
                assert await ask_route(client) == ResponseCode.SUCCESS
            fields = await node.wait_event("broker_unregistered")
            assert fields["reason"] == "connection closed"
            assert await ask_route(client) == ResponseCode.TOPIC_NOT_EXIST


async def test_a_broker_that_only_listens_expires_after_120_seconds(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_node(tmp_path) as node, node.connect() as broker:
        await broker.request(register_request())
        for _ in range(4):
            mock_clock.jump(30 - 0.001)
            # It keeps the connection alive, but does not register again.
            assert await ask_route(broker) == ResponseCode.SUCCESS
        mock_clock.jump(0.01)
        fields = await node.wait_event("broker_expired")
        assert fields["address"] == MASTER.address
        async with node.connect() as client:
            assert await ask_route(client) == ResponseCode.TOPIC_NOT_EXIST
        while not broker.closed:
            await trio.lowlevel.checkpoint()


async def test_a_broker_that_registers_every_60_seconds_stays(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with open_node(tmp_path) as node, node.connect() as broker:
        for _ in range(10):
            await broker.request(register_request())
            mock_clock.jump(60)
            assert await ask_route(broker) == ResponseCode.SUCCESS
        assert node.events.of("broker_expired") == []


async def test_a_kv_change_is_on_disk_when_it_is_answered_and_survives(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_node(tmp_path) as node, node.connect() as client:
            response = await client.request(RemotingCommand(RequestCode.PUT_KV_CONFIG, PUT))
            assert response.code == 0
            data = node.kv_file()
            assert data == {"configTable": {"ns": {"k": "v"}}}
        async with open_node(tmp_path) as node, node.connect() as client:
            response = await client.request(RemotingCommand(RequestCode.GET_KV_CONFIG, PUT))
            assert response.ext_fields == {"value": "v"}


async def test_kv_changes_during_a_write_share_the_next_one(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_node(tmp_path) as node, node.connect() as client:
            answers: list[int] = []

            async def put(key: int) -> None:
                fields = PUT | {"key": str(key)}
                request = RemotingCommand(RequestCode.PUT_KV_CONFIG, fields)
                answers.append((await client.request(request)).code)

            async with trio.open_nursery() as nursery:
                for key in range(50):
                    nursery.start_soon(put, key)
            assert answers == [0] * 50
            data = node.kv_file()
            assert len(data["configTable"]["ns"]) == 50


async def test_a_disk_that_takes_no_kv_file_is_told_and_kept_serving(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_node(tmp_path) as node, node.connect() as client:
            # A file where the directory should be: not even root can write below it.
            (tmp_path / "namesrv").write_bytes(b"")
            response = await client.request(RemotingCommand(RequestCode.PUT_KV_CONFIG, PUT))
            assert response.code == ResponseCode.SYSTEM_ERROR
            assert node.events.of("task_failed")
            assert (await client.request(register_request())).code == 0
            (tmp_path / "namesrv").unlink()
        # The last write makes good for it.
        assert (tmp_path / "namesrv" / "kvConfig.json").exists()


async def test_a_kv_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    below_a_file = NamesrvConfig(
        bind_address="127.0.0.1", kv_config_path=str(tmp_path / "file" / "kvConfig.json")
    )
    with pytest.raises(StoreError, match="Not a directory"):
        await serve_namesrv(below_a_file, trio.Event(), RecordedEvents())
    for content in ("{", '{"configTable":5}'):
        (tmp_path / "kvConfig.json").write_text(content)
        config = NamesrvConfig(
            bind_address="127.0.0.1",
            listen_port=0,
            kv_config_path=str(tmp_path / "kvConfig.json"),
        )
        with trio.fail_after(10), pytest.raises(StoreError, match=r"kvConfig\.json"):
            await serve_namesrv(config, trio.Event(), RecordedEvents())


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_node(tmp_path) as node:
            config = NamesrvConfig(
                bind_address="127.0.0.1",
                listen_port=parse_address(node.address)[1],
                kv_config_path=str(tmp_path / "other.json"),
            )
            with pytest.raises(TriohaError, match=node.address):
                await serve_namesrv(config, trio.Event(), RecordedEvents())


async def test_shutdown_closes_connections_and_blames_no_broker(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_node(tmp_path) as node, node.connect() as broker:
            await broker.request(register_request())
            node.shutdown.set()
            while not broker.closed:
                await trio.lowlevel.checkpoint()
        assert node.events.names() == ["node_ready", "broker_registered", "node_stopping"]


async def test_who_still_sends_to_a_name_server_that_stops_reads_an_answer_and_an_end(
    tmp_path: Path,
) -> None:
    """To close over unread bytes would reset the connection."""
    with trio.fail_after(10):
        async with open_node(tmp_path) as node:
            stream = await trio.open_tcp_stream(*parse_address(node.address))
            async with stream:
                ask = encode(route_request("T"))
                await stream.send_all(ask)
                assert await stream.receive_some()
                node.shutdown.set()
                await node.wait_event("node_stopping")
                for _ in range(100):
                    await stream.send_all(ask)
                    await trio.lowlevel.checkpoint()
                while await stream.receive_some():
                    pass
                await stream.send_all(ask)  # it still may


async def test_a_name_server_that_stops_accepts_no_connection(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_node(tmp_path) as node, node.connect():
            node.shutdown.set()
            await node.wait_event("node_stopping")
            late = await trio.open_tcp_stream(*parse_address(node.address))
            async with late:
                with pytest.raises(trio.BrokenResourceError):
                    await late.send_all(encode(route_request("T")))
                    await late.receive_some()


async def test_nonsense_on_one_connection_disturbs_no_other(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_node(tmp_path) as node, node.connect() as broker:
            await broker.request(register_request())
            stream = await trio.open_tcp_stream(*parse_address(node.address))
            async with stream:
                await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
                assert await stream.receive_some() == b""
            assert (await node.wait_event("connection_closed"))["reason"]
            assert await ask_route(broker) == ResponseCode.SUCCESS
