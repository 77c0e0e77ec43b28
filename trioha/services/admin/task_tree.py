"""Request 30004: the node's nursery tree with its task names, as Trio itself has it.

Breadth first, so that what is cut off a tree of ten thousand connections is their leaves and not
the trunk; each place that was cut says how many it had.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import trio

TASKS_MAX = 1000
CHILDREN_MAX = 256
"""Tasks shown of one nursery: connections are many and alike."""


def task_tree() -> dict[str, Any]:
    """The tree of the run this is called in, as msgpack takes it.

    A task is ``{"name", "waits_in", "nurseries"}``, a nursery ``{"tasks", "left_out",
    "deadline_in_s"}``; `waits_in` is where its code stands, `count` how many tasks are told.
    """
    root = trio.lowlevel.current_root_task()
    assert root is not None, "called outside trio.run"
    now_s = trio.current_time()
    top = _task(root)
    count = 1
    rows: deque[tuple[trio.lowlevel.Task, dict[str, Any]]] = deque([(root, top)])
    while rows:
        task, row = rows.popleft()
        for nursery in task.child_nurseries:
            room = min(CHILDREN_MAX, TASKS_MAX - count)
            told = []
            for child in islice(_by_name(nursery), room):
                child_row = _task(child)
                told.append(child_row)
                rows.append((child, child_row))
            count += len(told)
            deadline_s = nursery.cancel_scope.deadline
            row["nurseries"].append(
                {
                    "tasks": told,
                    "left_out": len(nursery.child_tasks) - len(told),
                    "deadline_in_s": None if math.isinf(deadline_s) else deadline_s - now_s,
                }
            )
    return {"count": count, "root": top}


def tree_lines(task: Mapping[str, Any], *, indent: str = "") -> Iterator[str]:
    """Yield a task of a tree and the tasks below it, a line each, nurseries by their indent."""
    place = f"   {task['waits_in']}" if task["waits_in"] else ""
    yield f"{indent}{task['name']}{place}"
    for number, nursery in enumerate(task["nurseries"]):
        # A task's nurseries lie within each other: the later ones end first.
        inner = indent + "  " * (number + 1)
        for child in nursery["tasks"]:
            yield from tree_lines(child, indent=inner)
        if nursery["left_out"]:
            yield f"{inner}and {nursery['left_out']} more"


def _by_name(nursery: trio.Nursery) -> list[trio.lowlevel.Task]:
    return sorted(nursery.child_tasks, key=lambda task: task.name)


def _task(task: trio.lowlevel.Task) -> dict[str, Any]:
    return {"name": task.name, "waits_in": _place(task), "nurseries": []}


def _place(task: trio.lowlevel.Task) -> str:
    """The innermost line of our code that the task has come to; empty when it has none."""
    place = ""
    for frame, line in task.iter_await_frames():
        code = frame.f_code
        if "/trioha/" in code.co_filename:
            file = code.co_filename.rpartition("/trioha/")[2]
            place = f"{file}:{line} {code.co_name}"
    return place
