"""Raft groups of real processes; a failing test shows what each said last."""

from __future__ import annotations

from support.processes.fixtures import clean_logs, processes, pytest_runtest_makereport

__all__ = ["clean_logs", "processes", "pytest_runtest_makereport"]
