"""Cost of an acknowledged message for each node, as a process: `just bench-cost --help`.

Counts of the kernel for the time of a load, divided by the messages that were acknowledged. A
neighbour's load moves them less than rates and latencies: it moves how many messages share a
wake-up. The counts of `bench.cost.rows`, which nothing moves, are in the gate.

Instructions and bytes copied are not here: virtual machines have no counters for them as a rule.
Bytecode instructions are in the gate's rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
from bench.peer.nodes import SETTINGS, Runtime, production_broker
from support.clusters.pair import Make
from support.clusters.raft_group import raft_group
from support.processes.admin import create_topic, wait_for_route
from support.processes.rig import (
    REPO,
    Node,
    Processes,
    running_processes,
    start_all,
    trioha_broker,
    trioha_namesrv,
)

from trioha.compiled import this_build

BUILDS = ("pure", "compiled", "java")
LAYOUTS = ("alone", "SYNC_FLUSH", "async slave", "SYNC", "DLEDGER")
START_S = 60.0
TOPIC = "cost"
LOAD = (
    *(sys.executable, "-m", "trioha", "bench", "produce", "-q", "-o", "json"),
    *("--topic", TOPIC, "--size", "128", "--warm-up", "0"),
)
WARM_UP_S = 1.0
WARM_UPS_MAX = 30


@attrs.frozen
class Cost:
    """Cost of one acknowledged message for one node."""

    cpu_us: float
    system_calls: float | None
    """None where perf is missing, or may not see them."""
    switches: float
    """Times that it gave the processor up, nearly all of them to wait: one wake-up each."""
    taken: float
    """Times that the processor was taken from it: a neighbour's doing."""


@attrs.frozen
class Reading:
    cpu_ns: int
    voluntary: int
    involuntary: int


def read(pid: int) -> Reading:
    """Sum up over the threads that live."""
    cpu_ns = voluntary = involuntary = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        cpu_ns += int((task / "schedstat").read_text().split()[0])
        for line in (task / "status").read_text().splitlines():
            name, _, value = line.partition(":")
            voluntary += int(value) if name == "voluntary_ctxt_switches" else 0
            involuntary += int(value) if name == "nonvoluntary_ctxt_switches" else 0
    return Reading(cpu_ns, voluntary, involuntary)


@contextmanager
def system_calls(pid: int, counts: dict[int, int]) -> Iterator[None]:
    """Count the system calls of a process, by perf, into `counts`."""
    perf = shutil.which("perf")
    if perf is None:
        yield
        return
    counter = subprocess.Popen(
        [perf, "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p", str(pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
    finally:
        counter.send_signal(signal.SIGINT)
        told = counter.communicate()[1]
        first = told.strip().splitlines()[-1].partition(",")[0] if told.strip() else ""
        if first.isdigit():
            counts[pid] = int(first)


def costs(nodes: Mapping[str, Node], namesrv: str, senders: int, seconds: float) -> dict[str, Cost]:
    """Load the nodes for so long, after a second of warming up; cost by node."""
    warm_up(namesrv, senders)
    pids = {name: node.process.pid for name, node in nodes.items()}
    counts: dict[int, int] = {}
    counters = [system_calls(pid, counts) for pid in pids.values()]
    for counter in counters:
        counter.__enter__()
    before = {name: read(pid) for name, pid in pids.items()}
    report = load(namesrv, senders, seconds)
    messages = report["messages"]
    after = {name: read(pid) for name, pid in pids.items()}
    for counter in counters:
        counter.__exit__(None, None, None)
    assert not report["refusals"], f"not all sends were acknowledged: {report['refusals']}"
    return {
        name: Cost(
            (after[name].cpu_ns - before[name].cpu_ns) / 1000 / messages,
            counts[pid] / messages if pid in counts else None,
            (after[name].voluntary - before[name].voluntary) / messages,
            (after[name].involuntary - before[name].involuntary) / messages,
        )
        for name, pid in pids.items()
    }


def warm_up(namesrv: str, senders: int) -> None:
    for _ in range(WARM_UPS_MAX):
        if not load(namesrv, senders, WARM_UP_S)["refusals"]:
            break  # the slave is there


def load(namesrv: str, senders: int, seconds: float) -> dict[str, Any]:
    """Send as fast as answers come; returns the report of `trioha bench`."""
    done = subprocess.run(
        [*LOAD, "--concurrency", str(senders), "--seconds", str(seconds), "-n", namesrv],
        check=True,
        capture_output=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)["report"]
    return report


@contextmanager
def open_nodes(build: str, layout: str, runtime: Runtime) -> Iterator[tuple[dict[str, Node], str]]:
    """Yield running nodes by their place, and the name server's address."""
    with (
        tempfile.TemporaryDirectory(prefix="trioha-bench-cost-") as name,
        running_processes(Path(name)) as processes,
    ):
        namesrv = trioha_namesrv(processes).start()
        if layout == "DLEDGER":
            nodes = _start_group(processes, namesrv.address, build, runtime)
        else:
            nodes = _start_set(processes, namesrv.address, build, layout, runtime)
        create_topic(nodes["master"].address, namesrv.address, TOPIC, 8)
        wait_for_route(namesrv.address, TOPIC)
        yield nodes, namesrv.address


def _start_set(
    processes: Processes, namesrv: str, build: str, layout: str, runtime: Runtime
) -> dict[str, Node]:
    make = production_broker if build == "java" else trioha_broker
    role = "SYNC_MASTER" if layout == "SYNC" else "ASYNC_MASTER"
    settings = {**SETTINGS, "flushDiskType": "SYNC_FLUSH"} if layout == "SYNC_FLUSH" else SETTINGS
    nodes = {"master": make(processes, namesrv, broker_id=0, role=role, settings=settings)}
    if layout not in ("alone", "SYNC_FLUSH"):
        nodes["slave"] = make(processes, namesrv, broker_id=1, role="SLAVE", settings=settings)
    for node in nodes.values():
        (node if build == "java" else runtime.take(node)).start()
    return nodes


def _start_group(
    processes: Processes, namesrv: str, build: str, runtime: Runtime
) -> dict[str, Node]:
    make: Make = "java" if build == "java" else "trioha"
    group = raft_group(
        processes, namesrv, make=make, settings=SETTINGS, java_broker=production_broker
    )
    if build != "java":
        for node in group.nodes:
            runtime.take(node)
    start_all(group.nodes, START_S)
    leader = group.wait_for_leader()
    group.wait_for_followers()
    followers = enumerate(group.followers_of(leader), 1)
    return {"master": leader} | {f"follower {number}": node for number, node in followers}


@contextmanager
def open_runtime(build: str) -> Iterator[Runtime]:
    """Yield the trioha of a build: this checkout, or a copy of its sources alone."""
    if build != "pure" or not this_build().compiled:
        if build == "compiled" and not this_build().compiled:
            sys.exit("no compiled modules here: `just compile`, or leave out --build compiled")
        yield Runtime()
        return
    with tempfile.TemporaryDirectory(prefix="trioha-pure-") as name:
        ignored = shutil.ignore_patterns("*.so", "__pycache__", "compiled_sources.json")
        shutil.copytree(REPO / "trioha", Path(name, "trioha"), ignore=ignored)
        yield Runtime(tree=Path(name))


def row(label: str, rounds: list[dict[str, Cost]]) -> Iterator[str]:
    """Yield a line per node: medians, and the least and the most of processor time."""
    for node in rounds[0]:
        of_node = [one[node] for one in rounds]
        cpu = sorted(one.cpu_us for one in of_node)
        counted = [one.system_calls for one in of_node if one.system_calls is not None]
        shown = f"{statistics.median(counted):.2f}" if counted else "-"
        yield (
            f"| {label} | {node} | {statistics.median(cpu):.1f} ({cpu[0]:.1f} to {cpu[-1]:.1f}) "
            f"| {shown} | {statistics.median(one.switches for one in of_node):.3f} "
            f"| {statistics.median(one.taken for one in of_node):.3f} |"
        )


def beside(before: Path, layout: str, senders: int, rounds: int, seconds: float) -> Iterator[str]:
    """Load the nodes of another tree and of this one in turns; yield a line per node, and one for
    all nodes together: medians of both, and of the ratio within a round."""
    with ExitStack() as stack:
        trees = [
            stack.enter_context(open_nodes("compiled", layout, runtime))
            for runtime in (Runtime(tree=before), Runtime())
        ]
        pairs: list[list[dict[str, float]]] = []
        for number in range(rounds):
            pair: list[dict[str, float]] = [{}, {}]
            for place in (0, 1) if number % 2 else (1, 0):
                of_node = costs(*trees[place], senders, seconds)
                pair[place] = {node: cost.cpu_us for node, cost in of_node.items()}
                pair[place]["all"] = sum(pair[place].values())
            pairs.append(pair)
    for node in pairs[0][0]:
        then, now = (statistics.median(pair[side][node] for pair in pairs) for side in (0, 1))
        ratios = sorted(pair[1][node] / pair[0][node] for pair in pairs)
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        yield f"| {layout}, {senders} | {node} | {then:.1f} | {now:.1f} | {ratio} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", choices=BUILDS, action="append")
    parser.add_argument("--layout", choices=LAYOUTS, action="append")
    parser.add_argument("--senders", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument(
        "--before",
        type=Path,
        help="a checkout, compiled as this one is, to be loaded in turns with it",
    )
    options = parser.parse_args()
    if options.before is not None:
        print("| layout, senders | node | us before | us now | now to before |")
        print("|---|---|---|---|---|")
        for layout in options.layout or LAYOUTS:
            for senders in options.senders or (1, 8, 64):
                load_of = (layout, senders, options.rounds, options.seconds)
                for line in beside(options.before.resolve(), *load_of):
                    print(line, flush=True)
        return
    if shutil.which("perf") is None:
        print("No perf here: system calls are not counted.", file=sys.stderr)
    print(f"Load average of the machine: {os.getloadavg()[0]:.1f}.", file=sys.stderr)
    print("| build, layout, senders | node | us of processor | system calls | waits | preempted |")
    print("|---|---|---|---|---|---|")
    for build in options.build or BUILDS:
        with open_runtime(build) as runtime:
            for layout in options.layout or LAYOUTS:
                with open_nodes(build, layout, runtime) as (nodes, namesrv):
                    for senders in options.senders or (1, 8, 64):
                        rounds = [
                            costs(nodes, namesrv, senders, options.seconds)
                            for _ in range(options.rounds)
                        ]
                        for line in row(f"{build}, {layout}, {senders}", rounds):
                            print(line, flush=True)


if __name__ == "__main__":
    main()
