"""Sends as fast as they go: the Java load client and `trioha bench`, at 1, 8 and 64 senders."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import attrs
from bench.peer.load_clients import LoadClient, LoadFailed, open_load_client
from bench.raft.samples import Sample, Strangers, now_text
from bench.raft.sides import TOPIC, Scene
from support.processes.rig import REPO

THREADS = (1, 8, 64)
SLACK_S = 60.0
Run = Callable[[], tuple[Mapping[str, float], Mapping[str, int]]]


@attrs.frozen(kw_only=True)
class Pace:
    """Duration of each part, and size of a message."""

    seconds: float = 3.0
    warm_up_s: float = 0.6
    broker_warm_up_s: float = 6.0
    """A fresh JVM has compiled little: 64 threads send this long before anything is measured."""
    size: int = 128


def measure(scene: Scene, pace: Pace, number: int) -> Iterator[Sample]:
    """Every row of this side, once. A row that fails is a sample that says why."""
    namesrv = scene.namesrv.address
    client = open_load_client("java", "ROCKETMQ", scene.processes, namesrv, scene.pids)
    _run_java(client, attrs.evolve(pace, seconds=pace.broker_warm_up_s), max(THREADS))
    for threads in THREADS:
        run = functools.partial(_run_java, client, pace, threads)
        yield _sample(scene, f"java/{threads}", number, run)
    client.process.kill()
    for threads in THREADS:
        run = functools.partial(_run_own, namesrv, pace, threads)
        yield _sample(scene, f"own/{threads}", number, run)


def _sample(scene: Scene, row: str, number: int, run: Run) -> Sample:
    figures: Mapping[str, float] = {}
    errors: Mapping[str, int] = {}
    failed = None
    strangers = Strangers(scene.processes)
    with strangers.watched():
        try:
            figures, errors = run()
        except (LoadFailed, AssertionError, OSError, subprocess.SubprocessError) as error:
            failed = f"{type(error).__name__}: {error}".splitlines()[0]
    return Sample(
        row=row,
        side=scene.side.name,
        round=number,
        figures=figures,
        errors=errors,
        failed=failed,
        strangers=strangers.average,
        at=now_text(),
    )


def _run_java(
    client: LoadClient, pace: Pace, threads: int
) -> tuple[Mapping[str, float], Mapping[str, int]]:
    options = {
        "topic": TOPIC,
        "threads": threads,
        "bytes": pace.size,
        "warm_up_s": pace.warm_up_s,
        "seconds": pace.seconds,
    }
    client.begin("send", options)
    outcome = client.outcome(pace.warm_up_s + pace.seconds + SLACK_S)
    count = outcome.figures["count"]
    assert count > 0, f"nothing went through: {dict(outcome.errors)} {outcome.first_error}"
    figures = {name: outcome.figures[name] for name in ("per_s", "p50_ms", "p99_ms")}
    if outcome.cpu is not None:
        for name, used_s in outcome.cpu.by_name.items():
            figures[f"{name}_cpu_us"] = used_s / count * 1e6
    return figures, outcome.errors


def _run_own(
    namesrv: str, pace: Pace, threads: int
) -> tuple[Mapping[str, float], Mapping[str, int]]:
    command = [
        *(sys.executable, "-m", "trioha", "bench", "produce", "-n", namesrv, "-t", TOPIC),
        *("--concurrency", str(threads), "--seconds", str(pace.seconds)),
        *("--warm-up", str(pace.warm_up_s), "--size", str(pace.size), "-q", "-o", "json"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SLACK_S, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1:]
    report = json.loads(done.stdout)["report"]
    latency = report["send_latency"]
    figures = {"per_s": report["messages_per_s"]}
    figures |= {name: latency[name] for name in ("p50_ms", "p99_ms")}
    errors = {str(code): times for code, times in report["refusals"].items()}
    if report["unanswered"]:
        errors["unanswered"] = report["unanswered"]
    return figures, errors
