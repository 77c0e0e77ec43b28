"""Lives of Raft groups, by seed: ``just sim-raft --from 0 --to 2000``, ``just sim-raft --seed 7``.

A range is a piece of work: 50,000 seeds are run as ranges, on as many machines or evenings as one
likes; each prints the range that it has done. A failing seed is printed with its options, the last
lines of its trace and the command that lives through it again; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from trioha.sim.raft.options import GENERATOR
from trioha.sim.raft.simulation import SeedVerdict, run_seed

REPORT_EVERY = 500
TRACE_LINES = 200


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="just sim-raft",
        description="Let Raft groups live through drawn faults and check what must hold.",
        epilog="Examples: just sim-raft --from 0 --to 2000; just sim-raft --seed 616",
    )
    parser.add_argument(
        "--from", dest="first", type=int, default=0, metavar="A", help="the first seed"
    )
    parser.add_argument("--to", dest="last", type=int, default=200, metavar="B", help="exclusive")
    parser.add_argument("--seed", type=int, help="one seed, with its options and its trace")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        verdict = run_seed(given.seed)
        print(describe(verdict))
        return 1 if verdict.failure else 0
    if given.last <= given.first:
        parser.error(f"--to {given.last} must be larger than --from {given.first}")
    if given.workers < 1:
        parser.error("--workers must be at least 1")
    seeds = range(given.first, given.last)
    if given.workers == 1:
        return _report(seeds, map(run_seed, seeds))
    with ProcessPoolExecutor(given.workers) as pool:
        return _report(seeds, pool.map(run_seed, seeds, chunksize=20))


def describe(verdict: SeedVerdict) -> str:
    """A seed for people: what it had to live through, what happened, how it ended."""
    trace = "\n".join(verdict.trace[-TRACE_LINES:])
    return (
        f"seed {verdict.seed} (generator {GENERATOR}, digest {verdict.digest:08x})\n"
        f"{verdict.options}\n{trace}\n"
        f"seed {verdict.seed}: {verdict.failure or 'fine'}\n"
        f"again: just sim-raft --seed {verdict.seed}"
    )


def _report(seeds: range, verdicts: Iterable[SeedVerdict]) -> int:
    counts: Counter[str] = Counter()
    failures = 0
    for verdict in verdicts:
        counts += verdict.counts
        if verdict.failure:
            failures += 1
            print(describe(verdict), flush=True)
        done = verdict.seed + 1
        if done % REPORT_EVERY == 0 or done == seeds.stop:
            print(f"seeds {seeds.start} to {done}: {failures} failures", flush=True)
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
