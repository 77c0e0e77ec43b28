"""`python -m trioha.sim`: live through seeds, and say what broke in those that fail.

python -m trioha.sim pair 4711             one seed, with its trace if it fails
python -m trioha.sim pair 0:1000           many, over all processors
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor

from trioha.sim.pair import simulation as pair

KINDS = {"pair": pair.run_seed}
FAILURES_SHOWN = 3


def main(arguments: list[str]) -> int:
    kind, wanted = (*arguments, "", "")[:2]
    first, colon, end = wanted.partition(":")
    if kind not in KINDS or not first.isdecimal() or (colon and not end.isdecimal()):
        print(__doc__, file=sys.stderr)
        return 2
    seeds = range(int(first), int(end) if end else int(first) + 1)
    failures = run_seeds(kind, seeds)
    for text in failures[:FAILURES_SHOWN]:
        print(text)
    print(f"{kind}: {len(seeds)} seeds, {len(failures)} failed")
    return 1 if failures else 0


def run_seeds(kind: str, seeds: range) -> list[str]:
    """Run the seeds, and return one text for each that failed."""
    if len(seeds) == 1:
        return [text for text in map(_failure_of, [kind], seeds) if text]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        texts = pool.map(_failure_of, [kind] * len(seeds), seeds, chunksize=10)
        return [text for text in texts if text]


def _failure_of(kind: str, seed: int) -> str:
    try:
        KINDS[kind](seed)
    except pair.SeedFailed as failure:
        return str(failure)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
