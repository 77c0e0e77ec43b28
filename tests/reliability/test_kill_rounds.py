"""kill -9 of a master, its slave or both at random points under load, then everything is judged.

Fault A12 is these rounds: after each of them the consume queues are the
projection of the log, and nothing else.

The draw of a round comes from its seed alone, which a failure prints. Processes die here, not the
machine: whatever a process had written is in the page cache, so an ASYNC_MASTER keeps all that it
acknowledged, too. `HA_ROUNDS` asks for so many rounds with each cluster, `HA_SEED` for others.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from support.clusters.pair import Cluster
from support.histories.load import Load
from support.histories.load_history import LoadHistory
from support.processes.admin import create_topic
from support.processes.rig import Node
from support.processes.status import check_sound, node_status, run_trioha, wait_in_sync, wait_level
from support.suite.sizes import KILL_ROUNDS, drawn_seeds

from trioha.store.inspect import diff_logs

FIRST_SEED = int(os.environ.get("HA_SEED", drawn_seeds("kill rounds", 1000).start))
ACKED_MAX = 600
TOPIC = "T"
FAULTS = ("master", "master", "slave", "both", "master twice", "slave twice")
SETTINGS: dict[str, object] = {"slaveTimeout": 1000}
# One for each cluster of a role: what decides how far the disk, the queues and the slave lag.
VARIANTS: tuple[dict[str, object], ...] = (
    {},
    {"flushDiskType": "SYNC_FLUSH"},
    {"haTransferBatchSize": 1000},
    {"flushIntervalCommitLog": 10, "flushIntervalConsumeQueue": 10},
    {"flushIntervalCommitLog": 600_000, "flushIntervalConsumeQueue": 600_000},
)


def kill_soon(rng: random.Random, node: Node) -> None:
    """Let the load run on for a moment of the seed's choice, then kill."""
    time.sleep(rng.choice((0.0, rng.uniform(0, 0.05))))
    node.kill()


def restart(rng: random.Random, node: Node, *, twice: bool) -> None:
    if twice:
        # Somewhere in its start: imports, recovery, registration, or a moment after.
        node.process.start()
        time.sleep(rng.uniform(0.1, 0.9))
        node.kill()
    node.start()


class Rounds:
    """One cluster and its rounds of kills."""

    def __init__(self, cluster: Cluster, role: str, settings: dict[str, object]) -> None:
        self.cluster = cluster
        self.is_sync = role == "SYNC_MASTER"
        self.history = LoadHistory(TOPIC)
        self.faults: list[str] = []
        cluster.start(role, slave=True, settings={**SETTINGS, **settings})
        create_topic(cluster.master.address, cluster.namesrv, TOPIC)

    def run(self, seed: int) -> None:
        rng = random.Random(seed)
        fault = rng.choice(FAULTS)
        self.faults.append(fault)
        master, slave = self.cluster.master, self.cluster.slave
        wait_in_sync(master)
        # If the master lives on, the load is slower, or its log would outgrow the checks.
        pace_s = rng.uniform(0.002, 0.01) if fault.startswith("slave") else 0.0
        senders = rng.randint(1, 4)
        load = Load(
            master.address, TOPIC, seed=seed, label=f"{seed}", senders=senders, pace_s=pace_s
        )
        load.start().wait_for_acked(rng.randint(1, ACKED_MAX))
        if fault.startswith("slave"):
            kill_soon(rng, slave)
            # An ASYNC_MASTER does not care; a SYNC_MASTER stores, and says that no slave has it.
            load.wait_for_more(rng.randint(1, 100))
            if fault == "slave twice":
                slave.start()
                kill_soon(rng, slave)
            slave.start()
            load.wait_for_more(rng.randint(1, 200))
            load.stop()
        else:
            if fault == "both":
                kill_soon(rng, slave)
                kill_soon(rng, master)
            else:
                # Stopped first, so that its store is looked at as it was at the master's death.
                slave.process.signal(signal.SIGSTOP)
                kill_soon(rng, master)
            load.stop()
        self.history.add(load.sent)
        if not fault.startswith("slave"):
            if self.is_sync:
                self.history.check_replica(slave.commitlog)
            if fault == "both":
                nodes = [master, slave]
                rng.shuffle(nodes)
                for node in nodes:
                    restart(rng, node, twice=False)
            else:
                slave.process.signal(signal.SIGCONT)
                restart(rng, master, twice=fault == "master twice")
        self.judge()

    def judge(self) -> None:
        master, slave = self.cluster.master, self.cluster.slave
        end = wait_level(master, slave)
        self.history.check(master.commitlog)
        for node in (master, slave):
            check_sound(node)
        report = diff_logs(master.commitlog, slave.commitlog)
        assert report.equal, report
        assert report.end_a == end, f"{report}, but the master says {end}"


def rounds_of(cluster_number: int) -> int:
    """Return the share of one of the clusters: a role and a variant."""
    if "HA_ROUNDS" in os.environ:
        return int(os.environ["HA_ROUNDS"])
    return len(range(cluster_number, KILL_ROUNDS, 2 * len(VARIANTS)))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(VARIANTS)))
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_nothing_acknowledged_is_lost_when_processes_are_killed(
    cluster: Cluster, role: str, number: int
) -> None:
    rounds = Rounds(cluster, role, VARIANTS[number])
    first = FIRST_SEED + 100 * number + (50 if role == "SYNC_MASTER" else 0)
    count = rounds_of(2 * number + (role == "SYNC_MASTER"))
    for seed in range(first, first + count):
        try:
            rounds.run(seed)
        except BaseException:
            print(f"round with seed {seed} of {role} failed; faults so far {rounds.faults}")
            raise
    print(f"{role}: {rounds.faults}, {rounds.history.acknowledged} acknowledged")
    assert rounds.history.acknowledged > count
    status = node_status(cluster.master)
    assert status["puts_waiting"] == 0
    # After an orderly stop as well, by the word of the operator's own commands.
    assert cluster.slave.stop() == 0
    assert cluster.master.stop() == 0
    for node in (cluster.master, cluster.slave):
        verified = run_trioha("log", "verify", str(node.store))
        assert verified.code == 0, verified
        assert not (node.commitlog.parent / "abort").exists()
    diffed = run_trioha("log", "diff", str(cluster.master.store), str(cluster.slave.store))
    assert diffed.code == 0, diffed
