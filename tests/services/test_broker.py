from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import msgpack
import pytest
import trio
import trio.testing
from support.handlers.sending import FakeChannel

from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import StoreLocked, TriohaError
from trioha.ha.mastership import Mastership, Standing
from trioha.services.broker import serve_broker
from trioha.services.ha.opening import open_master_slave_node
from trioha.services.ha.replication import SetReplication
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import open_listener
from trioha.services.node.listeners import BrokerAddresses
from trioha.services.node.namesrv_registration import Refutation
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.store.two_slot_file import TwoSlotFile
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.ha_frames import REPORT
from trioha.wire.remoting_command import ExtValue, RemotingCommand, encode


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


def send(body: bytes = b"hello", opaque: int = 0, properties: str = "TAGS\x01A") -> RemotingCommand:
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
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, {**fields, "i": properties}, body, opaque)


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


async def test_properties_of_any_size_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    """Java answers 13 up to 32,767 bytes and more; ten megabytes are more than any header has."""
    async with running(config_in(tmp_path)) as broker:
        host, port = parse_address(broker.addresses.listen)
        async with await trio.open_tcp_stream(host, port) as stream:
            with suppress(trio.BrokenResourceError):  # the broker closes before it has read all
                await stream.send_all(encode(send(properties="p\x01" + "x" * 10_000_000)))
            with suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""
        async with open_remoting_client(host, port, Clock()) as client:
            response = await client.request(send(properties="p\x01" + "x" * 32_768))
            assert response.code == ResponseCode.MESSAGE_ILLEGAL
            status = await client.request(RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
            assert msgpack.unpackb(status.body_bytes())["put_total"] == 0


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


async def test_a_silent_slave_holds_up_a_stop_for_the_grace_and_no_longer(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    # Shorter than the 900 ms after which a slave counts as stalled and is not waited for.
    config = config_in(tmp_path, shutdown_grace=800, ha_housekeeping_interval=600_000)
    ended = trio.Event()

    async def live(task_status: trio.TaskStatus[Running]) -> None:
        async with running(config) as broker:
            task_status.started(broker)
            await broker.shutdown.wait()
        ended.set()

    async with trio.open_nursery() as nursery:
        broker: Running = await nursery.start(live)
        slave = await trio.open_tcp_stream(*parse_address(broker.addresses.ha_listen))
        async with (
            slave,
            open_remoting_client(*parse_address(broker.addresses.listen), Clock()) as client,
        ):
            await slave.send_all(REPORT.pack(0))
            assert (await client.request(send())).code == ResponseCode.SUCCESS
            # It is sent the message and acknowledges nothing from here on.
            assert await slave.receive_some()
            broker.shutdown.set()
            while "node_stopping" not in broker.events.names():
                await trio.testing.wait_all_tasks_blocked(0.01)
            mock_clock.jump(0.799)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not ended.is_set()
            mock_clock.jump(0.001)
            await ended.wait()


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


async def status_of(broker: Running) -> dict[str, Any]:
    async with open_remoting_client(*parse_address(broker.addresses.listen), Clock()) as client:
        answer = await client.request(RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
    status: dict[str, Any] = msgpack.unpackb(answer.body_bytes())
    return status


async def test_a_master_begins_its_first_epoch_once_and_tells_of_it(tmp_path: Path) -> None:
    config = config_in(tmp_path, broker_role=BrokerRole.SYNC_MASTER)
    async with running(config) as broker:
        first = await status_of(broker)
    assert (first["standing"], first["epoch"], first["log_epoch"]) == ("MASTER", 1, 1)
    assert (first["home_id"], first["sync"], first["follows"], first["ticket"]) == (
        *(0, True, "", None),
    )
    assert broker.events.of("epoch_began") == [{"epoch": 1, "start_offset": 0, "sync": True}]
    async with running(config) as broker:
        again = await status_of(broker)
    assert again["epochs"] == first["epochs"]
    assert broker.events.of("epoch_began") == []


async def test_a_classic_slave_knows_no_epoch(tmp_path: Path) -> None:
    config = config_in(tmp_path, broker_role=BrokerRole.SLAVE, broker_id=1)
    async with running(config) as broker:
        status = await status_of(broker)
    assert (status["standing"], status["epoch"], status["epochs"]) == ("SLAVE", 0, [])
    assert not list((tmp_path / "store").glob("epochs*"))


async def test_a_master_that_was_failed_over_comes_up_fenced_and_takes_no_writes(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path)
    async with running(config):
        pass
    file = TwoSlotFile(tmp_path / "store" / "epochs")
    it = Mastership(0, file.save, file.payload)
    it.begin_term(2, 0, nonce=bytes(8), sync=False, wall_ms=0)
    it.meet_members({1: "127.0.0.1:1"})
    async with (
        running(config) as broker,
        open_remoting_client(*parse_address(broker.addresses.listen), Clock()) as client,
    ):
        status = await status_of(broker)
        assert (status["standing"], status["role"]) == ("FENCED", "SLAVE")
        assert (await client.request(send())).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert broker.events.of("fenced")[0]["epoch"] == 2
        with trio.fail_after(10):
            while "1 (127.0.0.1:1), silent so far" not in (await status_of(broker))["fenced_by"]:
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_master_that_was_failed_over_and_has_no_members_comes_back_by_itself(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path)
    async with running(config):
        pass
    file = TwoSlotFile(tmp_path / "store" / "epochs")
    it = Mastership(0, file.save, file.payload)
    it.begin_term(2, 0, nonce=bytes(8), sync=False, wall_ms=0)
    async with (
        running(config) as broker,
        open_remoting_client(*parse_address(broker.addresses.listen), Clock()) as client,
    ):
        with trio.fail_after(10):
            while (await client.request(send())).code != ResponseCode.SUCCESS:
                await trio.testing.wait_all_tasks_blocked(0.01)
        status = await status_of(broker)
        assert (status["standing"], status["epoch"]) == ("MASTER", 2)


async def test_a_node_that_stops_takes_no_sends_when_a_switch_is_given_up(
    tmp_path: Path,
) -> None:
    config = config_in(tmp_path, broker_ip1="127.0.0.1", ha_listen_port=2)
    addresses = BrokerAddresses(listen="127.0.0.1:1", ha_listen="127.0.0.1:2", vip_listen="")
    node = await open_master_slave_node(config, addresses, Clock(), RecordedEvents())
    try:
        await node.stop()
        roles = cast("SetReplication", node.replication).roles
        roles.pause()
        roles.resume()
        channel = FakeChannel()
        node.gate.handle(channel, send(), Clock().instant())
        (answer,) = channel.sent
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "shutting down" in (answer.remark or "")
        assert node.store.max_phy_offset == 0
    finally:
        await node.close()


async def test_a_refused_claim_fences_a_master_in_the_same_pass(tmp_path: Path) -> None:
    config = config_in(tmp_path, broker_ip1="127.0.0.1", ha_listen_port=2)
    addresses = BrokerAddresses(listen="127.0.0.1:1", ha_listen="127.0.0.1:2", vip_listen="")
    events = RecordedEvents()
    node = await open_master_slave_node(config, addresses, Clock(), events)
    try:
        found = Refutation("ns:9876", 2, b"\x02" * 8, "10.0.0.2:10911", "10.0.0.2:10912")
        assert node.registration.on_refuted is not None
        node.registration.on_refuted(found)
        mastership = cast("SetReplication", node.replication).mastership
        assert mastership.standing is Standing.FENCED
        channel = FakeChannel()
        node.gate.handle(channel, send(), Clock().instant())
        assert channel.sent[0].code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert node.store.max_phy_offset == 0
        fenced = events.of("fenced")[0]
        assert fenced["epoch"] == 2
        assert "10.0.0.2:10911, says name server ns:9876" in str(fenced["reason"])
    finally:
        await node.close()
