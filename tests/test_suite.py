"""Properties of the tools that run the suite, on which it relies."""

from __future__ import annotations

import gc
import os

import pytest
from support.suite.open_files import MANY, lowest_free, pytest_runtest_teardown
from support.suite.skips import skip_unless


@pytest.mark.xdist_group("one process")
def test_a_group_of_tests_is_kept_together(request: pytest.FixtureRequest) -> None:
    """Else drills measure each other, and one incident is lived through in every process."""
    skip_unless(
        "PYTEST_XDIST_WORKER" in os.environ,
        "one process runs all tests (pytest -n 2 --dist loadgroup runs two)",
    )
    assert request.node.nodeid.endswith("@one process")


class HeldInACycle:
    """One open file that only the search for cycles closes."""

    def __init__(self) -> None:
        self.number = os.dup(0)
        self.cycle = self

    def __del__(self) -> None:
        os.close(self.number)


def test_a_process_that_has_many_files_open_closes_those_of_tests_before() -> None:
    """A test that waits with select(2) failed in a process that had 1,024 open."""
    gc.disable()
    try:
        while lowest_free() <= MANY:
            HeldInACycle()
        pytest_runtest_teardown()
        assert lowest_free() < MANY
    finally:
        gc.enable()
