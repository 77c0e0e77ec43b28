"""The rejoin time of an old master and the table of a drill, into docs/benchmarks-appendix.md.

    just drill --rounds 100 --output drill.json
    just bench-failover --drill drill.json [--rounds 3] [--mebibytes 1024]

The rejoin: an ASYNC_MASTER with a log of 1 GiB loses its slave, stores 1 MiB more, and is killed;
the slave takes over and stores something else. From the start of the old master's process it is
counted until the new one calls it in sync: Python, recovery, handshake, the cut of the tail (which
is saved first), the link.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

from bench.page import marks, replace_section
from support.clusters.replica_set import SETTINGS, ReplicaSet
from support.histories.load import Load, Mix
from support.processes.admin import create_topic
from support.processes.rig import REPO, running_processes
from support.processes.status import node_status, wait_until

TOPIC = "rejoin"
MIB = 1 << 20
BODY_BYTES = 128 * 1024
MIX = Mix(large_chance=1.0, large_bytes_min=BODY_BYTES, large_bytes_max=BODY_BYTES)
PATIENCE_S = 300.0


def rejoin(mebibytes: int) -> dict[str, float]:
    """One rejoin, in seconds."""
    root = Path(tempfile.mkdtemp(prefix="trioha-rejoin-"))
    try:
        with running_processes(root) as processes:
            settings = {**SETTINGS, "mappedFileSizeCommitLog": 1 << 30}
            pair = ReplicaSet(processes, role="ASYNC_MASTER", settings=settings).start()
            old, new = pair.nodes
            create_topic(old.address, pair.namesrv, TOPIC)
            _store(old.address, mebibytes * MIB, "base")
            pair.wait_level(PATIENCE_S)
            new.kill()
            _store(old.address, MIB, "tail")
            old.kill()
            new.start()
            switch = pair.fail_over("--force")
            assert switch.code == 0, switch.text
            _store(new.address, MIB, "other")
            began_s = time.monotonic()
            old.start()
            ready_s = time.monotonic() - began_s

            def in_sync() -> bool:
                return any(link["in_sync"] for link in node_status(new)["connections"])

            wait_until("in sync", in_sync, PATIENCE_S)
            elapsed_s = time.monotonic() - began_s
            pair.wait_level(PATIENCE_S)
            cuts = [path.name.split("-") for path in (root / "broker-a-0/store/cut").iterdir()]
            cut_bytes = sum(int(end) - int(begin) for begin, end, *_ in cuts)
            assert cut_bytes >= MIB, f"{cut_bytes} bytes were cut"
            pair.stop()
            pair.check_equal_logs()
            return {"in_sync_s": elapsed_s, "ready_s": ready_s, "cut_bytes": cut_bytes}
    finally:
        shutil.rmtree(root)


def _store(address: str, size: int, label: str) -> None:
    load = Load(address, TOPIC, seed=1, label=label, senders=2, window=4, mix=MIX).start()
    load.wait_for_acked(size // BODY_BYTES, PATIENCE_S)
    load.stop()


def make_section(rejoins: list[dict[str, float]], mebibytes: int, drill: dict[str, Any]) -> str:
    """The Markdown between the markers."""
    lines = [
        "## Failover",
        "",
        f"{date.today().isoformat()}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load average {os.getloadavg()[2]:.1f} over the last quarter of an hour. All nodes, the "
        "clients and the command share these cores. A write gap is the longest time without an "
        "answer that says stored, as a client saw it around one switch.",
        "",
        "| what | p50 | p99 | worst | of | aim |",
        "|---|---|---|---|---|---|",
    ]
    aims = {"planned": "p50 150 ms, p99 500 ms", "forced": ""}
    for kind, aim in aims.items():
        for client, gap in drill.get(kind, {}).get("write_gap_ms", {}).items():
            lines.append(_row(f"{kind} switch, write gap, {client}", gap, aim))
    forced = drill.get("forced", {}).get("command_to_first_stored_ms")
    if forced:
        name = "forced switch, from the command's start to the first stored message"
        lines.append(_row(name, forced, "p99 1 s"))
    if rejoins:
        samples = ", ".join(f"{one['in_sync_s']:.2f}" for one in rejoins)
        median = statistics.median(one["in_sync_s"] for one in rejoins)
        lines.append(
            f"| rejoin with {mebibytes} MiB of log and 1 MiB to cut, from exec to in sync "
            f"| **{median:.2f} s** | | {max(one['in_sync_s'] for one in rejoins):.2f} s "
            f"| {len(rejoins)} ({samples}) | 5 s |"
        )
    if drill:
        sends = sum(drill["sends"].values())
        lines += [
            "",
            f"The drill's account: {sends:,} sends, {drill['sends']['SEND_OK']:,} of them "
            f"acknowledged; {drill['acknowledged_lost']} lost, {drill['queue_offset_faults']} "
            f"queue offsets missing or given twice, {drill['offset_regressions']} consumer offsets "
            f"that went back in {drill['offset_looks']:,} looks, logs equal.",
        ]
    lines += [
        "",
        "Regenerate with `just drill --rounds 100 --output drill.json` and "
        "`just bench-failover --drill drill.json`.",
    ]
    return "\n".join(lines)


def _row(name: str, gap: dict[str, float], aim: str) -> str:
    return (
        f"| {name} | **{gap['p50']:.0f} ms** | **{gap['p99']:.0f} ms** | {gap['max']:.0f} ms "
        f"| {gap['n']} | {aim} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of the rejoin (default: 3)")
    parser.add_argument("--mebibytes", type=int, default=1024, help="of log (default: 1024)")
    parser.add_argument("--drill", type=Path, help="the account of a drill, for the same table")
    parser.add_argument("--page", type=Path, default=REPO / "docs" / "benchmarks-appendix.md")
    options = parser.parse_args()
    rejoins = []
    for turn in range(options.rounds):
        rejoins.append(rejoin(options.mebibytes))
        sys.stderr.write(f"rejoin {turn + 1}/{options.rounds}: {rejoins[-1]}\n")
    drill = json.loads(options.drill.read_text()) if options.drill else {}
    section = make_section(rejoins, options.mebibytes, drill)
    page = options.page.read_text()
    options.page.write_text(replace_section(page, section, *marks("bench-failover")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
