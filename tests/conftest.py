"""Marks every coroutine test for pytest-trio: `trio_mode` would take the console's tests too.

And keeps drills in two processes where pytest-xdist runs several: they measure how long things
take, and all of them at once would measure each other.

How fast a machine is fails no property: Hypothesis' time limits are off for all of them. What they
draw is decided by the commit (`support.suite.hypothesis_seed`).

Deselects the tests marked `release` outside the release tier (`support.suite.sizes`), lets no test
skip in the gate (`support.suite.skips`), ends a test that hangs with a dump of its tasks
(`support.suite.timeouts`), and closes files that no test uses any more
(`support.suite.open_files`).
"""

from __future__ import annotations

import inspect
import signal

import pytest
from hypothesis import HealthCheck, settings
from support.suite.hypothesis_seed import pytest_configure, pytest_terminal_summary
from support.suite.open_files import pytest_runtest_teardown
from support.suite.sizes import TIER
from support.suite.skips import (
    pytest_addoption,
    pytest_make_collect_report,
    pytest_runtest_makereport,
)
from support.suite.timeouts import (
    pytest_pyfunc_call,
    pytest_timeout_cancel_timer,
    pytest_timeout_set_timer,
)

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_pyfunc_call",
    "pytest_runtest_makereport",
    "pytest_runtest_teardown",
    "pytest_terminal_summary",
    "pytest_timeout_cancel_timer",
    "pytest_timeout_set_timer",
]

pytest_plugins = ["support.processes.fixtures", "trioha.pytest_plugin"]
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# A shell without job control starts what it runs in the background deaf to SIGINT, and what that
# starts inherits it: no test could interrupt a process.
signal.signal(signal.SIGINT, signal.default_int_handler)

_DRILLS = {
    "failover_drills": "drills of sets",
    "raft_drills": "drills of groups",
    "reliability": "drills of groups",
}
"""Folder -> the process that runs its tests: with all of them in one it ended long after others."""


# First: pytest-xdist reads the groups in its own hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if TIER != "release":
        later = [item for item in items if item.get_closest_marker("release")]
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item not in later]
    for item in items:
        for folder in _DRILLS.keys() & set(item.path.parts):
            item.add_marker(pytest.mark.xdist_group(_DRILLS[folder]))
        if "console" in item.path.parts:
            continue
        function = getattr(item, "function", None)
        if inspect.iscoroutinefunction(function):
            item.add_marker(pytest.mark.trio)
