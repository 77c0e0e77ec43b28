"""Rows under load: of a client that tells the figures, or of one socket of our own.

All are measured against a replica set that runs and is warm.

Whatever goes wrong is raised; the runner keeps it as the row's failure.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import attrs
from bench.peer.load_clients import HERE, Outcome
from bench.peer.own_producer import measure_own_producer
from bench.peer.probe import Probe
from bench.peer.results import Measured
from bench.peer.rows import Row, Topology
from bench.peer.stage import LOAD_SLACK_S, TOPIC, Stage, client_of

DUE_AFTER_S = 20.0
"""Time to send what falls due together. The consumer waits so long for its first message."""
CONSUMER_START_S = 3.0


def measure_load(stage: Stage, row: Row) -> Measured:
    """One row. Starts the nodes when they do not run yet."""
    stage.start()
    stage.replicas.check_running()
    _, header = client_of(row)
    stage.meet(header)
    return LOADS[row.scenario](stage, row)


def _send(stage: Stage, row: Row) -> Measured:
    return _of_outcome(_run(stage, row, TOPIC, stage.scale.seconds))


def _end_to_end(stage: Stage, row: Row) -> Measured:
    # The consumer starts at the first message there is.
    return _of_outcome(_run(stage, row, stage.new_topic("e2e"), stage.scale.e2e_seconds))


def _drain(stage: Stage, row: Row) -> Measured:
    topic = stage.new_topic("drain")
    size = row.options["bytes"]
    assert isinstance(size, int)
    stored = stage.fill(stage.scale.backlog, size, topic)
    kind, header = client_of(row)
    options = {**row.options, "topic": topic, "messages": stored}
    return _of_outcome(stage.run_load(kind, "drain", options, LOAD_SLACK_S + stored / 1000, header))


def _filtered(stage: Stage, row: Row) -> Measured:
    percent, size = row.options["percent"], row.options["bytes"]
    assert isinstance(percent, int)
    assert isinstance(size, int)
    topic, stored = stage.numbered_backlog(size)
    kind, header = client_of(row)
    options = {
        **row.options,
        "topic": topic,
        "sql": f"n < {percent}",
        "messages": stored * percent // 100,
    }
    return _of_outcome(stage.run_load(kind, "drain", options, LOAD_SLACK_S + stored / 1000, header))


def _pending(stage: Stage, row: Row) -> Measured:
    topic = stage.waiting_timers()
    return _of_outcome(_run(stage, row, topic, stage.scale.seconds, mode="send"))


def _due(stage: Stage, row: Row) -> Measured:
    stage.waiting_timers()
    topic, messages = stage.new_topic("due"), stage.scale.due_timers
    due_s = time.time() + DUE_AFTER_S
    stage.fill_timers(messages, topic, deliver_at_ms=int(due_s * 1000))
    left_s = due_s - time.time()
    assert left_s > CONSUMER_START_S, f"the last was sent {left_s:.1f} s before all fall due"
    kind, header = client_of(row)
    options = {**row.options, "topic": topic, "messages": messages}
    return _of_outcome(
        stage.run_load(kind, "drain", options, LOAD_SLACK_S + messages / 1000, header)
    )


def _frames(stage: Stage, row: Row) -> Measured:
    """Time sends of one socket, and beside them frames that no process parses (`bare_relay`)."""
    size, count = row.options["bytes"], stage.scale.frames
    assert isinstance(size, int)
    with Probe(stage.replicas.master.address) as probe:
        probe.timed_sends(TOPIC, size, count // 10)
        took_ms = probe.timed_sends(TOPIC, size, count)
    # An asynchronous slave delays no answer.
    followers = 1 if row.topology is Topology.SYNC else 0
    command = [sys.executable, str(HERE / "bare_relay.py"), str(followers), "500", str(count)]
    bare = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LOAD_SLACK_S)
    figures = {
        "p50_ms": statistics.median(took_ms),
        "p99_ms": statistics.quantiles(took_ms, n=100)[98],
        "bare_p50_ms": float(bare.stdout.split()[0]),
    }
    return Measured(figures=figures, count=count)


def _run(stage: Stage, row: Row, topic: str, seconds: float, mode: str = "") -> Outcome:
    kind, header = client_of(row)
    warm_up_s = stage.scale.warm_up_s
    options = {**row.options, "topic": topic, "warm_up_s": warm_up_s, "seconds": seconds}
    within_s = warm_up_s + seconds + LOAD_SLACK_S
    return stage.run_load(kind, mode or row.scenario, options, within_s, header)


def _of_outcome(outcome: Outcome) -> Measured:
    count = int(outcome.figures["count"])
    why = f"{dict(outcome.errors)} {outcome.first_error or ''}"
    assert count > 0, f"no message went through: {why}"
    figures: dict[str, float] = {
        name: value for name, value in outcome.figures.items() if name != "count"
    }
    measured = Measured(
        figures=figures,
        count=count,
        errors=outcome.errors,
        elapsed_s=outcome.elapsed_s,
        extra={"first_error": outcome.first_error} if outcome.first_error else {},
    )
    if outcome.cpu is None:
        return measured
    for name, used_s in outcome.cpu.by_name.items():
        figures[f"{name}_cpu_s_per_million"] = used_s / count * 1e6
    return attrs.evolve(measured, other_cpu_s=outcome.cpu.others)


LOADS: Mapping[str, Callable[[Stage, Row], Measured]] = {
    "send": _send,
    "async": _send,
    "drain": _drain,
    "filtered": _filtered,
    "pending": _pending,
    "due": _due,
    "e2e": _end_to_end,
    "frames": _frames,
    "producer": measure_own_producer,
}
