"""The way of docs/security.md, as an operator goes it: certificates, nodes, a context, commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.clusters.pair import SMALL_FILES
from support.processes.rig import Processes, trioha_broker, trioha_command, trioha_namesrv


class Operator:
    """Commands of `trioha` with a file of contexts of their own."""

    def __init__(self, directory: Path) -> None:
        self._environment = {**os.environ, "TRIOHA_CONFIG": str(directory / "config.toml")}
        self._directory = directory

    def run(self, *arguments: str, fails: bool = False) -> str:
        done = subprocess.run(
            trioha_command(*arguments),
            cwd=self._directory,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        )
        assert bool(done.returncode) == fails, done.stdout
        assert "Traceback" not in done.stdout
        return done.stdout


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
