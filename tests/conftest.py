"""Marks every coroutine test for pytest-trio: `trio_mode` would take the console's tests too.

And keeps all drills in one process where pytest-xdist runs several: they measure how long things
take, and two at once would measure each other.
"""

from __future__ import annotations

import inspect

import pytest

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
