"""A replica set that is failed over for real: its processes, and the operator's command."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from support.processes.namespaces import Net, listen_at
from support.processes.rig import Node, Processes, trioha_broker, trioha_namesrv
from support.processes.status import Outcome, node_status, run_trioha, wait_until

BROKER = "broker-a"
SETTINGS: Mapping[str, object] = {
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 30_000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20_000,
    "diskMaxUsedSpaceRatio": 99,
    "diskSpaceWarningLevelRatio": 99,
    # A slave finds its master again sooner than after 5 s.
    "haReconnectInterval": 200,
}
COMMAND_S = 60.0
SETTLE_S = 60.0


@attrs.frozen
class Switch:
    """One `trioha failover`, as it went."""

    code: int
    report: Mapping[str, Any]
    text: str
    began_s: float
    ended_s: float

    @property
    def result(self) -> str:
        return str(self.report.get("result", self.text))


@attrs.define(eq=False)
class ReplicaSet:
    """A SYNC_MASTER and its slaves under name servers, each a process."""

    processes: Processes
    slave_count: int = 1
    namesrv_count: int = 1
    settings: Mapping[str, object] = SETTINGS
    role: str = "SYNC_MASTER"
    net: Net | None = None
    """Network of the nodes; None: loopback. Hosts that no member needs are name servers'."""
    prepare: Callable[[Node], None] = lambda node: None
    """Called with each member before its first start."""
    namesrvs: list[Node] = attrs.Factory(list)
    nodes: list[Node] = attrs.Factory(list)
    """Members by their configured ids."""

    @property
    def namesrv(self) -> str:
        return ";".join(node.address for node in self.namesrvs)

    def start(self) -> ReplicaSet:
        for number in range(self.namesrv_count):
            namesrv = trioha_namesrv(self.processes, name=f"namesrv-{number}")
            if self.net is not None and len(self.net.hosts) > self.slave_count + 1 + number:
                self.net.hosts[self.slave_count + 1 + number].place(namesrv)
            elif self.net is not None:
                listen_at(namesrv, self.net.gateway)
            self.namesrvs.append(namesrv.start())
        for home_id in range(self.slave_count + 1):
            node = trioha_broker(
                self.processes,
                self.namesrv,
                name=BROKER,
                broker_id=home_id,
                role="SLAVE" if home_id else self.role,
                settings=self.settings,
            )
            # Its role at the start depends on its history.
            node.ready_pattern = rf"trioha broker {BROKER} id=\d+ role=(\S+) ready"
            self.prepare(node)
            if self.net is not None:
                self.net.hosts[home_id].place(node)
            self.nodes.append(node.start())
        self.wait_whole()
        return self

    def statuses(self) -> dict[int, dict[str, Any]]:
        """Return the status of each node that answers."""
        found = {}
        for home_id, node in enumerate(self.nodes):
            if node.running:
                try:
                    found[home_id] = node_status(node, 2.0)
                except OSError:
                    continue
        return found

    def master_id(self) -> int | None:
        """Return the id of the node that calls itself master; None for none or several."""
        masters = [
            home_id for home_id, status in self.statuses().items() if status["standing"] == "MASTER"
        ]
        return masters[0] if len(masters) == 1 else None

    @property
    def master(self) -> Node:
        home_id = self.master_id()
        assert home_id is not None, f"no single master: {self.describe()}"
        return self.nodes[home_id]

    def wait_whole(self, within_s: float = SETTLE_S) -> None:
        """One master, and every other node level with it and in sync by its word."""

        def whole() -> object:
            statuses = self.statuses()
            masters = [one for one in statuses.values() if one["standing"] == "MASTER"]
            if len(statuses) != len(self.nodes) or len(masters) != 1:
                return self.describe()
            links = [link for link in masters[0]["connections"] if link["in_sync"]]
            return len(links) == self.slave_count or self.describe()

        wait_until("whole", whole, within_s)

    def wait_level(self, within_s: float = SETTLE_S) -> None:
        """Nothing is sent any more: every log ends where the others do, and is dispatched."""

        def level() -> object:
            statuses = self.statuses()
            ends = {(one["max_phy_offset"], one["dispatched_offset"]) for one in statuses.values()}
            return (len(statuses) == len(self.nodes) and len(ends) == 1) or self.describe()

        wait_until("level", level, within_s)

    def describe(self) -> str:
        """The set in a few words, for a failing test."""
        told = {
            home_id: {
                key: status.get(key)
                for key in ("standing", "epoch", "log_epoch", "max_phy_offset", "fenced_by")
            }
            | {"links": [(link["peer"], link["in_sync"]) for link in status["connections"]]}
            | {"slave": {key: (status["slave"] or {}).get(key) for key in ("state", "last_error")}}
            for home_id, status in self.statuses().items()
        }
        return str(told)

    def fail_over(
        self, *arguments: str, within_s: float = COMMAND_S, prefix: Sequence[str] = ()
    ) -> Switch:
        """`trioha failover`, without a question."""
        began_s = time.monotonic()
        outcome = run_trioha(
            *("failover", BROKER, "--yes", "-o", "json", "-n", self.namesrv),
            *arguments,
            within_s=within_s,
            prefix=prefix,
        )
        return _switch_of(outcome, began_s)

    def stop(self) -> None:
        """In order, the master last, so that nothing new happens."""
        master_id = self.master_id()
        for home_id, node in enumerate(self.nodes):
            if home_id != master_id and node.running:
                assert node.stop() == 0, node.process.tail()
        if master_id is not None:
            assert self.nodes[master_id].stop() == 0, self.nodes[master_id].process.tail()

    def check_equal_logs(self) -> None:
        """`trioha log diff` of every pair; the nodes are stopped."""
        first, *rest = self.nodes
        for other in rest:
            outcome = run_trioha("log", "diff", str(first.commitlog), str(other.commitlog))
            assert outcome.code == 0, outcome.out + outcome.err


def _switch_of(outcome: Outcome, began_s: float) -> Switch:
    try:
        report = json.loads(outcome.out)
    except json.JSONDecodeError:
        report = {}
    return Switch(outcome.code, report, outcome.out + outcome.err, began_s, time.monotonic())
