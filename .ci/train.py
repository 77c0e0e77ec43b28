"""The load that shapes a trained build: `compile.py --trained` runs it. About a minute.

A pair, a group that counts bytes in memory, and one that counts them on disk take sends of few and
of many senders; what they hold is read, also by a consumer that is woken by each message.
Every node ends in order, since gcc's counts are written at the end of a process.

    python .ci/train.py --seconds 0.2       each load for a shorter time
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TRIOHA = (sys.executable, "-m", "trioha")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TRIOHA_")}
"""Without settings for nodes of the caller's own."""
CLUSTERS: Sequence[Sequence[str]] = (
    ("2m-2s-sync",),
    ("2m-2s-async",),
    ("3n-dledger", "--set", "dLegerReplicatedInMemory=true"),
    ("3n-dledger",),
)
SENDERS = (1, 8, 64)
READY = re.compile(r"trioha cluster \S+ ready namesrv=(\S+)")
LOAD_S = 300.0
"""Longer than any load, or the end of a cluster, takes."""


@contextmanager
def running(layout: Sequence[str], directory: Path) -> Iterator[str]:
    """Start a cluster of one set; yields the address of its name server.

    Errors: SystemExit when it does not start, or does not end in order.
    """
    listen = ("--listen", "127.0.0.1:0", "--broker-port", "0", "--dir", str(directory))
    log = directory.with_suffix(".log")
    with open(log, "wb") as errors:
        command = [*TRIOHA, "run", "cluster", *layout, "--sets", "1", *listen]
        cluster = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=ENVIRONMENT
        )
    assert cluster.stdout is not None
    try:
        ready = next(filter(None, map(READY.search, cluster.stdout)), None)
        if ready is None:
            sys.exit(f"{' '.join(layout)} does not start:\n{log.read_text()}")
        yield ready[1]
    finally:
        cluster.terminate()
        cluster.stdout.close()
        code = cluster.wait(LOAD_S)
    if code != 0:
        sys.exit(f"{' '.join(layout)} ended with exit code {code}:\n{log.read_text()}")


def load(namesrv: str, *words: str) -> None:
    """Run one benchmark against a cluster. Errors: CalledProcessError."""
    command = [*TRIOHA, "bench", *words, "-n", namesrv, "-q"]
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, stdout=quiet, timeout=LOAD_S, env=ENVIRONMENT)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each load")
    options = parser.parse_args()
    timing = ("--warm-up", "0", "--seconds", str(options.seconds))
    with tempfile.TemporaryDirectory(prefix="trioha-train-") as name:
        for number, layout in enumerate(CLUSTERS):
            with running(layout, Path(name) / str(number)) as namesrv:
                for senders in map(str, SENDERS):
                    load(namesrv, "produce", "--concurrency", senders, *timing)
                load(namesrv, "consume")
                load(namesrv, "consume", "--push")
                load(namesrv, "e2e", *timing)
            print(f"trained with {' '.join(layout)}", flush=True)


if __name__ == "__main__":
    main()
