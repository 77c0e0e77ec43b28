"""Rows whose figures the harness takes itself: nodes that start, are filled or are lost.

Whatever goes wrong is raised; the runner keeps it as the row's failure. The rows of a broker's life
(start, memory, start after kill -9, start after a stop) share one broker and one filling; each
finds it as the row before left it, or gets it there first.
"""

from __future__ import annotations

import mmap
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
from bench.peer.load_clients import HERE
from bench.peer.nodes import QUEUES, START_S
from bench.peer.probe import Probe, wait_for_accepted_send, wait_for_probe
from bench.peer.proc import read_memory
from bench.peer.results import Measured
from bench.peer.rows import Row
from bench.peer.scale import MIB
from bench.peer.stage import LOAD_SLACK_S, TOPIC, Stage
from support.processes.rig import Node

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


def measure_nodes(stage: Stage, row: Row) -> Measured:
    """One row; all of it counts as measured time."""
    before_s, began_s = stage.strangers_cpu_s(), time.monotonic()
    measured = _NODES[row.scenario](stage, row)
    return attrs.evolve(
        measured,
        other_cpu_s=max(0.0, stage.strangers_cpu_s() - before_s),
        elapsed_s=time.monotonic() - began_s,
    )


def settings_of(row: Row) -> Mapping[str, object]:
    """Return the settings that a row's block needs beside the common ones."""
    return {"mappedFileSizeCommitLog": HA_SEGMENT} if row.scenario == "catch_up" else {}


def _catch_up(stage: Stage, row: Row) -> Measured:
    """A master holds a log in one file; an empty slave is started."""
    replicas = stage.replicas
    _start_master(stage)
    stage.fill(_messages(stage), FILL_BODY)
    time.sleep(SETTLE_S)
    with Probe(replicas.master.address) as master:
        target = master.max_phy_offset()
    source = _first_segment(replicas.master)
    bare_s = _bare_copy(source, replicas.root / "bare", target)

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


def _slave_loss(stage: Stage, row: Row) -> Measured:
    """One default producer sends on while the slave is killed and comes back."""
    stage.start()
    replicas, calm_s = stage.replicas, stage.scale.calm_s
    options = {"topic": TOPIC, "bytes": 128, "rate": PACED_RATE}
    load = stage.begin_load("java", "paced", options)
    load.wait_until_measuring()
    time.sleep(calm_s)
    killed_ms = time.time() * 1000
    replicas.slave.kill()
    # Longer than slaveTimeout and the client's own, so that the loss is over and done with.
    time.sleep(4 + calm_s)
    back_ms = time.time() * 1000
    replicas.slave.start(START_S)
    replicas.wait_until_in_sync()
    time.sleep(calm_s)
    load.finish()
    # The slave of the first reading is gone: processor time of this run means nothing.
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


def _start_empty(stage: Stage, row: Row) -> Measured:
    """From the exec of a broker to the first message it stores."""
    stage.replicas.namesrv.start(START_S)
    return Measured(figures=_timed_start(stage.replicas.master), count=1)


def _start_again(stage: Stage, row: Row) -> Measured:
    """The same with a gigabyte of log, by how the broker ended before."""
    master = stage.replicas.master
    _start_master(stage)
    if not stage.stored:
        stage.fill(_messages(stage), FILL_BODY)
    if row.name.endswith("killed"):
        master.kill()
    else:
        master.stop(COUNTED_S)
    figures = _timed_start(master)
    missing = stage.stored - _wait_for_messages(master, stage.stored)
    errors = {"lost messages": missing} if missing > 0 else {}
    return Measured(figures=figures, count=1, errors=errors, extra={"messages": stage.stored})


def _memory(stage: Stage, row: Row) -> Measured:
    """Resident memory of the master: as it started, or with all behind it that came before."""
    if row.name.endswith("loaded"):
        stage.start()
    else:
        _start_master(stage)
    time.sleep(SETTLE_S)
    master = stage.replicas.master
    assert master.store is not None
    memory = read_memory(master.process.pid, master.store)
    figures = {
        "rss_mib": memory.rss,
        "private_mib": memory.private,
        "beyond_log_mib": memory.beyond_log,
    }
    return Measured(figures=figures, count=1)


def _start_master(stage: Stage) -> None:
    """Unless it runs."""
    for node in (stage.replicas.namesrv, stage.replicas.master):
        if not node.running:
            node.start(START_S)
    wait_for_accepted_send(stage.replicas.master.address, START_S)


def _messages(stage: Stage) -> int:
    return stage.scale.log_bytes // (FILL_BODY + RECORD_OVERHEAD)


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
    """Return the topic's message count once it reaches `expected`, or at a deadline."""
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


_NODES: Mapping[str, Callable[[Stage, Row], Measured]] = {
    "catch_up": _catch_up,
    "slave_loss": _slave_loss,
    "start_empty": _start_empty,
    "start_again": _start_again,
    "memory": _memory,
}
