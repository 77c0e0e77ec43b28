"""An operator's jobs in the console, by keys, against real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.processes.rig import running_processes
from support.screens.console_day import SIZES, live_a_day, open_day
from support.screens.terminal import open_terminal

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_every_job_of_an_operator(tmp_path: Path, columns: int, rows: int) -> None:
    with (
        running_processes(tmp_path) as processes,
        open_terminal(columns, rows) as terminal,
        open_day(processes, terminal) as day,
    ):
        done = live_a_day(day)
    assert len(done) == 6
    assert all(one.keys <= 60 for one in done), done
