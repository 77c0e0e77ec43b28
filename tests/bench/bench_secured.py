"""Protected brokers of both makes, and one of ours without protection, in turns.

    PYTHONPATH=tests python tests/bench/bench_secured.py --rounds 9

RocketMQ's broker, ours, and ours unprotected stand side by side. Each run of the stock Java client
goes to one of them, in turns: 64 threads that send, and the drain of a backlog. A row has the
medians of the three, and the medians of the rounds' ratios: trioha to Java with the same
protection, and to trioha without any. The client signs and encrypts the same way for both makes, on
the same processors; its own processor time a message is shown beside the broker's.
`--quick` shows that it works.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.peer.loads import measure_load
from bench.peer.nodes import Runtime
from bench.peer.protection import Protection
from bench.peer.results import Side
from bench.peer.rows import CPU, PER_S, Topology, protected_rows
from bench.peer.scale import QUICK, Scale
from bench.peer.stage import Stage, open_stage

PROTECTIONS = (Protection.ACL, Protection.TLS)
CLIENT_CPU = "client_cpu_s_per_million"
Figures = dict[str, list[float]]


@contextlib.contextmanager
def open_stages(protection: Protection, scale: Scale, root: Path) -> Iterator[list[Stage]]:
    """Java's broker, trioha, and trioha without protection; all run and are warm."""
    sides: tuple[tuple[Side, Protection], ...] = (
        ("java", protection),
        ("trioha", protection),
        ("trioha", Protection.NONE),
    )
    with contextlib.ExitStack() as stack:
        stages = [
            stack.enter_context(
                open_stage(side, Topology.ALONE, root / str(number), Runtime(), scale, {}, one)
            )
            for number, (side, one) in enumerate(sides)
        ]
        for stage in stages:
            stage.start()
        yield stages


def measure(protection: Protection, rounds: int, scale: Scale, root: Path) -> None:
    with open_stages(protection, scale, root) as stages:
        for row in protected_rows(protection):
            runs: list[Figures] = [{PER_S.key: [], CPU.key: [], CLIENT_CPU: []} for _ in stages]
            for number in range(rounds + 1):
                # The order alternates: a neighbour's load hits all alike.
                turns = list(zip(stages, runs, strict=True))
                for stage, figures in turns if number % 2 else reversed(turns):
                    measured = measure_load(stage, row)
                    for key, values in figures.items():
                        # The first round is a warm-up: its JVM has compiled little.
                        values.extend([measured.figures[key]] if number else [])
            print(line(row.name, *runs), flush=True)


def line(name: str, java: Figures, ours: Figures, plain: Figures) -> str:
    shown = [name]
    for figures in (java, ours, plain):
        keys = (PER_S.key, CPU.key, CLIENT_CPU)
        rate, cpu, client = (statistics.median(figures[key]) for key in keys)
        shown.append(f"{rate:,.0f}/s, {cpu:.1f} us; client {client:.1f} us")
    for key, other in ((PER_S.key, java), (PER_S.key, plain), (CPU.key, java), (CPU.key, plain)):
        pairs = zip(ours[key], other[key], strict=True)
        ratios = sorted(a / b if key == PER_S.key else b / a for a, b in pairs)
        shown.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return "| " + " | ".join(shown) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="see that it works")
    names = [protection.value for protection in PROTECTIONS]
    parser.add_argument("--protection", choices=names, action="append")
    options = parser.parse_args()
    print(
        "| load | Java | trioha | trioha, unprotected | rate, to Java | rate, to unprotected | "
        "messages for a second of the broker's CPU, to Java | the same, to unprotected |"
    )
    print("|---|---|---|---|---|---|---|---|")
    scale, rounds = (QUICK, 1) if options.quick else (Scale(), options.rounds)
    for name in options.protection or names:
        with tempfile.TemporaryDirectory(prefix="trioha-bench-secured-") as root:
            measure(Protection(name), rounds, scale, Path(root))


if __name__ == "__main__":
    main()
