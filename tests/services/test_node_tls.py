"""Whole nodes whose connections are TLS: clients, name server, replication, Raft, HTTP."""

from __future__ import annotations

import shutil
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from support.nodes.live_group import live_group
from support.nodes.live_node import SUCCESS
from support.nodes.live_set import follows, level, live_set
from support.stores.certificates import certificates

from trioha.client import Message, open_producer
from trioha.client.cluster import ClusterConfig, open_cluster
from trioha.config import BrokerConfig, BrokerRole, NamesrvConfig
from trioha.config.tls_files import client_context
from trioha.errors import ConfigError, Unreachable
from trioha.services.loop.clock import Clock
from trioha.services.loop.tls import tls_connect
from trioha.services.loop.transport import SocketTransport, connect, open_listener
from trioha.services.namesrv.server import serve_namesrv
from trioha.services.node.tls import NodeTls
from trioha.services.remoting.client import parse_address
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

CERTIFICATES = certificates()
MUTUAL = CERTIFICATES.settings(tls_server_need_client_auth="require")


@pytest.mark.parametrize("secret", [False, True], ids=["without-secret", "with-secret"])
async def test_a_set_with_mutual_tls_replicates_and_fails_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: bool
) -> None:
    for name, value in CERTIFICATES.environment("operator").items():
        monkeypatch.setenv(name, value)
    settings = dict(MUTUAL)
    if secret:
        file = tmp_path / "cluster.secret"
        file.write_text("the secret of this cluster\n")
        monkeypatch.setenv("TRIOHA_CLUSTER_SECRET_FILE", str(file))
        settings["cluster_secret_file"] = str(file)
    async with live_set(tmp_path, **settings) as set_:
        master = await set_.add(BrokerRole.SYNC_MASTER)
        slave = await set_.add()
        await slave.wait(follows)
        await master.wait(level)
        assert await master.send(b"hello") == SUCCESS
        await set_.fail_over(to=1)
        await slave.wait(lambda status: status["role"] == "SYNC_MASTER")
        await slave.wait(level)
        assert await slave.send(b"after") == SUCCESS


async def test_a_slave_without_tls_follows_a_permissive_master_with_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cluster.secret"
    file.write_text("the secret of this cluster\n")
    settings = CERTIFICATES.settings(mode="permissive") | {"cluster_secret_file": str(file)}
    async with live_set(tmp_path, **settings) as set_:
        master = await set_.add(BrokerRole.SYNC_MASTER)
        slave = await set_.add()
        await slave.wait(follows)
        await master.wait(level)
        assert await master.send(b"hello") == SUCCESS


async def test_a_raft_group_with_mutual_tls_elects_and_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with live_group(tmp_path, **MUTUAL) as group:
        await group.start()
        leader = await group.leader()
        assert (await leader.send()).code == SUCCESS
        await leader.break_off()
        other = await group.leader(*group.besides(leader))
        assert (await other.send()).code == SUCCESS


async def until_told(events: RecordedEvents, name: str, words: str) -> None:
    while True:
        if any(words in str(event["reason"]) for event in events.of(name)):
            return
        await trio.sleep(0.01)  # it is a real network


@pytest.mark.parametrize("role", ["master", "slave"])
async def test_an_expired_certificate_of_a_node_keeps_it_from_replicating(
    tmp_path: Path, role: str
) -> None:
    expired = {
        "tls_server_cert_path": CERTIFICATES.cert("expired"),
        "tls_server_key_path": CERTIFICATES.key("expired"),
    }
    async with live_set(tmp_path) as set_:
        set_.namesrv = ""
        set_.settings = MUTUAL | (expired if role == "master" else {})
        master = await set_.add(BrokerRole.ASYNC_MASTER)
        address = f"127.0.0.1:{master.config.ha_listen_port}"
        set_.settings = MUTUAL | (expired if role == "slave" else {})
        set_.settings["ha_master_address"] = address
        slave = await set_.add()
        await until_told(slave.events, "ha_disconnected", "has expired")
        if role == "slave":
            await until_told(master.events, "connection_closed", "has expired")
        assert not master.events.of("ha_connected")


async def test_a_client_learns_why_it_gets_no_connection(tmp_path: Path) -> None:
    async with live_set(tmp_path, **MUTUAL) as set_:
        master = await set_.add(BrokerRole.ASYNC_MASTER)
        request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
        for tls, words in (
            (None, "it accepts TLS only"),
            (CERTIFICATES.client(), "it requires a certificate of this side"),
            (CERTIFICATES.client("foreign"), "does not trust the CA that signed it"),
            (CERTIFICATES.client("operator", ca="foreign-ca"), "trust its CA"),
        ):
            async with open_cluster(set_.namesrv, ClusterConfig(tls=tls)) as cluster:
                with pytest.raises(Unreachable, match=words):
                    await cluster.request(master.address, request)
        reasons = [str(event["reason"]) for event in master.events.of("connection_closed")]
        assert len(reasons) == 4
        for reason, words in zip(
            reasons,
            ("it speaks no TLS", "it showed no certificate", "not trusted", "does not trust"),
            strict=True,
        ):
            assert words in reason


async def test_the_http_port_speaks_https_and_asks_for_no_certificate(tmp_path: Path) -> None:
    config = NamesrvConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(tmp_path / "kv.json"),
        **MUTUAL,
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(serve_namesrv, config, trio.Event(), RecordedEvents())
            addresses = await nursery.start(serve)
            dial = tls_connect(client_context(CERTIFICATES.client()))
            transport = await dial(*parse_address(addresses.admin_http))
            await transport.send_all([b"GET /metrics HTTP/1.0\r\nhost: x\r\n\r\n"])
            answer = b""
            while data := await transport.receive_some():
                answer += data
            assert b"200 OK" in answer
            assert b"trioha_tls_certificate_expiry_timestamp_seconds" in answer
            transport.close()
            nursery.cancel_scope.cancel()


async def test_each_port_reports_a_peer_without_tls_in_one_line(tmp_path: Path) -> None:
    settings = CERTIFICATES.settings(admin_http_enable=True, admin_http_port=0)
    async with live_set(tmp_path, **settings) as set_:
        master = await set_.add(BrokerRole.ASYNC_MASTER)
        (ready,) = master.events.of("node_ready")
        for number, port in enumerate(("listen", "ha_listen", "admin_http"), 1):
            transport = await connect(*parse_address(str(ready[port])))
            await transport.send_all([bytes(8)])
            while await transport.receive_some():
                pass
            transport.close()
            closed = master.events.of("connection_closed")
            assert len(closed) == number, port
            assert "it speaks no TLS" in str(closed[-1]["reason"])


def test_a_node_without_its_key_names_the_file_and_the_command(tmp_path: Path) -> None:
    settings = CERTIFICATES.settings(tls_server_key_path=str(tmp_path / "none.key"))
    with pytest.raises(ConfigError, match=r"cannot read .*none.key: No such file.*security init"):
        NodeTls(BrokerConfig(**settings), RecordedEvents(), Clock())


async def test_a_slave_of_a_rocketmq_master_connects_plainly_to_its_ha_port_alone() -> None:
    config = BrokerConfig(**CERTIFICATES.settings(tls_ha_enable=False))
    tls = NodeTls(config, RecordedEvents(), Clock())
    listener = open_listener("127.0.0.1", 0)
    transport = await tls.connect_to(ha=True)(listener.host, listener.port)
    assert isinstance(transport, SocketTransport)
    transport.close()
    listener.close()


def copy(name: str, directory: Path) -> None:
    """Replace a node's files one after the other, as an operator does."""
    shutil.copy(CERTIFICATES.key(name), directory / "own.key")
    shutil.copy(CERTIFICATES.cert(name), directory / "own.pem")


def own_settings(directory: Path) -> dict[str, Any]:
    return CERTIFICATES.settings() | {
        "tls_server_cert_path": str(directory / "own.pem"),
        "tls_server_key_path": str(directory / "own.key"),
    }


async def serial_of(address: str) -> str:
    """Serial number of the certificate that a port shows."""

    def ask() -> str:
        return ssl.get_server_certificate(parse_address(address))

    return await trio.to_thread.run_sync(ask)


async def test_a_new_certificate_counts_under_load_without_a_failed_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy("node", tmp_path)
    for name, value in CERTIFICATES.environment().items():
        monkeypatch.setenv(name, value)
    async with live_set(tmp_path, **own_settings(tmp_path)) as set_:
        master = await set_.add(BrokerRole.ASYNC_MASTER)
        sent, stop = 0, trio.Event()

        async def load() -> None:
            nonlocal sent
            while not stop.is_set():
                # A new connection for every few sends: each handshake meets the files of now.
                async with open_producer(set_.namesrv) as producer:
                    for _ in range(5):
                        await producer.send(Message("T", b"hello"))
                        sent += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            before = await serial_of(master.address)
            copy("next", tmp_path)
            while await serial_of(master.address) == before:
                await trio.lowlevel.checkpoint()
            after = sent
            while sent < after + 20:
                await trio.lowlevel.checkpoint()
            stop.set()
        loaded = master.events.of("certificate_loaded")
        assert len(loaded) == 2
        (warned,) = master.events.of("certificate_expires")
        assert "expires in 3.0 days; replace it" in str(warned["reason"])


def test_a_broken_certificate_keeps_the_old_one_and_is_one_line(tmp_path: Path) -> None:
    copy("node", tmp_path)
    events = RecordedEvents()
    tls = NodeTls(BrokerConfig(**own_settings(tmp_path)), events, Clock())
    (tmp_path / "own.pem").write_text("no certificate\n")
    for _ in range(5):
        tls.look()
    (rejected,) = events.of("certificate_rejected")
    assert "own.pem holds no usable certificate" in str(rejected["reason"])
    assert "the old one stays" in str(rejected["reason"])
    copy("next", tmp_path)
    for _ in range(2):
        tls.look()
    assert len(events.of("certificate_loaded")) == 2
    assert len(events.of("certificate_rejected")) == 1


def test_half_a_replacement_is_not_read(tmp_path: Path) -> None:
    copy("node", tmp_path)
    events = RecordedEvents()
    tls = NodeTls(BrokerConfig(**own_settings(tmp_path)), events, Clock())
    shutil.copy(CERTIFICATES.key("next"), tmp_path / "own.key")
    tls.look()
    shutil.copy(CERTIFICATES.cert("next"), tmp_path / "own.pem")
    tls.look()
    tls.look()
    assert not events.of("certificate_rejected")
    assert len(events.of("certificate_loaded")) == 2
