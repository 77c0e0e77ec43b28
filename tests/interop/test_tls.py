"""RocketMQ's client and slave at nodes of ours with TLS, and a slave of ours at its master."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from uuid import uuid4

import attrs
import pytest
from support.clusters.pair import SMALL_FILES
from support.histories.commitlog import wait_for_equal_logs
from support.peers.clients import Clients, StockConsumer, StockProducer
from support.peers.java import java_broker
from support.peers.java_tools import QUICK_CONSUMER
from support.processes.rig import Node, Processes, trioha_broker, trioha_namesrv
from support.stores.certificates import certificates
from support.suite.skips import skip_unless

CERTIFICATES = certificates()
FOLLOW_S = 40.0
TRUSTING = {"tls.enable": "true", "tls.test.mode.enable": "true"}
"""RocketMQ's defaults: any certificate is accepted, none is shown."""
CHECKING = {
    "tls.enable": "true",
    "tls.test.mode.enable": "false",
    "tls.client.authServer": "true",
    "tls.client.trustCertPath": CERTIFICATES.cert("ca"),
    "tls.client.certPath": CERTIFICATES.cert("operator"),
    "tls.client.keyPath": CERTIFICATES.key("operator"),
}


SERVING = {
    "tls.enable": "true",
    "tls.test.mode.enable": "false",
    "tls.server.mode": "enforcing",
    "tls.server.certPath": CERTIFICATES.cert("node"),
    "tls.server.keyPath": CERTIFICATES.key("node"),
}
"""A broker of RocketMQ with TLS on its remoting port, which registers over TLS."""


@attrs.frozen
class TlsCluster:
    namesrv: Node
    master: Node


def start(processes: Processes, mode: str, **more: str) -> TlsCluster:
    tls = CERTIFICATES.keys(mode, **more)
    namesrv = trioha_namesrv(processes, settings=tls).start()
    settings = {**SMALL_FILES, **tls}
    return TlsCluster(namesrv, trioha_broker(processes, namesrv.address, settings=settings).start())


def exchange(clients: Clients, namesrv: str, *properties: Mapping[str, str]) -> None:
    """Run a producer and a consumer for each of `properties`; each consumer gets all messages."""
    topic = f"T-{uuid4().hex[:8]}"
    producers: list[StockProducer] = [
        clients.producer("java", namesrv, f"p{number}", wait=False, system_properties=own)
        for number, own in enumerate(properties)
    ]
    for producer in producers:
        producer.wait_until_ready()
    bodies = [f"{topic} {number} {n}" for number in range(len(producers)) for n in range(5)]
    for body in bodies:
        sent = producers[int(body.split()[1])].send(topic, body)
        assert sent.status == "SEND_OK"
    consumers: list[StockConsumer] = [
        clients.consumer(
            "java",
            namesrv,
            f"{topic}-{number}",
            topic,
            wait=False,
            poll_ms=QUICK_CONSUMER["poll_ms"],
            heartbeat_ms=QUICK_CONSUMER["heartbeat_ms"],
            system_properties={**QUICK_CONSUMER["system_properties"], **own},
        )
        for number, own in enumerate(properties)
    ]
    for consumer in consumers:
        consumer.wait_until_ready()
    for consumer in consumers:
        consumer.wait_for_bodies(bodies)


@pytest.mark.parametrize(
    ("more", "properties"),
    [({}, TRUSTING), ({"tls.server.need.client.auth": "require"}, CHECKING)],
    ids=["test-mode", "mutual"],
)
def test_a_java_client_over_tls_sends_and_receives(
    processes: Processes, clients: Clients, more: dict[str, str], properties: dict[str, str]
) -> None:
    cluster = start(processes, "enforcing", **more)
    exchange(clients, cluster.namesrv.address, properties)


def test_a_permissive_port_serves_java_clients_with_and_without_tls_and_a_java_slave(
    processes: Processes, clients: Clients
) -> None:
    cluster = start(processes, "permissive")
    slave = java_broker(
        processes, cluster.namesrv.address, broker_id=1, role="SLAVE", settings=SMALL_FILES
    ).start()
    exchange(clients, cluster.namesrv.address, TRUSTING, {})
    cluster.master.process.wait_for_line("event=ha_in_sync")
    assert slave.running


def test_a_slave_of_ours_follows_a_java_master_that_speaks_tls(
    processes: Processes, clients: Clients
) -> None:
    tls = CERTIFICATES.keys("enforcing")
    namesrv = trioha_namesrv(processes, settings=tls).start()
    master = java_broker(processes, namesrv.address, properties=SERVING).start()
    settings = {**SMALL_FILES, **tls, "tls.ha.enable": "false"}
    slave = trioha_broker(
        processes, namesrv.address, broker_id=1, role="SLAVE", settings=settings
    ).start()
    producer = clients.producer("java", namesrv.address, system_properties=TRUSTING)
    for number in range(20):
        assert producer.send("T", f"body {number}").status == "SEND_OK"
    wait_for_equal_logs(master.commitlog, slave.commitlog, FOLLOW_S)


def s_client(address: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Let OpenSSL's client connect, and leave."""
    return subprocess.run(
        ["openssl", "s_client", "-connect", address, "-brief", "-verify_return_error", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=FOLLOW_S,
        check=False,
    )


def test_openssl_checks_the_certificate_of_every_port(processes: Processes) -> None:
    """The name is checked too, in both versions of TLS that a node speaks; an older one fails."""
    skip_unless(shutil.which("openssl") is not None, "openssl is not installed")
    cluster = start(processes, "enforcing")
    trusting = ("-CAfile", CERTIFICATES.cert("ca"), "-verify_ip", "127.0.0.1")
    for address in (cluster.namesrv.address, cluster.master.address, cluster.master.ha_address):
        assert address is not None
        for version in ("-tls1_2", "-tls1_3"):
            done = s_client(address, *trusting, version)
            assert done.returncode == 0, done.stderr
            assert "Verification: OK" in done.stderr
    address = cluster.master.address
    foreign = ("-CAfile", CERTIFICATES.cert("foreign-ca"))
    for words in (
        foreign,
        (*trusting, "-tls1_1"),
        (*trusting[:2], "-verify_hostname", "elsewhere"),
    ):
        assert s_client(address, *words).returncode != 0, words
