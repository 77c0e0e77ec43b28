"""Counts what each node of a cluster in this process does: no seconds, so no noise.

Trio tells which task runs, and the task's nursery tells whose it is. Python tells each bytecode
instruction that is executed; the network in memory and `trioha.services.loop.host` are asked
through what the nodes call in place of the kernel.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import attrs
import pytest
import trio

from trioha.testing.network import PipeTransport

NOBODY = ""
"""The name server, clients and the test."""


@attrs.define
class Counts:
    """Counts of one node's work."""

    instructions: int = 0
    """Bytecode instructions of CPython. What compiled modules do is not among them."""
    passes: int = 0
    """Times that Trio ran one of its tasks."""
    calls: int = 0
    """Reads and writes of connections: a system call each, where there is a kernel."""


class NodeCounter(trio.abc.Instrument):
    """Counts by node, a node being the task `machine[HOST]` and all tasks below it."""

    def __init__(self) -> None:
        self.by_host: dict[str, Counts] = {}
        self._host_of: dict[trio.lowlevel.Task, str] = {}
        self._running = Counts()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        host = self._host_of.get(task)
        if host is None:
            host = self._host_of[task] = _host_of(task)
        self._running = self.by_host.setdefault(host, Counts())
        self._running.passes += 1

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self._host_of.pop(task, None)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count while the block runs.

        Python collects no garbage meanwhile: at what message it would do so depends on what ran
        before, and functions that it calls then (Hypothesis has one) are no node's work.
        """
        collects = gc.isenabled()
        gc.disable()
        trio.lowlevel.add_instrument(self)
        other_trace = sys.gettrace()
        sys.settrace(self._trace)
        for frame in _frames_of_all_tasks():
            frame.f_trace = self._trace
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        try:
            yield
        finally:
            sys.settrace(other_trace)
            trio.lowlevel.remove_instrument(self)
            if collects:
                gc.enable()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Hear of reads and writes of connections that are opened while the block runs."""
        with pytest.MonkeyPatch.context() as patches:
            for name in ("receive_some", "try_send"):
                method = _counted(self, getattr(PipeTransport, name))
                patches.setattr(PipeTransport, name, method)
            yield

    def call(self) -> None:
        self._running.calls += 1

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if event == "opcode":
            self._running.instructions += 1
        elif frame.f_code.co_filename == __file__:
            return None  # counting is no node's work
        else:
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._trace


def _counted(counter: NodeCounter, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        counter.call()
        return method(*args)

    return call


def _frames_of_all_tasks() -> Iterator[FrameType]:
    """Yield the frames of coroutines that wait: tracing would leave them out."""
    root = trio.lowlevel.current_root_task()
    tasks = [] if root is None else [root]
    while tasks:
        task = tasks.pop()
        coroutine: Any = task.coro
        while coroutine is not None:
            frame = getattr(coroutine, "cr_frame", None)
            if frame is not None:
                yield frame
            coroutine = getattr(coroutine, "cr_await", None)
        for nursery in task.child_nurseries:
            tasks.extend(nursery.child_tasks)


def _host_of(task: trio.lowlevel.Task) -> str:
    one: trio.lowlevel.Task | None = task
    while one is not None:
        if one.name.startswith("machine["):
            return one.name[len("machine[") : -1]
        nursery = one.parent_nursery
        one = None if nursery is None else nursery.parent_task
    return NOBODY
