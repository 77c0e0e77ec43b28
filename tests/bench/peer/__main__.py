"""`just bench-peer`: Apache RocketMQ's broker and trioha under the same loads, in turns.

just bench-peer                          everything; writes docs/benchmarks.md
just bench-peer --quick                  does it work? Figures of one second mean little
just bench-peer --rows 'java/send/*'     some rows only; the page stays as it is
just bench-peer --render A.json B.json   the page from results that are there, B's rows
                                         in place of A's
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
from pathlib import Path

import attrs
import pytest
from bench.peer.chart import bars_of, make_chart
from bench.peer.loads import QUICK, Scale
from bench.peer.nodes import BROKER_HEAP
from bench.peer.report import make_section, replace_section
from bench.peer.results import Results, load_results, merge_results, save_results
from bench.peer.rows import all_rows, select_rows
from bench.peer.runner import Runner, estimate_min
from bench.peer.summary import summarize
from support.java import INTEROP, require_java
from support.processes import REPO

PAGE = REPO / "docs" / "benchmarks.md"
OUT = REPO / "target" / "bench-peer" / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
ROUNDS = 3
MEMORY_MIN_GIB = 7


def main() -> int:
    options = parser().parse_args()
    if options.render:
        write_report(merge_results([load_results(path) for path in options.render]), options)
        return 0
    rows = select_rows(all_rows(), options.rows)
    if options.list or not rows:
        print("\n".join(row.name for row in rows) or f"no row matches {options.rows}")
        return 0 if rows else 2
    scale = QUICK if options.quick else Scale()
    if options.seconds is not None:
        # A hundred messages a second need longer to make a percentile.
        e2e_seconds = max(2.5 * options.seconds, 2.0)
        scale = attrs.evolve(scale, seconds=options.seconds, e2e_seconds=e2e_seconds)
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    check_tools()
    check_memory()
    print(
        f"{len(rows)} rows, {rounds} rounds, two sides: about "
        f"{estimate_min(rows, rounds, scale):.0f} minutes; samples go to {options.out}",
        file=sys.stderr,
    )
    runner = Runner(rows, rounds, scale, options.out, describe_setup(rounds, scale))
    status = 0
    try:
        runner.run()
    except KeyboardInterrupt:
        status = 130
    if runner.samples:
        write_report(
            runner.results, options, complete=not (options.rows or options.quick or status)
        )
    return status


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="bench-peer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--rounds", type=int, help=f"default {ROUNDS}, or 1 with --quick")
    made.add_argument("--rows", action="append", default=[], metavar="GLOB", help="may be repeated")
    made.add_argument(
        "--seconds", type=float, help=f"measured per cell, default {Scale().seconds:g}"
    )
    made.add_argument("--quick", action="store_true", help="see that it works")
    made.add_argument("--list", action="store_true", help="names of the rows, and nothing else")
    made.add_argument("--out", type=Path, default=OUT, help="of results.json and report.md")
    made.add_argument("--docs", type=Path, help=f"page to write; by itself {PAGE.name} if complete")
    made.add_argument("--render", type=Path, nargs="+", metavar="RESULTS", help="measure nothing")
    return made


def write_report(results: Results, options: argparse.Namespace, *, complete: bool = True) -> None:
    """The page in the output directory, and the documentation's when the run deserves it."""
    if options.render:
        save_results(results, options.out / "merged.json")
    write_page(results, options.out / "report.md")
    page = options.docs or (PAGE if complete else None)
    if page is not None:
        write_page(results, page)


def write_page(results: Results, page: Path) -> None:
    """Replace our section of a page, and the chart beside it."""
    summaries = summarize(all_rows(), results)
    chart = page.with_name(f"{page.stem}-peer.svg")
    old = page.read_text() if page.exists() else ""
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(replace_section(old, make_section(results, summaries, chart.name)))
    chart.write_text(make_chart(bars_of(summaries)))
    print(page, file=sys.stderr)


def describe_setup(rounds: int, scale: Scale) -> dict[str, object]:
    """What a reader must know to judge the figures."""
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return {
        "measured": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} processors ({processor()}), {memory_gib:.0f} GiB, "
        f"Linux {platform.release()}; name server, brokers and client share them over loopback",
        "Java broker": f"Apache RocketMQ {rocketmq_version()}; {java_version()}, "
        f"{' '.join(BROKER_HEAP)} and the flags of runbroker.sh",
        "trioha": f"commit {commit()}, Python {platform.python_version()}",
        "both": "ASYNC_FLUSH, log segments of 256 MiB (1.5 GiB for the catch-up), topics of 8 "
        "queues, defaults otherwise; each under a name server of its own make",
        "method": f"{rounds} round{'s' * (rounds > 1)}, sides in turns; brokers warmed "
        f"{scale.broker_warm_up_s:g} s by 64 threads, then per row {scale.warm_up_s:g} s of "
        f"warm-up and {scale.seconds:g} s measured with a fresh client",
        "scale": attrs.asdict(scale),
    }


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def commit() -> str:
    command = ["git", "-C", str(REPO), "rev-parse", "--short", "HEAD"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout.strip() or "unknown"


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
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
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
