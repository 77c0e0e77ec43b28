"""Two trees of trioha under the same loads, in turns: `just bench-trees --before DIR --pairs 9`.

`DIR` is a checkout of an older commit, compiled if this one is. Its nodes and this tree's stand
side by side, and `trioha bench` of this tree is the client of both. A row has the medians of both,
and the medians of the pairs' ratios: of the rate, and of the messages for a second of the master's
processor time, which a busy machine disturbs less. Above 1, this tree is better.

The last row is an empty slave that copies the log of the drains.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import attrs
from bench.bench_tls import BACKLOG, Cluster, Cost, row
from bench.peer.nodes import ReplicaSet, Runtime, open_replica_set
from bench.peer.probe import Probe
from bench.peer.proc import read_cpu
from bench.peer.rows import Topology
from support.processes.rig import REPO

SENDERS = (1, 8, 64)
SECONDS = 2
TOPIC = "drain"
COPIED_S = 180.0
_ASK_PERIOD_S = 0.01


@attrs.frozen
class Tree:
    """The nodes of one tree, in one topology."""

    replicas: ReplicaSet

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.replicas.namesrv.address, self.replicas.master.process.pid, {})

    def start(self) -> None:
        self.replicas.namesrv.start()
        self.replicas.master.start()
        if self.replicas.topology is Topology.SYNC:
            self.replicas.slave.start()
            self.replicas.wait_until_in_sync()

    def fill(self) -> None:
        load = ("produce", "--topic", TOPIC, "--size", "1024", "--count", str(BACKLOG))
        self.cluster.run(*load, "--batch", "32")

    def copy(self) -> Cost:
        """Start an empty slave, wait until it has the log, and stop it; megabytes, not messages.

        Time, processor time of both nodes, and bytes count from when the slave is ready: until
        then Python reads modules.
        """
        replicas = self.replicas
        with Probe(replicas.master.address) as master:
            target = master.max_phy_offset()
        replicas.slave.start()
        with Probe(replicas.slave.address) as slave:
            pids = {name: pid for name, pid in replicas.pids().items() if name != "namesrv"}
            before_s, began = sum(read_cpu(pids).by_name.values()), time.monotonic()
            copied = -slave.max_phy_offset()
            while slave.max_phy_offset() < target:
                assert time.monotonic() - began < COPIED_S, f"not copied in {COPIED_S} s"
                time.sleep(_ASK_PERIOD_S)
        copied += target
        assert copied > 0, "the slave had the whole log when it was ready: fill in more"
        took_s = time.monotonic() - began
        spent_s = sum(read_cpu(pids).by_name.values()) - before_s
        replicas.slave.kill()
        assert replicas.slave.store is not None
        shutil.rmtree(replicas.slave.store)
        return Cost(copied / 1e6 / took_s, spent_s / copied * 1e12)


def compare(label: str, trees: tuple[Tree, Tree], pairs: int, *load: str) -> None:
    runs: tuple[list[Cost], list[Cost]] = ([], [])
    for number in range(pairs):
        # The order alternates: a neighbour's load hits both alike.
        turns = list(zip(trees, runs, strict=True))
        for tree, costs in turns if number % 2 else reversed(turns):
            costs.append(tree.cluster.run(*load) if load else tree.copy())
    print(row(label, *runs), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, metavar="DIR")
    parser.add_argument("--after", type=Path, default=REPO, metavar="DIR", help="this tree")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    runtimes = [Runtime(tree=options.before.resolve()), Runtime(tree=options.after.resolve())]
    for runtime in runtimes:
        print(f"{runtime.tree}: {runtime.version()['build']}")
    print("| load | before | after | rate | for a second of the master's processor |")
    print("|---|---|---|---|---|")
    for topology in (Topology.SYNC, Topology.ALONE):
        with (
            tempfile.TemporaryDirectory(prefix="trioha-bench-trees-") as name,
            open_replica_set("trioha", topology, Path(name, "before"), runtimes[0], {}) as before,
            open_replica_set("trioha", topology, Path(name, "after"), runtimes[1], {}) as after,
        ):
            trees = Tree(before), Tree(after)
            for tree in trees:
                tree.start()
            for senders in SENDERS:
                load = ("produce", "--concurrency", str(senders), "--seconds", str(SECONDS))
                label = f"send, {senders} senders, {topology.role}"
                compare(label, trees, options.pairs, *load, "--warm-up", str(SECONDS / 4))
            if topology is Topology.ALONE:
                for tree in trees:
                    tree.fill()
                compare("drain, 1024 bytes", trees, options.pairs, "consume", "--topic", TOPIC)
                compare("copy to an empty slave, megabytes", trees, options.pairs)


if __name__ == "__main__":
    main()
