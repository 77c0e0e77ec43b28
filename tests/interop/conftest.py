"""Mixed clusters: processes of both makes, ended with their test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients import Clients
from support.processes import Processes, running_processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with running_processes(tmp_path) as processes:
        yield processes
        # Shown by pytest only when the test failed.
        print(processes.report())


@pytest.fixture
def clients(processes: Processes) -> Clients:
    return Clients(processes)
