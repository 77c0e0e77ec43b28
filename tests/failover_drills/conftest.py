"""Sets of real processes that are failed over; a failing test shows what each said last."""

from __future__ import annotations

from support.process_fixtures import processes, pytest_runtest_makereport

__all__ = ["processes", "pytest_runtest_makereport"]
