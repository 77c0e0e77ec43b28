"""The way of docs/security.md, as an operator goes it: certificates, nodes, a context, commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clusters.pair import SMALL_FILES
from support.processes.operator import Operator
from support.processes.rig import Processes, trioha_broker, trioha_namesrv


@pytest.mark.slow
def test_an_operator_secures_a_cluster_and_uses_it(processes: Processes, tmp_path: Path) -> None:
    operator = Operator(tmp_path)
    (tmp_path / "config.toml").touch()
    operator.run("security", "init", "--dir", "made", "127.0.0.1")
    made = tmp_path / "made"
    settings: dict[str, object] = {
        "clusterSecretFile": made / "cluster.secret",
        "tls.server.mode": "enforcing",
        "tls.server.certPath": made / "127.0.0.1.pem",
        "tls.server.keyPath": made / "127.0.0.1.key",
        "tls.server.trustCertPath": made / "ca.pem",
        "tls.server.need.client.auth": "require",
    }
    namesrv = trioha_namesrv(processes, settings=settings).start()
    settings |= SMALL_FILES
    broker = trioha_broker(processes, namesrv.address, settings=settings).start()
    by_address = ("-n", namesrv.address)
    assert "it accepts TLS only" in operator.run("ha", "status", *by_address, fails=True)
    files = [
        *("--tls-ca", "made/ca.pem", "--tls-cert", "made/operator.pem"),
        *("--tls-key", "made/operator.key"),
    ]
    # The benchmark below makes its topic, which an operator who knows the secret alone may.
    files += ["--secret-file", "made/cluster.secret"]
    operator.run("context", "add", "prod", *by_address, *files)
    operator.run("produce", "-t", "T", "--count", "100", "--size", "10")
    consumed = operator.run("consume", "-t", "T", "-g", "g", "--count", "100")
    assert len(consumed.splitlines()) == 100
    assert "All is well." in operator.run("ha", "status")
    assert "accept" in operator.run("node", "tasks", broker.address)
    measure = ("bench", "produce", "--seconds", "0.5", "--warm-up", "0", "-o", "json")
    assert "messages_per_s" in operator.run(*measure, *by_address)
    # A cluster of its own has nothing to do with the current context.
    assert "messages_per_s" in operator.run(*measure)
