"""A test that does not end fails with the stacks of all threads and the tree of all tasks.

pytest-timeout keeps the time (`timeout` in pyproject.toml, `--timeout`, or the marker `timeout`).
`tests/conftest.py` takes the hooks below, which replace what it does when the time is over: it
shows where the main thread is, and that is inside Trio's loop for every test of tasks; and an
exception raised there leaves a loop behind in which no later test can begin.
"""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any

import pytest
import trio
from pytest_timeout import is_debugging

EXPIRED = pytest.StashKey[str]()
"""The reason of a test that was ended."""
TASKS_MAX = 500
FRAMES_MAX = 12
UNWIND_S = 20.0
"""Time for the tasks of a Trio loop to end when all are cancelled, before the loop is broken."""


def everything_that_waits() -> str:
    """Return the stacks of all threads, then the tasks of the Trio or asyncio loop of this one."""
    return "\n".join([*_threads(), *_trio_tasks(), *_asyncio_tasks()])


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"-- thread {names.get(ident, ident)}"
        yield "".join(traceback.format_stack(frame)[-FRAMES_MAX:]).rstrip()


def _trio_tasks() -> Iterator[str]:
    try:
        root = trio.lowlevel.current_root_task()
    except RuntimeError:
        return
    if root is None:
        return
    yield "-- Trio's tasks"
    waiting = [(root, 0)]
    for _ in range(TASKS_MAX):
        if not waiting:
            return
        task, depth = waiting.pop()
        indent = "  " * depth
        yield f"{indent}{task.name}"
        frames = [(frame, line) for frame, line in task.iter_await_frames()]
        for frame, line in frames[-FRAMES_MAX:]:
            code = frame.f_code
            yield f"{indent}  . {code.co_filename}:{line} in {code.co_qualname}"
        for nursery in task.child_nurseries:
            children = sorted(nursery.child_tasks, key=lambda child: child.name, reverse=True)
            waiting.extend((child, depth + 1) for child in children)
    yield f"and {len(waiting)} more with their children"


def _asyncio_tasks() -> Iterator[str]:
    loop = asyncio._get_running_loop()
    if loop is None:
        return
    yield "-- asyncio's tasks"
    for task in list(asyncio.all_tasks(loop))[:TASKS_MAX]:
        told = io.StringIO()
        task.print_stack(limit=FRAMES_MAX, file=told)
        yield told.getvalue().rstrip()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None

    message = (
        f"no end within {settings.timeout:g} s (pytest-timeout); "
        "'what waits' below shows where it was"
    )

    def fail() -> None:
        pytest.fail(message)

    def give_up(number: int, frame: FrameType | None) -> None:
        fail()

    def expire(number: int, frame: FrameType | None) -> None:
        if is_debugging():  # coverage.py traces, too, and is no debugger
            return
        item.stash[EXPIRED] = message
        item.add_report_section("call", "what waits", everything_that_waits())
        if not trio.lowlevel.in_trio_run():
            fail()
        # An exception in a callback cancels all tasks, and comes out of trio.run in the end.
        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, UNWIND_S)
        trio.lowlevel.current_trio_token().run_sync_soon(fail)

    signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Say why a Trio loop was ended: it wraps the reason in an internal error of its own."""
    try:
        return (yield)
    except trio.TrioInternalError as error:
        if EXPIRED not in pyfuncitem.stash:
            raise
        raise pytest.fail.Exception(pyfuncitem.stash[EXPIRED]) from error


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return None
