"""`just bench-peer`: Apache RocketMQ's broker and trioha under the same loads, in turns.

just bench-peer                          everything; writes docs/benchmarks-appendix.md
just bench-peer --quick                  does it work? Figures of one second mean little
just bench-peer --rows 'java/send/*'     some rows only; the page stays as it is
just bench-peer --resume RESULTS         go on with a run that was cut short
just bench-peer --neighbours 2           beside processes that take all they can get
just bench-peer --cold                   each load from a JVM that has just started
just bench-peer --trioha DIR             another checkout of trioha, say one that is not compiled
just bench-peer --render A.json B.json   the page from results that are there, B's rows
                                         in place of A's
just bench-peer --render A.json --beside P.json
                                         the same, and P's rows in a section of their own: what
                                         was measured with another build of trioha
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from bench.page import marks, replace_section
from bench.peer.chart import bars_of, chart_parts, make_chart
from bench.peer.nodes import BROKER_HEAP, Runtime
from bench.peer.report import make_section
from bench.peer.results import Results, load_results, merge_results, save_results
from bench.peer.rows import all_rows, select_rows
from bench.peer.runner import Runner, estimate_min
from bench.peer.scale import QUICK, Scale
from bench.peer.shortfalls import load_shortfalls
from bench.peer.summary import summarize
from support.peers.java import INTEROP, require_java
from support.processes.rig import REPO
from support.suite.skips import Unavailable

PAGE = REPO / "docs" / "benchmarks-appendix.md"
OUT = REPO / "target" / "bench-peer" / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
ROUNDS = 3
MEMORY_MIN_GIB = 7


def main() -> int:
    options = parser().parse_args()
    if options.render:
        merged = merge_results([load_results(path) for path in options.render])
        save_results(merged, options.out / "merged.json")
        measured = {sample.row for sample in merged.samples}
        whole = all(row.name in measured for row in all_rows())
        write_report(merged, options, options.out, complete=whole)
        return 0
    if options.list:
        print("\n".join(row.name for row in select_rows(all_rows(), options.rows)))
        return 0
    check_tools()
    runner = make_runner(options)
    if not runner.rows:
        print(f"no row matches {options.rows}", file=sys.stderr)
        return 2
    check_memory()
    print(
        f"{len(runner.rows)} rows, {runner.rounds} rounds, two sides: about "
        f"{estimate_min(runner.rows, runner.rounds, runner.scale):.0f} minutes in all; samples go "
        f"to {runner.out}",
        file=sys.stderr,
    )
    status = 0
    try:
        runner.run()
    except KeyboardInterrupt:
        status = 130
    if runner.samples:
        unusual = runner.scale.neighbours or runner.scale.is_cold
        partly = options.rows or options.quick or runner.setup["rows"] or status or unusual
        write_report(runner.results, options, runner.out, complete=not partly)
    return status


def make_runner(options: argparse.Namespace) -> Runner:
    """A new run, or the rest of one.

    Errors: SystemExit that says why what is here cannot go on with what was begun.
    """
    runtime = runtime_of(options)
    if options.resume is None:
        scale = QUICK if options.quick else Scale()
        if options.seconds is not None:
            # A hundred messages a second need longer to make a percentile.
            e2e_seconds = max(2.5 * options.seconds, 2.0)
            scale = attrs.evolve(scale, seconds=options.seconds, e2e_seconds=e2e_seconds)
        scale = attrs.evolve(scale, neighbours=options.neighbours, is_cold=options.cold)
        rounds = options.rounds or (1 if options.quick else ROUNDS)
        setup = describe_setup(rounds, scale, runtime, options.rows)
        rows = select_rows(all_rows(), options.rows)
        return Runner(rows, rounds, scale, options.out, setup, runtime)
    begun = load_results(options.resume)
    setup = dict(begun.setup)
    scale, rounds = Scale.of(setup["scale"]), options.rounds or setup["rounds"]
    here = describe_setup(rounds, scale, runtime, setup["rows"])
    for what in ("Java broker", "trioha"):
        if here[what] != setup[what]:
            raise SystemExit(
                f"{options.resume} was measured with {what}: {setup[what]}; here it is "
                f"{here[what]}. Go back to that, or start a run of its own"
            )
    setup |= {"rounds": rounds, "method": here["method"], "resumed": here["measured"]}
    rows = select_rows(all_rows(), options.rows or setup["rows"])
    samples = [sample for sample in begun.samples if sample.failed is None]
    return Runner(rows, rounds, scale, options.resume.parent, setup, runtime, samples)


def runtime_of(options: argparse.Namespace) -> Runtime:
    """Errors: SystemExit when there is no such trioha."""
    if options.trioha is not None:
        tree: Path | None = options.trioha.resolve()
    else:
        # An interpreter of another environment brings its own.
        tree = REPO if options.python is None else None
    return Runtime(options.python or sys.executable, tree)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="bench-peer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--rounds", type=int, help=f"default {ROUNDS}, or 1 with --quick")
    made.add_argument("--rows", action="append", default=[], metavar="GLOB", help="may be repeated")
    made.add_argument(
        "--seconds", type=float, help=f"measured per cell, default {Scale().seconds:g}"
    )
    made.add_argument(
        "--neighbours", type=int, default=0, metavar="N", help="processes that spin meanwhile"
    )
    made.add_argument(
        "--cold", action="store_true", help="a Java client of its own for each load, not warmed"
    )
    made.add_argument("--quick", action="store_true", help="see that it works")
    made.add_argument("--list", action="store_true", help="names of the rows, and nothing else")
    made.add_argument("--out", type=Path, default=OUT, help="of results.json and report.md")
    made.add_argument("--docs", type=Path, help=f"page to write; by itself {PAGE.name} if complete")
    made.add_argument("--render", type=Path, nargs="+", metavar="RESULTS", help="measure nothing")
    made.add_argument(
        "--beside", type=Path, action="append", default=[], metavar="RESULTS", help="with --render"
    )
    made.add_argument("--resume", type=Path, metavar="RESULTS", help="results.json of a cut run")
    made.add_argument("--trioha", type=Path, metavar="DIR", help="checkout of trioha to measure")
    made.add_argument(
        "--python", help="interpreter of trioha's nodes; without --trioha with its own trioha"
    )
    return made


def write_report(
    results: Results, options: argparse.Namespace, out: Path, *, complete: bool = True
) -> None:
    """The page in the output directory, and the documentation's when the run deserves it."""
    beside = [load_results(path) for path in options.beside]
    write_page(results, beside, out / "report.md")
    page = options.docs or (PAGE if complete else None)
    if page is not None:
        write_page(results, beside, page)


def write_page(results: Results, beside: Sequence[Results], page: Path) -> None:
    """Replace our section of a page, and the charts beside it."""
    summaries = summarize(all_rows(), results)
    others = [(other.setup, summarize(all_rows(), other)) for other in beside]
    charts = {
        f"{page.stem}-peer-{name}.svg": make_chart(title, bars_of(part))
        for name, title, part in chart_parts(summaries)
    }
    section = make_section(results, summaries, list(charts), others, load_shortfalls())
    old = page.read_text() if page.exists() else ""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(replace_section(old, section, *marks("bench-peer")))
    for name, chart in charts.items():
        page.with_name(name).write_text(chart)
    print(page, file=sys.stderr)


def describe_setup(
    rounds: int, scale: Scale, runtime: Runtime, globs: Sequence[str]
) -> dict[str, Any]:
    """Return the setup that a reader needs; values that are no text are for `--resume`."""
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "measured": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} processors ({processor()}), {memory_gib:.0f} GiB, "
        f"Linux {platform.release()}; name server, brokers and client share them over loopback",
        "Java broker": f"Apache RocketMQ {rocketmq_version()}; {java_version()}, "
        f"{' '.join(BROKER_HEAP)} and the flags of runbroker.sh",
        "trioha": describe_trioha(runtime),
        "both": "ASYNC_FLUSH, log segments of 256 MiB (1.5 GiB for the catch-up), topics of 8 "
        "queues, defaults otherwise; each under a name server of its own make",
        "method": f"{rounds} round{'s' * (rounds > 1)}, sides in turns with brokers started for "
        f"each block of rows; 64 threads of the Java client warm them {scale.broker_warm_up_s:g} s "
        f"and {scale.header_warm_up_s:g} s more with a slave and with each kind of header; per "
        f"row {scale.warm_up_s:g} s of warm-up and {scale.seconds:g} s measured "
        f"({scale.e2e_seconds:g} s end to end, for over a thousand messages). The JVM of the "
        f"Java client stays for the block; a backlog has {scale.backlog:,} messages, the log of "
        f"catch-up and recovery {scale.log_bytes / 2**30:g} GiB"
        + f". {scale.neighbours} processes spin meanwhile" * bool(scale.neighbours)
        + ". The Java client of each load is a JVM of its own" * scale.is_cold,
        "rounds": rounds,
        "rows": list(globs),
        "scale": attrs.asdict(scale),
    }


def describe_trioha(runtime: Runtime) -> str:
    """Errors: SystemExit when it does not run, or is not what its sources say."""
    try:
        told = runtime.version()
    except (OSError, subprocess.SubprocessError) as error:
        raise SystemExit(f"{runtime.python} runs no trioha: {error}") from None
    build = told["build"]
    if "older than" in build:
        raise SystemExit(f"trioha is {build}")
    where = f"commit {commit(runtime.tree)}" if runtime.tree else f"version {told['trioha']}"
    return f"{where}, {build}, Python {told['python']}"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def commit(tree: Path) -> str:
    """The last one that changed trioha's code: others are no reason not to go on with a run."""
    text = _git(tree, "log", "-1", "--format=%h", "--", "trioha") or "unknown"
    return f"{text} with changes" if _git(tree, "status", "--porcelain", "--", "trioha") else text


def _git(tree: Path, *arguments: str) -> str:
    command = ["git", "-C", str(tree), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout.strip()


def rocketmq_version() -> str:
    pom = (INTEROP / "pom.xml").read_text()
    versions = re.findall(r"<rocketmq\.(?:server\.)?version>([^<]+)<", pom)
    return " with the broker and name server of ".join(versions)


def java_version() -> str:
    run = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return run.stderr.splitlines()[0]


def check_tools() -> None:
    """Errors: SystemExit that names what is missing."""
    try:
        require_java()
    except Unavailable as error:
        raise SystemExit(str(error)) from None
    if shutil.which("javac") is None:
        raise SystemExit("javac is not installed")


def check_memory() -> None:
    """Errors: SystemExit when two Java brokers and a client would make the machine swap."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            available_gib = int(line.split()[1]) / 2**20
            if available_gib < MEMORY_MIN_GIB:
                raise SystemExit(
                    f"{available_gib:.1f} GiB of memory are free; two Java brokers need "
                    f"{MEMORY_MIN_GIB}"
                )


if __name__ == "__main__":
    sys.exit(main())
