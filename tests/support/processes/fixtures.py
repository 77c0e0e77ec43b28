"""Processes that end with their test; a failing one shows what each said last.

`tests/conftest.py` makes this a plugin: every test may ask for `processes`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from support.processes.rig import Processes, running_processes, what_all_said_last


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (said := what_all_said_last()):
        report.sections.append(("processes", said))
    return report


@pytest.fixture
def clean_logs() -> str:
    """Which logs never show a traceback: the brokers', unless a folder says more."""
    return "broker*.log"


@pytest.fixture
def processes(tmp_path: Path, clean_logs: str) -> Iterator[Processes]:
    with running_processes(tmp_path) as processes:
        yield processes
    for log in sorted((tmp_path / "logs").glob(clean_logs)):
        text = log.read_text(errors="replace")
        at = text.find("Traceback")
        assert at < 0, f"{log.name} shows a traceback:\n{text[at : at + 3000]}"


@pytest.fixture(scope="session")
def shared_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Yield processes for nodes that several tests use and leave alone."""
    with running_processes(tmp_path_factory.mktemp("shared")) as processes:
        yield processes
