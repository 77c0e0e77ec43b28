"""What the suite relies on of the tools that run it."""

from __future__ import annotations

import os

import pytest
from support.suite.skips import skip_unless


@pytest.mark.xdist_group("one process")
def test_a_group_of_tests_is_kept_together(request: pytest.FixtureRequest) -> None:
    """Else drills measure each other, and one incident is lived through in every process."""
    skip_unless(
        "PYTEST_XDIST_WORKER" in os.environ,
        "one process runs all tests (pytest -n 2 --dist loadgroup runs two)",
    )
    assert request.node.nodeid.endswith("@one process")
