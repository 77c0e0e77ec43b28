from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import msgpack
import pytest
import trio
from support.events import RecordedEvents

from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import StoreLocked, TriohaError
from trioha.services.broker import serve_broker
from trioha.services.broker_listeners import BrokerAddresses
from trioha.services.clock import Clock
from trioha.services.remoting_client import open_remoting_client, parse_address
from trioha.services.transport import open_listener
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand


def config_in(root: Path, **changes: object) -> BrokerConfig:
    base = BrokerConfig(
        store_path_root_dir=str(root / "store"),
        store_path_commit_log=str(root / "store" / "commitlog"),
        mapped_file_size_commit_log=1 << 20,
        max_message_size=1 << 16,
        max_hash_slot_num=100,
        max_index_num=400,
        bind_address="127.0.0.1",
        listen_port=0,
        ha_listen_port=0,
        vip_channel=False,
    )
    return attrs.evolve(base, **changes)  # type: ignore[arg-type]


@attrs.define(eq=False)
class Running:
    addresses: BrokerAddresses
    events: RecordedEvents
    shutdown: trio.Event


@asynccontextmanager
async def running(config: BrokerConfig) -> AsyncIterator[Running]:
    events, shutdown = RecordedEvents(), trio.Event()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(partial(serve_broker, config, shutdown, events))
            yield Running(addresses, events, shutdown)
            shutdown.set()


def send(body: bytes = b"hello", opaque: int = 0) -> RemotingCommand:
    fields: dict[str, ExtValue] = {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": 4,
        "e": 1,
        "f": 0,
        "g": 1000,
        "h": 0,
    }
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, {**fields, "i": "TAGS\x01A"}, body, opaque)


async def test_a_message_is_stored_told_of_and_still_there_after_a_restart(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with (
        running(config) as broker,
        open_remoting_client(*parse_address(broker.addresses.listen), Clock()) as client,
    ):
        response = await client.request(send())
        assert response.code == ResponseCode.SUCCESS
        assert response.ext_int("queueOffset") == 0
        status = await client.request(RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
        facts = msgpack.unpackb(status.body_bytes())
        assert (facts["role"], facts["put_total"], facts["slave"]) == ("ASYNC_MASTER", 1, None)
        assert facts["max_phy_offset"] > 0
    assert not (tmp_path / "store" / "abort").exists()
    assert b'"T"' in (tmp_path / "store" / "config" / "topics.json").read_bytes()
    async with (
        running(config) as broker,
        open_remoting_client(*parse_address(broker.addresses.listen), Clock()) as client,
    ):
        request = RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 1})
        assert (await client.request(request)).ext_int("offset") == 1


async def test_a_broker_that_stops_refuses_writes_with_a_retriable_code(tmp_path: Path) -> None:
    async with (
        running(config_in(tmp_path)) as broker,
        open_remoting_client(*parse_address(broker.addresses.listen), Clock()) as client,
    ):
        await client.request(send())
        broker.shutdown.set()
        await client.request(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        response = await client.request(send())
        assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "node_stopping" in broker.events.names()[-2:]


async def test_a_sync_master_without_slave_stores_and_says_so_at_once(tmp_path: Path) -> None:
    config = config_in(tmp_path, broker_role=BrokerRole.SYNC_MASTER, slave_timeout=60_000)
    async with (
        running(config) as broker,
        open_remoting_client(*parse_address(broker.addresses.listen), Clock()) as client,
    ):
        response = await client.request(send())
        assert response.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert response.ext_str("msgId")


async def test_a_port_in_use_is_one_clear_error(tmp_path: Path) -> None:
    holder = open_listener("127.0.0.1", 0)
    try:
        with pytest.RaisesGroup(
            pytest.RaisesExc(TriohaError, match=f"cannot listen on 127.0.0.1:{holder.port}"),
            flatten_subgroups=True,
            allow_unwrapped=True,
        ):
            async with running(config_in(tmp_path, listen_port=holder.port)):
                pass
    finally:
        holder.close()
    assert not (tmp_path / "store").exists()


async def test_a_store_in_use_is_one_clear_error(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with running(config):
        with pytest.RaisesGroup(StoreLocked, flatten_subgroups=True, allow_unwrapped=True):
            async with running(config):
                pass


async def test_a_missing_vip_port_is_a_journal_line_only(tmp_path: Path) -> None:
    holder = open_listener("127.0.0.1", 0)
    try:
        config = config_in(tmp_path, listen_port=holder.port + 2, vip_channel=True)
        async with running(config) as broker:
            assert broker.addresses.vip_listen == ""
            assert "vip_port_unavailable" in broker.events.names()
    finally:
        holder.close()
