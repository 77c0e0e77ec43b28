from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from trioha.config import BrokerConfig, BrokerRole, NamesrvConfig
from trioha.services.broker import serve_broker
from trioha.services.ha.metrics import failovers
from trioha.services.loop.clock import Clock
from trioha.services.namesrv.server import serve_namesrv
from trioha.services.node.listeners import BrokerAddresses
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand


class Connected(RecordedEvents):
    """Events of a node, and when its HA link came about."""

    def __init__(self) -> None:
        super().__init__()
        self.ha = trio.Event()

    def event(self, name: str, **fields: object) -> None:
        super().event(name, **fields)
        if name == "ha_connected":
            self.ha.set()


@attrs.frozen
class Nodes:
    namesrv_http: str
    master: BrokerAddresses
    slave: BrokerAddresses


def broker_config(root: Path, namesrv: str, **changes: object) -> BrokerConfig:
    config = BrokerConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        max_message_size=1 << 16,
        max_hash_slot_num=100,
        max_index_num=400,
        namesrv_addr=namesrv,
        bind_address="127.0.0.1",
        listen_port=0,
        ha_listen_port=0,
        vip_channel=False,
    )
    return attrs.evolve(config, **changes)  # type: ignore[arg-type]


@asynccontextmanager
async def nodes(
    root: Path, master_role: BrokerRole = BrokerRole.ASYNC_MASTER
) -> AsyncIterator[Nodes]:
    """A name server, a master and a slave that follows it."""
    shutdown, of_master, of_slave = trio.Event(), Connected(), Connected()
    namesrv_config = NamesrvConfig(
        bind_address="127.0.0.1", listen_port=0, kv_config_path=str(root / "kv.json")
    )
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            namesrv = await nursery.start(
                partial(serve_namesrv, namesrv_config, shutdown, RecordedEvents())
            )
            master = await nursery.start(
                partial(
                    serve_broker,
                    broker_config(root / "master", namesrv.listen, broker_role=master_role),
                    shutdown,
                    of_master,
                )
            )
            config = broker_config(
                root / "slave", namesrv.listen, broker_role=BrokerRole.SLAVE, broker_id=1
            )
            slave = await nursery.start(partial(serve_broker, config, shutdown, of_slave))
            await of_master.ha.wait()
            await of_slave.ha.wait()
            yield Nodes(namesrv.admin_http, master, slave)
            shutdown.set()


async def get(address: str, path: str) -> tuple[int, str]:
    """Return status and body."""
    stream = await trio.open_tcp_stream(*parse_address(address))
    async with stream:
        await stream.send_all(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        data = b"".join([part async for part in stream])
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


async def scrape(address: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Return every series by name and labels, without the node's own labels."""
    status, text = await get(address, "/metrics")
    assert status == 200
    series: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    own = {"cluster", "node_type", "node_id", "broker_id"}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(item for item in sample.labels.items() if item[0] not in own)
            series.setdefault(sample.name, {})[labels] = sample.value
    return series


def labels(**values: str) -> frozenset[tuple[str, str]]:
    return frozenset(values.items())


async def test_a_master_tells_its_log_its_traffic_and_its_slave(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        fields: dict[str, ExtValue] = {
            "a": "pg",
            "b": "T",
            "c": "TBW102",
            "d": 4,
            "e": 0,
            "f": 0,
            "g": 1,
            "h": 0,
        }
        fields |= {"i": "", "j": 0, "k": False, "m": False}
        commit: dict[str, ExtValue] = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": 0,
            "commitOffset": 1,
        }
        address = parse_address(running.master.listen)
        async with open_remoting_client(*address, Clock()) as client:
            for _ in range(3):
                request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, dict(fields), b"body")
                assert (await client.request(request)).code == 0
            answer = await client.request(
                RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
            )
            assert answer.code == 0
        series = await scrape(running.master.admin_http)
        assert series["rocketmq_messages_in_total"][labels(topic="T", is_retry="false")] == 3
        assert series["trioha_puts_total"][labels()] == 3
        lag = series["rocketmq_consumer_lag_messages"]
        assert lag[labels(consumer_group="g", topic="T", is_retry="false")] == 2
        assert series["trioha_ha_role"][labels(role="master")] == 1
        assert series["trioha_ha_connections"][labels()] == 1
        assert len(series["trioha_ha_gap_bytes"]) == 1
        assert series["trioha_ha_held_back_bytes"][labels()] == 0
        assert len(series["trioha_ha_last_heartbeat_timestamp_seconds"]) == 1
        assert series["trioha_writable"][labels()] == 1
        assert series["trioha_ha_role"][labels(role="fenced")] == 0
        assert series["trioha_ha_epoch"][labels()] == 1
        assert series["trioha_role_changes_total"][labels()] == 0
        assert series["trioha_ha_link_ups_total"][labels()] == 1
        assert series["trioha_ha_refused_total"][labels()] == 0
        assert series["trioha_ha_sync_wait_seconds_bucket"][labels(le="+Inf")] == 0
        events = series["trioha_journal_events_total"]
        assert events[labels(event="ha_connected")] == 1
        assert events[labels(event="broker_expired")] == 0  # so that its first one shows
        assert series["trioha_namesrv_registered"][labels()] == 1


async def test_a_slave_tells_whom_it_follows_and_a_name_server_whom_it_routes_to(
    tmp_path: Path,
) -> None:
    async with nodes(tmp_path) as running:
        series = await scrape(running.slave.admin_http)
        assert series["trioha_ha_role"][labels(role="slave")] == 1
        assert series["trioha_writable"][labels()] == 0
        assert labels(peer=running.master.ha_listen) in series["trioha_ha_reconnects_total"]
        series = await scrape(running.namesrv_http)
        brokers = series["trioha_namesrv_brokers"]
        for role in ("master", "slave"):
            assert brokers[labels(broker="broker-a", role=role)] == 1
        assert series["trioha_namesrv_expired_total"][labels()] == 0


async def test_a_synchronous_master_tells_what_left_and_how_long_puts_waited(
    tmp_path: Path,
) -> None:
    async with nodes(tmp_path, master_role=BrokerRole.SYNC_MASTER) as running:
        fields: dict[str, ExtValue] = {"a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0}
        fields |= {"g": 1, "h": 0, "i": "", "j": 0, "k": False, "m": False}
        async with open_remoting_client(*parse_address(running.master.listen), Clock()) as client:
            answer = await client.request(
                RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, b"body")
            )
            assert answer.code == ResponseCode.SUCCESS
        series = await scrape(running.master.admin_http)
        end = series["trioha_commitlog_max_offset_bytes"][labels()]
        assert series["trioha_commitlog_confirmed_offset_bytes"][labels()] == end > 0
        assert series["trioha_ha_transferred_bytes_total"][labels()] == end
        assert series["trioha_ha_sync_wait_seconds_bucket"][labels(le="+Inf")] >= 1
        assert series["trioha_ha_sync_unavailable_total"][labels()] == 0
        (gap_s,) = series["trioha_ha_gap_seconds"].values()
        assert gap_s == 0


def test_failovers_are_told_by_kind_and_end() -> None:
    records: list[dict[str, object]] = [
        {"started_wall_ms": 1000, "ended_wall_ms": 1800, "forced": False, "result": "done"},
        {"started_wall_ms": 5000, "ended_wall_ms": 8000, "forced": False, "result": "done"},
        {"started_wall_ms": 1, "ended_wall_ms": 100_001, "forced": True, "result": "unknown"},
        {"ticket_id": "of a version that told no times"},
    ]
    planned, forced = sorted(failovers(records), reverse=True)
    assert planned[0] == ("planned", "done")
    assert dict(planned[1])["1.0"] == 1
    assert dict(planned[1])["5.0"] == dict(planned[1])["+Inf"] == 2
    assert planned[2] == pytest.approx(3.8)
    assert forced[0] == ("forced", "unknown")
    assert dict(forced[1])["60.0"] == 0


async def test_nodes_say_that_they_are_alive_and_ready(tmp_path: Path) -> None:
    async with nodes(tmp_path) as running:
        for address in (running.namesrv_http, running.master.admin_http):
            assert await get(address, "/livez") == (200, "alive\n")
        assert await get(running.namesrv_http, "/readyz") == (200, "[+] serving\nready\n")
        told = "[+] serving\n[+] namesrv\n[+] writable\nready\n"
        assert await get(running.master.admin_http, "/readyz") == (200, told)
        told = "[+] serving\n[+] namesrv\n[+] following\nready\n"
        assert await get(running.slave.admin_http, "/readyz") == (200, told)


async def test_a_slave_without_its_master_is_not_ready_and_says_why(tmp_path: Path) -> None:
    shutdown = trio.Event()
    config = broker_config(tmp_path, "", broker_role=BrokerRole.SLAVE, broker_id=1)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            slave = await nursery.start(partial(serve_broker, config, shutdown, RecordedEvents()))
            status, text = await get(slave.admin_http, "/readyz")
            assert status == 503
            assert "[-] following: NO_MASTER\nnot ready\n" in text
            shutdown.set()
