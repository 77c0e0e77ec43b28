"""Coroutine tests of this folder run on asyncio, which is what Textual is made of."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterator

import pytest
from trioha_console.idle_loop import IdleLoop


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    with asyncio.Runner(loop_factory=IdleLoop) as runner:
        runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture(autouse=True)
def _same_screen_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw the same screens, whatever the terminal and time zone of the machine."""
    for name in ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
