"""Marks every coroutine test for pytest-trio: `trio_mode` would take the console's tests too.

And keeps all drills in one process where pytest-xdist runs several: they measure how long things
take, and two at once would measure each other.

How fast a machine is fails no property: Hypothesis' time limits are off for all of them.
"""

from __future__ import annotations

import inspect

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

_DRILLS = {"failover_drills", "raft_drills", "reliability"}


# First: pytest-xdist reads the groups in its own hook.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _DRILLS.intersection(item.path.parts):
            item.add_marker(pytest.mark.xdist_group("drills"))
        if "console" in item.path.parts:
            continue
        function = getattr(item, "function", None)
        if inspect.iscoroutinefunction(function):
            item.add_marker(pytest.mark.trio)
