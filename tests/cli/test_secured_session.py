"""A cluster that `trioha security init` secured, from its first start to new secrets under load.

The way of docs/security.md: a cluster secret, accounts and mutual TLS for all nodes, a context for
the operator. Nothing here has a way around them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import yaml
from support.clusters.pair import SMALL_FILES
from support.clusters.raft_group import raft_group
from support.processes.operator import Operator
from support.processes.rig import (
    REPO,
    Node,
    Processes,
    start_all,
    trioha_broker,
    trioha_namesrv,
)
from support.screens.terminal import Terminal, open_terminal

pytestmark = pytest.mark.slow

REREAD_S = 2.0
"""Time that docs/security.md tells to wait after each step of a replacement."""
IN_SYNC_S = 30.0


@attrs.frozen
class Machine:
    """The files of one node, as they were copied to it."""

    folder: Path

    def copy(self, made: Path) -> dict[str, object]:
        """Copy what `security init` says; return the settings that it says."""
        self.folder.mkdir(exist_ok=True)
        for name in ("cluster.secret", "plain_acl.yml", "127.0.0.1.pem", "127.0.0.1.key", "ca.pem"):
            shutil.copy(made / name, self.folder / name)
        return {
            "clusterSecretFile": self.folder / "cluster.secret",
            "aclEnable": True,
            "aclFile": self.folder / "plain_acl.yml",
            "tls.enable": True,
            "tls.server.mode": "enforcing",
            "tls.server.certPath": self.folder / "127.0.0.1.pem",
            "tls.server.keyPath": self.folder / "127.0.0.1.key",
            "tls.server.trustCertPath": self.folder / "ca.pem",
            "tls.server.need.client.auth": "require",
        }


@attrs.frozen
class Secured:
    namesrv: Node
    nodes: list[Node]
    machines: list[Machine]
    switch: tuple[str, ...]
    """The command that makes another node lead."""


def start_set(size: int) -> Callable[[Processes, Path, Path], Secured]:
    def start(processes: Processes, made: Path, root: Path) -> Secured:
        machines = [Machine(root / f"machine-{number}") for number in range(size + 1)]
        namesrv = trioha_namesrv(processes, settings=machines[-1].copy(made)).start()
        nodes = [
            trioha_broker(
                processes,
                namesrv.address,
                broker_id=number,
                role="SLAVE" if number else "SYNC_MASTER",
                settings={**SMALL_FILES, **machine.copy(made)},
            )
            for number, machine in enumerate(machines[:size])
        ]
        start_all(nodes)
        switch = ("failover", "broker-a", "--to", "1", "--yes")
        return Secured(namesrv, nodes, machines, switch)

    return start


def start_group(processes: Processes, made: Path, root: Path) -> Secured:
    machines = [Machine(root / f"machine-{number}") for number in range(4)]
    namesrv = trioha_namesrv(processes, settings=machines[-1].copy(made)).start()
    for machine in machines[:3]:
        machine.copy(made)
    # The members differ in nothing but their folders, which one can stand for.
    group = raft_group(
        processes, namesrv.address, settings={**SMALL_FILES, **machines[0].copy(made)}
    )
    start_all(group.nodes)
    return Secured(namesrv, group.nodes, machines, ("raft", "transfer", "broker-a"))


def wait_until_well(operator: Operator) -> None:
    deadline = time.monotonic() + IN_SYNC_S
    while "All is well." not in (said := operator.say("ha", "status")):
        assert time.monotonic() < deadline, said


def switch_by_console(terminal: Terminal, folder: Path) -> None:
    """The operator's console makes another node lead; an application's is told nothing."""
    environment = {
        "PYTHONPATH": os.pathsep.join([str(REPO), str(REPO / "console")]),
        "XDG_STATE_HOME": str(folder),
        "TRIOHA_CONFIG": str(folder / "config.toml"),
    }
    console = [sys.executable, "-m", "trioha", "console", "--write"]
    terminal.type(f"cd {folder}; clear")
    terminal.send("Enter")
    terminal.run(console, environment | {"TRIOHA_CONTEXT": "application"})
    terminal.wait_for(r"broker-a .* unknown")
    terminal.wait_for(r" rejects us ")
    terminal.wait_for(r"AclException: Need admi")
    terminal.send("q")
    terminal.wait_for(r"^\$ ?$")
    terminal.run(console, environment | {"TRIOHA_CONTEXT": "operator"})
    terminal.wait_for(r"all well")
    terminal.send("F")
    terminal.wait_for(r"c goes on")
    terminal.send("c")
    terminal.wait_for(r"type broker-a and press enter")
    terminal.type("broker-a")
    terminal.send("Enter")
    terminal.wait_for(r"● done")
    terminal.send("Escape")
    terminal.wait_for(r"all well.*\n.*1 Replication")
    terminal.send("q")
    terminal.wait_for(r"^\$ ?$")


@pytest.mark.parametrize(
    "start", [start_set(2), start_set(3), start_group], ids=["pair", "three", "raft"]
)
def test_a_secured_cluster_is_used_switched_and_given_new_secrets(
    start: Callable[[Processes, Path, Path], Secured], processes: Processes, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").touch()
    Operator(tmp_path).run("security", "init", "--dir", "made", "127.0.0.1")
    made = tmp_path / "made"
    accounts = yaml.safe_load((made / "plain_acl.yml").read_text())["accounts"]
    keys = {account["accessKey"]: account["secretKey"] for account in accounts}
    cluster = start(processes, made, tmp_path)

    # The operator's context, and one of a program.
    by_address = ("-n", cluster.namesrv.address)
    files = ("--tls-ca", "made/ca.pem", "--tls-cert", "made/operator.pem")
    for name in ("operator", "application"):
        Operator(tmp_path, {"TRIOHA_SECRET_KEY": keys[name]}).run(
            *("context", "add", name, *by_address, "--access-key", name),
            *(*files, "--tls-key", "made/operator.key"),
        )
    config = tmp_path / "config.toml"
    text = config.read_text()
    head = "[contexts.operator]\n"
    assert head in text
    config.write_text(text.replace(head, f'{head}secret_file = "made/cluster.secret"\n'))
    operator = Operator(tmp_path)
    program = Operator(tmp_path, {"TRIOHA_CONTEXT": "application"})
    wait_until_well(operator)

    # Strangers get nowhere: without TLS, and with TLS but without an account.
    assert "it accepts TLS only" in operator.run("ha", "status", *by_address, fails=True)
    trusted = {
        "TRIOHA_TLS_ENABLE": "true",
        "TRIOHA_TLS_CLIENT_TRUST_CERT_PATH": "made/ca.pem",
        "TRIOHA_TLS_CLIENT_CERT_PATH": "made/operator.pem",
        "TRIOHA_TLS_CLIENT_KEY_PATH": "made/operator.key",
    }
    stranger = Operator(tmp_path, trusted)
    stranger.run("produce", *by_address, "-t", "T", "--count", "1", fails=True)
    program.run(*cluster.switch, fails=True)
    operator.run("topic", "create", "T")
    with program.sending("T") as said:
        operator.run(*cluster.switch)
        wait_until_well(operator)
        # A new cluster secret, in the three steps of the docs.
        old = (made / "cluster.secret").read_text()
        new = "a-secret-that-nobody-has-seen-before-this-day\n"
        folders = (made, *(machine.folder for machine in cluster.machines))
        for step in (old + new, new + old, new):
            for folder in folders:
                (folder / "cluster.secret").write_text(step)
            time.sleep(REREAD_S)
        # A new certificate for every node.
        operator.run("security", "issue", "--dir", "made", "127.0.0.1")
        for machine in cluster.machines:
            for name in ("127.0.0.1.key", "127.0.0.1.pem"):
                shutil.copy(made / name, machine.folder / name)
        time.sleep(REREAD_S)
    sent = re.search(r"(\d+) messages sent to T .*: SEND_OK (\d+)$", said[0].strip())
    assert sent is not None, said
    assert sent[1] == sent[2], said
    consumed = program.run("consume", "-t", "T", "-g", "g", "--count", sent[1])
    assert len(consumed.splitlines()) == int(sent[1])
    # A node starts with the new files, and another switch uses the new secret.
    cluster.nodes[0].stop()
    cluster.nodes[0].start()
    wait_until_well(operator)
    with open_terminal(140, 40) as terminal:
        switch_by_console(terminal, tmp_path)
    wait_until_well(operator)
