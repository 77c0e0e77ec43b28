"""`just bench-raft`: trioha's DLEDGER mode beside Java's, beside ours without replicas, in turns.

just bench-raft                              everything: about half an hour
just bench-raft --parts throughput --rounds 5
just bench-raft --sides memory,fsync --parts kill,transfer,refill
just bench-raft --render A.json B.json       the page from what was measured before; rows of a side
                                             that B has replace A's

A round holds every side, one after the other, each with brokers started for it: only ratios within
a run mean something, for this kind of machine drifts by a factor of two within an hour.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.page import marks, replace_section
from bench.peer.__main__ import (
    check_tools,
    commit,
    describe_trioha,
    java_version,
    processor,
    rocketmq_version,
)
from bench.peer.nodes import Runtime
from bench.raft import changes, throughput
from bench.raft.report import make_section
from bench.raft.samples import Sample, load, save
from bench.raft.sides import JAVA_HEAP, SIDES, Scene, open_scene
from bench.raft.throughput import Pace
from support.processes.rig import REPO

PAGE = REPO / "docs" / "benchmarks-appendix.md"
OUT = REPO / "target" / "bench-raft"
PARTS = ("throughput", "kill", "java-kill", "transfer", "refill")
SIDES_OF: dict[str, tuple[str, ...]] = {
    "throughput": ("java", "memory", "alone", "fsync", "alone-fsync"),
    "kill": ("java", "fsync"),
    "java-kill": ("java", "fsync"),
    "transfer": ("fsync",),
    "refill": ("fsync",),
}


def main() -> int:
    options = parser().parse_args()
    if options.render:
        setup, samples = merge([load(path) for path in options.render])
        write_page(setup, samples, options.docs or PAGE)
        return 0
    check_tools()
    setup = describe(options)
    samples = []
    out = options.out / f"{datetime.datetime.now():%Y%m%d-%H%M%S}.json"
    try:
        for sample in measure(options):
            samples.append(sample)
            save(out, setup, samples)
            tell(sample)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print(out)
    if options.docs is not None and samples:
        write_page(setup, samples, options.docs)
    return 1 if any(sample.failed for sample in samples) else 0


def measure(options: argparse.Namespace) -> Iterator[Sample]:
    """Round by round, part by part, side by side."""
    for number in range(1, options.rounds + 1):
        for part in options.parts:
            for name in SIDES_OF[part]:
                if name in options.sides:
                    yield from _one(part, name, number, options)


def _one(part: str, name: str, number: int, options: argparse.Namespace) -> Iterator[Sample]:
    """A part of a side, once. When the brokers fail, that is the sample."""
    pace = Pace(seconds=options.seconds)
    play: dict[str, Callable[[Scene], Iterator[Sample]]] = {
        "throughput": lambda scene: throughput.measure(scene, pace, number),
        "kill": lambda scene: changes.kill_leaders(
            scene, options.java_kills if scene.side.is_java else options.kills, number
        ),
        "java-kill": lambda scene: changes.kill_leader_under_java_client(scene, number),
        "transfer": lambda scene: changes.transfer(scene, options.kills, number),
        "refill": lambda scene: changes.refill(scene, options.mebibytes, number),
    }
    root = Path(tempfile.mkdtemp(prefix="trioha-bench-raft-"))
    try:
        with open_scene(SIDES[name], root) as scene:
            yield from play[part](scene)
    except (AssertionError, OSError, TimeoutError) as error:
        text = f"{type(error).__name__}: {error}"
        print(text, file=sys.stderr)
        yield Sample(row=part, side=name, round=number, figures={}, failed=text.splitlines()[0])
    finally:
        shutil.rmtree(root, ignore_errors=True)


def tell(sample: Sample) -> None:
    """One line a sample, on stderr."""
    figures = ", ".join(f"{name} {value:,.4g}" for name, value in sample.figures.items())
    print(
        f"round {sample.round} {sample.row:<16} {sample.side:<12} {figures} "
        f"{sample.failed or ''} {dict(sample.errors) or ''} strangers {sample.strangers:.2f}",
        file=sys.stderr,
        flush=True,
    )


def merge(
    parts: Sequence[tuple[dict[str, Any], list[Sample]]],
) -> tuple[dict[str, Any], list[Sample]]:
    """Rows of later parts replace those of earlier ones; the last part's setup is told.

    Of the earlier ones it is told which rows they measured, when and of which commit.
    """
    samples: list[Sample] = []
    setup: dict[str, Any] = {}
    for _, more in parts:
        fresh = {(sample.row, sample.side) for sample in more}
        samples = [one for one in samples if (one.row, one.side) not in fresh] + more
    for told, more in parts[:-1]:
        rounds = told["method"].partition(",")[0]
        rows = ", ".join(sorted({one.row for one in more if one in samples}))
        if rows:
            setup[f"rows {rows}"] = f"{told['measured']}, commit {told['commit']}, {rounds}"
    return parts[-1][0] | setup, samples


def write_page(setup: dict[str, Any], samples: Sequence[Sample], page: Path) -> None:
    old = page.read_text() if page.exists() else "# Benchmarks\n"
    page.write_text(replace_section(old, make_section(setup, samples), *marks("bench-raft")))
    print(page, file=sys.stderr)


def describe(options: argparse.Namespace) -> dict[str, Any]:
    """Return the setup that a reader needs to judge the figures."""
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    pace = Pace(seconds=options.seconds)
    return {
        "measured": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} processors ({processor()}), {memory_gib:.0f} GiB, "
        f"Linux {platform.release()}; name server, brokers and client share them over loopback",
        "Java": f"Apache RocketMQ {rocketmq_version()} in DLEDGER mode, three JVMs; "
        f"{java_version()}, {' '.join(JAVA_HEAP)} and the flags of runbroker.sh. It acknowledges "
        "before any fsync, whatever it is told to do",
        "trioha": describe_trioha(Runtime()),
        "all": f"ASYNC_FLUSH unless said, log segments of 256 MiB, a topic of 8 queues, bodies of "
        f"{pace.size} bytes, default timers",
        "method": f"{options.rounds} rounds, the sides in turn, each with brokers started for it "
        f"and warmed for {pace.broker_warm_up_s:g} s by 64 threads; {pace.seconds:g} s a row "
        f"after {pace.warm_up_s:g} s",
        "commit": commit(REPO),
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="bench-raft", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def names(text: str) -> list[str]:
        return text.split(",")

    made.add_argument("--parts", type=names, default=list(PARTS), help=f"of {','.join(PARTS)}")
    made.add_argument("--sides", type=names, default=list(SIDES), help=f"of {','.join(SIDES)}")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--seconds", type=float, default=Pace().seconds, help="measured per row")
    made.add_argument("--kills", type=int, default=20, help="and transfers, per round")
    made.add_argument("--java-kills", type=int, default=3, help="per round")
    made.add_argument("--mebibytes", type=int, default=1024, help="of log to refill")
    made.add_argument("--out", type=Path, default=OUT, help="where the samples go")
    made.add_argument("--docs", type=Path, help="page to write the section into")
    made.add_argument("--render", type=Path, nargs="+", metavar="RESULTS", help="measure nothing")
    return made


if __name__ == "__main__":
    sys.exit(main())
