"""Plain connections against TLS, in turns: 64 senders, and the drain of a backlog.

    python tests/bench/bench_tls.py --pairs 5

Each row is the median of the pairs' ratios; a pair is two runs of `trioha bench`, one right after
the other, on a cluster of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from trioha.config.certificate_files import issue_files

LOADS = {
    "64 senders, 128 bytes": ("produce", "--size", "128"),
    "64 senders, 1 KiB": ("produce", "--size", "1024"),
    "drain, 128 bytes": ("consume", "--size", "128"),
    "drain, 1 KiB": ("consume", "--size", "1024"),
}
SECONDS = ("--warm-up", "1", "--seconds", "4")


def tls_environment(directory: Path) -> dict[str, str]:
    """Nodes and load generator take the same variables; both ends show a certificate."""
    issue_files(directory, ["127.0.0.1"], None, datetime.now(UTC))
    files = {
        "CERT_PATH": str(directory / "127.0.0.1.pem"),
        "KEY_PATH": str(directory / "127.0.0.1.key"),
        "TRUST_CERT_PATH": str(directory / "ca.pem"),
    }
    sides = {f"TRIOHA_TLS_{side}_{k}": v for side in ("SERVER", "CLIENT") for k, v in files.items()}
    return sides | {
        "TRIOHA_TLS_ENABLE": "true",
        "TRIOHA_TLS_SERVER_MODE": "enforcing",
        "TRIOHA_TLS_SERVER_NEED_CLIENT_AUTH": "require",
    }


def run(load: tuple[str, ...], environment: dict[str, str]) -> float:
    """Messages a second of one run."""
    command = [sys.executable, "-m", "trioha", "bench", *load, "-q", "-o", "json"]
    if load[0] == "produce":
        command += SECONDS
    done = subprocess.run(
        command, env={**os.environ, **environment}, check=True, capture_output=True
    )
    rate: float = json.loads(done.stdout)["report"]["messages_per_s"]
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory(prefix="trioha-bench-tls-") as name:
        tls = tls_environment(Path(name))
        print("| load | plain, messages/s | TLS, messages/s | TLS / plain |\n|---|---|---|---|")
        for label, load in LOADS.items():
            plain: list[float] = []
            secured: list[float] = []
            for number in range(pairs):
                # The order alternates: what a neighbour of this machine does hits both alike.
                for mode in (plain, secured) if number % 2 else (secured, plain):
                    mode.append(run(load, tls if mode is secured else {}))
            ratios = sorted(b / a for a, b in zip(plain, secured, strict=True))
            print(
                f"| {label} | {statistics.median(plain):,.0f} | {statistics.median(secured):,.0f} "
                f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |",
                flush=True,
            )


if __name__ == "__main__":
    main()
