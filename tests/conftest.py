"""Marks every coroutine test for pytest-trio: `trio_mode` would take the console's tests too."""

from __future__ import annotations

import inspect

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "console" in item.path.parts:
            continue
        function = getattr(item, "function", None)
        if inspect.iscoroutinefunction(function):
            item.add_marker(pytest.mark.trio)
