"""The best that the machine allows: `just bench-relay`, four minutes.

Processes forward frames and do nothing else (`peer/bare_relay.py`): one alone, a pair, a leader
with two followers. So a ratio tells what replication leaves of a broker's rate if no process does
any other work. It measures waking processes, and sharing processors among them. The microseconds
are the processor time that a frame takes the process that answers it.
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


def measure(followers: int, frames: int, in_flight: int) -> tuple[float, float]:
    """Return answers a second, and microseconds of processor time a frame."""
    arguments = map(str, (followers, FRAME_BYTES, frames, in_flight))
    command = [sys.executable, str(HERE / "bare_relay.py"), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    _, per_s, leader_us, *_ = map(float, done.stdout.split())
    return per_s, leader_us


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
        cells = []
        for place in range(len(LAYOUTS)):
            per_s, leader_us = (
                statistics.median(one[place][which] for one in rounds) for which in (0, 1)
            )
            cell = f"{per_s:,.0f}/s, {leader_us:.0f} us"
            if place:
                ratios = [one[place][0] / one[0][0] for one in rounds]
                spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
                cell += f", **{statistics.median(ratios):.2f}** {spread}"
            cells.append(cell)
        print(table_line([str(in_flight), *cells]), flush=True)


if __name__ == "__main__":
    main()
