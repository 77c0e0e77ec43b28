"""Pictures for docs/analysis.md: an incident lived through, analysed, drawn. `just pictures`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from support.clusters.incident import live_through
from support.peers.clients import Clients
from support.processes.analyze import analyze
from support.processes.rig import REPO, running_processes
from support.screens.browser import render

PICTURES = REPO / "docs" / "pictures"
WIDTH = 1000
SHOWN = (
    # name, reports, dark, height
    ("analysis-page", ("timeline", "throughput", "replication", "failovers"), False, 1000),
    ("analysis-timeline", ("timeline", "failovers"), False, 1750),
    ("analysis-failovers", ("failovers",), True, 1060),
)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        with running_processes(root) as processes:
            incident = live_through(processes, Clients(processes))
        for name, reports, dark, height in SHOWN:
            options = [*incident.stores, "--journal", str(incident.namesrv_journal)]
            options += [option for report in reports for option in ("--report", report)]
            page = analyze(root / name, [*options, "--engine", "local"]).page
            # Hide the directory of the incident.
            page.write_text(page.read_text().replace(f"{root}/", ""))
            drawn = render(page, root / f"{name}-browser", dark=dark, width=WIDTH, height=height)
            (PICTURES / f"{name}.png").write_bytes(drawn.picture)
            print(f"{name}.png: {len(drawn.picture) // 1024} KiB")


if __name__ == "__main__":
    main()
