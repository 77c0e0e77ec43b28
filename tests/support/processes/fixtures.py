"""For a conftest: processes that end with their test; a failing one shows what each said last."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from support.processes.rig import Processes, running_processes

REGISTRY = pytest.StashKey[Processes]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    processes = item.stash.get(REGISTRY, None)
    if report.failed and processes is not None:
        report.sections.append(("processes", processes.report()))
    return report


@pytest.fixture
def clean_logs() -> str:
    """Which logs never show a traceback; of drills the brokers', for clients are cut off there."""
    return "broker*.log"


@pytest.fixture
def processes(
    request: pytest.FixtureRequest, tmp_path: Path, clean_logs: str
) -> Iterator[Processes]:
    with running_processes(tmp_path) as processes:
        request.node.stash[REGISTRY] = processes
        yield processes
    for log in sorted((tmp_path / "logs").glob(clean_logs)):
        text = log.read_text(errors="replace")
        at = text.find("Traceback")
        assert at < 0, f"{log.name} shows a traceback:\n{text[at : at + 3000]}"
