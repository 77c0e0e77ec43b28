"""Rows whose figures a load client tells: against a replica set that runs and is warm.

Whatever goes wrong is raised; the runner keeps it as the row's failure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from bench.peer.load_clients import Outcome, run_load
from bench.peer.nodes import MIB, ReplicaSet
from bench.peer.rows import BATCH, Row

TOPIC = "bench"
LOAD_SLACK_S = 60.0
_topics = itertools.count(1)


@attrs.frozen(kw_only=True)
class Scale:
    """How long and how much."""

    seconds: float = 8.0
    warm_up_s: float = 3.0
    broker_warm_up_s: float = 10.0
    """A fresh JVM has compiled little: 64 threads send this long before the first row."""
    e2e_seconds: float = 20.0
    backlog: int = 1_000_000
    log_bytes: int = 1024 * MIB
    calm_s: float = 3.0
    """Of paced sends before and after a slave is lost and back."""


QUICK = Scale(
    seconds=1.0,
    warm_up_s=1.5,
    broker_warm_up_s=1.0,
    e2e_seconds=2.0,
    backlog=32 * 1000,
    log_bytes=64 * MIB,
    calm_s=1.0,
)


@attrs.frozen(kw_only=True)
class Measured:
    """What one scenario saw."""

    figures: Mapping[str, float]
    count: int
    errors: Mapping[str, int] = attrs.field(factory=dict)
    other_cpu_s: float = 0.0
    elapsed_s: float = 0.0
    extra: Mapping[str, Any] = attrs.field(factory=dict)


def measure_load(replicas: ReplicaSet, row: Row, scale: Scale) -> Measured:
    """A row whose figures a load client tells. The replica set runs."""
    return _LOADS[row.scenario](replicas, row, scale)


def needs_running_nodes(row: Row) -> bool:
    return row.scenario in _LOADS


def warm_up(replicas: ReplicaSet, scale: Scale) -> None:
    """Bring a fresh broker to speed and create the topic that sends go to."""
    replicas.create_topic(TOPIC)
    options = {"topic": TOPIC, "threads": 64, "bytes": 128, "warm_up_s": 0.0}
    seconds = scale.broker_warm_up_s
    run_load(replicas, "java", "send", {**options, "seconds": seconds}, seconds + LOAD_SLACK_S)


def fill(replicas: ReplicaSet, topic: str, messages: int, size: int) -> int:
    """Send in batches from the Java client; how many are stored. Errors: LoadFailed."""
    replicas.create_topic(topic)
    options = {
        "topic": topic,
        "threads": 4,
        "batch": BATCH,
        "bytes": size,
        "messages": messages // BATCH * BATCH,
    }
    # Slower than this no broker is worth measuring.
    outcome = run_load(replicas, "java", "send", options, LOAD_SLACK_S + messages / 2000)
    assert outcome.stored > 0, f"nothing was stored: {dict(outcome.errors)}"
    return outcome.stored


def _send(replicas: ReplicaSet, row: Row, scale: Scale) -> Measured:
    return _of_outcome(_run(replicas, row, scale, TOPIC, scale.seconds))


def _end_to_end(replicas: ReplicaSet, row: Row, scale: Scale) -> Measured:
    # The consumer starts at the first message there is.
    topic = f"e2e_{next(_topics)}"
    replicas.create_topic(topic)
    return _of_outcome(_run(replicas, row, scale, topic, scale.e2e_seconds))


def _drain(replicas: ReplicaSet, row: Row, scale: Scale) -> Measured:
    topic = f"drain_{next(_topics)}"
    size = row.options["bytes"]
    assert isinstance(size, int)
    stored = fill(replicas, topic, scale.backlog, size)
    options = {**row.options, "topic": topic, "messages": stored}
    outcome = run_load(replicas, row.client, "drain", options, LOAD_SLACK_S + stored / 1000)
    return _of_outcome(outcome)


def _run(replicas: ReplicaSet, row: Row, scale: Scale, topic: str, seconds: float) -> Outcome:
    options = {
        **row.options,
        "topic": topic,
        "warm_up_s": scale.warm_up_s,
        "seconds": seconds,
    }
    within_s = scale.warm_up_s + seconds + LOAD_SLACK_S
    return run_load(replicas, row.client, row.scenario, options, within_s)


def _of_outcome(outcome: Outcome) -> Measured:
    count = int(outcome.figures["count"])
    why = f"{dict(outcome.errors)} {outcome.first_error or ''}"
    assert count > 0, f"no message went through: {why}"
    figures: dict[str, float] = {
        name: value for name, value in outcome.figures.items() if name != "count"
    }
    other_cpu_s = 0.0
    if outcome.cpu is not None:
        other_cpu_s = outcome.cpu.others
        for name, used_s in outcome.cpu.by_name.items():
            figures[f"{name}_cpu_s_per_million"] = used_s / count * 1e6
    return Measured(
        figures=figures,
        count=count,
        errors=outcome.errors,
        other_cpu_s=other_cpu_s,
        elapsed_s=outcome.elapsed_s,
        extra={"first_error": outcome.first_error} if outcome.first_error else {},
    )


_LOADS: Mapping[str, Callable[[ReplicaSet, Row, Scale], Measured]] = {
    "send": _send,
    "async": _send,
    "drain": _drain,
    "e2e": _end_to_end,
}
