"""Rows that start nodes of their own: starting, filling or losing them is what they measure.

Whatever goes wrong is raised; the runner keeps it as the row's failure.
"""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from bench.peer.load_clients import HERE, run_load, start_load
from bench.peer.loads import LOAD_SLACK_S, TOPIC, Measured, Scale, fill
from bench.peer.nodes import MIB, QUEUES, START_S, ReplicaSet, open_replica_set
from bench.peer.probe import Probe, wait_for_accepted_send, wait_for_probe
from bench.peer.proc import read_cpu, read_memory
from bench.peer.results import Side
from bench.peer.rows import Row
from support.processes import Node

HA_SEGMENT = 1536 * MIB
"""One file for all of it: a Java master gives an empty slave its newest file only."""
RECORD_OVERHEAD = 120
"""About what a record adds to its body."""
FILL_BODY = 1024
CATCH_UP_S = 180.0
COUNTED_S = 60.0
PACED_RATE = 50
ASK_PERIOD_S = 0.005
SETTLE_S = 2.0


def measure_nodes(side: Side, row: Row, scale: Scale, root: Path) -> Measured:
    """A row that starts its own nodes below `root`."""
    before, before_s = _all_and_own_cpu_s(), time.monotonic()
    measured = _NODES[row.scenario](side, row, scale, root)
    # By now every child has ended and is accounted for.
    after = _all_and_own_cpu_s()
    return attrs.evolve(
        measured,
        other_cpu_s=max(0.0, after[0] - before[0] - (after[1] - before[1])),
        elapsed_s=time.monotonic() - before_s,
    )


def _all_and_own_cpu_s() -> tuple[float, float]:
    """Processor seconds of all processes, and of this one with its ended children."""
    times = os.times()
    return read_cpu({}).all_processes, sum(times[:4])


def _catch_up(side: Side, row: Row, scale: Scale, root: Path) -> Measured:
    """A master holds a log in one file; an empty slave is started."""
    settings = {"mappedFileSizeCommitLog": HA_SEGMENT}
    with open_replica_set(side, row.topology, root, settings) as replicas:
        _start_master(replicas)
        fill(replicas, TOPIC, scale.log_bytes // (FILL_BODY + RECORD_OVERHEAD), FILL_BODY)
        time.sleep(SETTLE_S)
        with Probe(replicas.master.address) as master:
            target = master.max_phy_offset()
        source = _first_segment(replicas.master)
        bare_s = _bare_copy(source, root / "bare", target)

        began_s = time.monotonic()
        replicas.slave.process.start()
        with wait_for_probe(replicas.slave.address, START_S) as slave:
            answered_s = empty_s = time.monotonic()
            while (offset := slave.max_phy_offset()) < target:
                now_s = time.monotonic()
                if offset <= 0:
                    empty_s = now_s
                assert now_s - began_s < CATCH_UP_S, f"at {offset:,} of {target:,} bytes"
                time.sleep(ASK_PERIOD_S)
        done_s = time.monotonic()
        _check_equal(source, _first_segment(replicas.slave), target)
    rate = target / MIB / (done_s - empty_s)
    return Measured(
        figures={
            "mib_per_s": rate,
            "bare_mib_per_s": target / MIB / bare_s,
            "of_bare_copy": rate / (target / MIB / bare_s),
            "answered_s": answered_s - began_s,
            "first_byte_s": empty_s - began_s,
            "caught_up_s": done_s - began_s,
        },
        count=target,
    )


def _slave_loss(side: Side, row: Row, scale: Scale, root: Path) -> Measured:
    """One default producer sends on while the slave is killed and comes back."""
    with open_replica_set(side, row.topology, root) as replicas:
        replicas.start()
        replicas.create_topic(TOPIC)
        options = {"topic": TOPIC, "bytes": 128, "rate": PACED_RATE}
        load = start_load(replicas, "java", "paced", options, watch_slave=False)
        load.wait_until_measuring()
        time.sleep(scale.calm_s)
        killed_ms = time.time() * 1000
        replicas.slave.kill()
        # Longer than slaveTimeout and the client's own, so that the loss is over and done with.
        time.sleep(4 + scale.calm_s)
        back_ms = time.time() * 1000
        replicas.slave.start(START_S)
        replicas.wait_until_in_sync()
        time.sleep(scale.calm_s)
        load.finish()
        outcome = load.outcome(LOAD_SLACK_S)
    sends = outcome.figures["sends"]
    before = [took_ms for at_ms, took_ms, _ in sends if at_ms + took_ms < killed_ms]
    lost = [took_ms for at_ms, took_ms, _ in sends if killed_ms <= at_ms + took_ms < back_ms]
    rejoined = [took_ms for at_ms, took_ms, _ in sends if at_ms + took_ms >= back_ms]
    counts = [len(before), len(lost), len(rejoined)]
    assert all(counts), f"sends before the loss, during and after it: {counts}"
    return Measured(
        figures={
            "longest_before_ms": max(before),
            "longest_after_kill_ms": max(lost),
            "longest_after_rejoin_ms": max(rejoined),
        },
        count=len(sends),
        errors=outcome.errors,
        extra={"killed_ms": killed_ms, "back_ms": back_ms, "sends": sends},
    )


def _start(side: Side, row: Row, scale: Scale, root: Path) -> Measured:
    """From the exec of a broker to the first message it stores, by what became of its store."""
    state = row.name.rpartition("/")[2]
    with open_replica_set(side, row.topology, root) as replicas:
        errors: dict[str, int] = {}
        if state == "empty":
            replicas.namesrv.start(START_S)
            figures = _timed_start(replicas.master)
            return Measured(figures=figures, count=1)
        _start_master(replicas)
        messages = scale.log_bytes // (FILL_BODY + RECORD_OVERHEAD)
        stored = fill(replicas, TOPIC, messages, FILL_BODY)
        if state == "killed":
            replicas.master.kill()
        else:
            replicas.master.stop(COUNTED_S)
        figures = _timed_start(replicas.master)
        missing = stored - _wait_for_messages(replicas.master, stored)
        if missing > 0:
            errors["lost messages"] = missing
        return Measured(figures=figures, count=1, errors=errors, extra={"messages": stored})


def _memory(side: Side, row: Row, scale: Scale, root: Path) -> Measured:
    """Resident memory of a master, fresh or after 64 threads have sent for a while."""
    with open_replica_set(side, row.topology, root) as replicas:
        _start_master(replicas)
        count = 1
        errors: Mapping[str, int] = {}
        if row.name.endswith("loaded"):
            replicas.create_topic(TOPIC)
            options = {"topic": TOPIC, "threads": 64, "bytes": 128, "warm_up_s": 0.0}
            options["seconds"] = scale.warm_up_s + scale.seconds
            outcome = run_load(
                replicas, "java", "send", options, scale.warm_up_s + scale.seconds + LOAD_SLACK_S
            )
            count, errors = outcome.stored, outcome.errors
            assert count > 0, f"no message went through: {dict(errors)}"
        time.sleep(SETTLE_S)
        store = replicas.master.store
        assert store is not None
        memory = read_memory(replicas.master.process.pid, store)
    figures = {
        "rss_mib": memory.rss,
        "private_mib": memory.private,
        "beyond_log_mib": memory.beyond_log,
    }
    return Measured(figures=figures, count=count, errors=errors)


def _start_master(replicas: ReplicaSet) -> None:
    replicas.namesrv.start(START_S)
    replicas.master.start(START_S)
    wait_for_accepted_send(replicas.master.address, START_S)


def _timed_start(node: Node) -> dict[str, float]:
    ready_s: list[float] = []

    def hear(line: str) -> None:
        if not ready_s and re.search(node.ready_pattern, line):
            ready_s.append(time.monotonic())

    node.process.on_line = hear
    began_s = time.monotonic()
    node.process.start()
    wait_for_accepted_send(node.address, START_S)
    accepted_s = time.monotonic()
    node.process.wait_for_line(node.ready_pattern, START_S)
    node.process.on_line = None
    return {"first_send_s": accepted_s - began_s, "ready_s": ready_s[0] - began_s}


def _wait_for_messages(node: Node, expected: int) -> int:
    """How many messages the topic has, once it is `expected` or a deadline has passed."""
    deadline = time.monotonic() + COUNTED_S
    with Probe(node.address) as probe:
        while True:
            count = probe.message_count(TOPIC, QUEUES)
            if count >= expected or time.monotonic() > deadline:
                return count
            time.sleep(ASK_PERIOD_S)


def _first_segment(node: Node) -> Path:
    return min(node.commitlog.iterdir())


def _bare_copy(source: Path, target: Path, size: int) -> float:
    command = [sys.executable, str(HERE / "bare_copy.py"), str(source), str(target), str(size)]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=CATCH_UP_S)
    target.unlink()
    return float(run.stdout)


def _check_equal(ours: Path, theirs: Path, size: int) -> None:
    """Errors: AssertionError when the two logs differ within `size` bytes."""
    with (
        ours.open("rb") as left,
        theirs.open("rb") as right,
        mmap.mmap(left.fileno(), size, prot=mmap.PROT_READ) as one,
        mmap.mmap(right.fileno(), size, prot=mmap.PROT_READ) as other,
    ):
        for begin in range(0, size, MIB):
            end = min(begin + MIB, size)
            assert one[begin:end] == other[begin:end], f"logs differ after byte {begin:,}"


_NODES: Mapping[str, Callable[[Side, Row, Scale, Path], Measured]] = {
    "catch_up": _catch_up,
    "slave_loss": _slave_loss,
    "start": _start,
    "memory": _memory,
}
