"""`trioha run cluster`: one process that starts a whole layout and watches over its nodes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from support.processes.rig import REPO, Process, Processes

READY_S = 60.0
SMALL = (
    *("--set", "mappedFileSizeCommitLog=8MiB", "--set", "maxHashSlotNum=1000"),
    *("--set", "maxIndexNum=4000", "--set", "diskSpaceWarningLevelRatio=99"),
)


def run_cluster(
    processes: Processes, layout: str, directory: Path, *options: str
) -> tuple[Process, str]:
    """Start a layout on loopback; return its process and the name server's address once ready.

    The log of the process holds all that it said, the ready lines of the nodes among it.
    """
    words = ("--listen", "127.0.0.1:0", "--broker-port", "0", "--dir", str(directory), *SMALL)
    command = [sys.executable, "-m", "trioha", "run", "cluster", layout, *words, *options]
    log = processes.root / "logs" / "cluster.log"
    process = processes.add(Process("cluster", command, log, cwd=REPO))
    process.start()
    pattern = rf"^trioha cluster {re.escape(layout)} ready namesrv=(\S+)$"
    return process, process.wait_for_line(pattern, READY_S)[1]
