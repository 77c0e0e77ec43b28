"""Brokers of ours that meet peers made up for the purpose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.rig import Processes, running_processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with running_processes(tmp_path) as processes:
        yield processes
    for log in sorted((tmp_path / "logs").glob("*.log")):
        text = log.read_text(errors="replace")
        assert "Traceback" not in text, f"{log.name}:\n{text}"
