"""What the machine allows at best: `just bench-relay`, four minutes.

Processes hand frames on and do nothing else (`peer/bare_relay.py`): one alone, a pair, a leader
with two followers. So a ratio tells what replication leaves of a broker's rate where nobody does
any work. What is measured is waking processes, and sharing processors among them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

from bench.peer.load_clients import HERE
from bench.peer.report import table_line

LAYOUTS = {0: "one process", 1: "a pair", 2: "a leader and two followers"}
IN_FLIGHT = (1, 8, 64)
FRAME_BYTES = 400
FRAMES = 40_000


def measure(followers: int, frames: int, in_flight: int) -> float:
    """Return answers a second."""
    arguments = map(str, (followers, FRAME_BYTES, frames, in_flight))
    command = [sys.executable, str(HERE / "bare_relay.py"), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return float(done.stdout.split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--frames", type=int, default=FRAMES, help="per round and layout")
    options = parser.parse_args()
    print(table_line(["frames on their way", *LAYOUTS.values()]))
    print(table_line(["---"] * (1 + len(LAYOUTS))))
    for in_flight in IN_FLIGHT:
        rounds = [
            [measure(followers, options.frames, in_flight) for followers in LAYOUTS]
            for _ in range(options.rounds)
        ]
        alone, *others = map(statistics.median, zip(*rounds, strict=True))
        cells = [f"{alone:,.0f}/s"]
        for place, per_s in enumerate(others, 1):
            ratios = [figures[place] / figures[0] for figures in rounds]
            cells.append(
                f"{per_s:,.0f}/s, **{statistics.median(ratios):.2f}** "
                f"({min(ratios):.2f} to {max(ratios):.2f})"
            )
        print(table_line([str(in_flight), *cells]), flush=True)


if __name__ == "__main__":
    main()
