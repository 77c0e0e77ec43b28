"""A node's answers about its inside, checked: its nursery tree and its settings.

A node may be of another version, broken or hostile. What a reader returns has the promised names
and types, within limits, so that the screen that shows it need not check again.

Errors: readers raise CommandError with the node's code, and RemoteProtocolError for an answer that
cannot be read.
"""

from __future__ import annotations

import math
from typing import Any, Final

from trioha.errors import RemoteProtocolError
from trioha.watch.node_answers import read_map
from trioha.wire.remoting_command import RemotingCommand

ANSWER_BYTES_MAX: Final = 4 << 20
"""Ten times the largest tree that a node of ours tells of, a thousand tasks."""
NESTED_MAX: Final = 100
"""Limit of tasks within each other, and of nurseries of one task; a broker has a dozen."""
_SHOWN_CHARS: Final = 40


def read_tasks(address: str, response: RemotingCommand) -> dict[str, Any]:
    """Return the tree of `trioha.services.admin.task_tree`: ``{"count", "root"}``."""
    told = _read(address, response)
    try:
        return {"count": _count(told, "count"), "root": _task(_field(told, "root"), NESTED_MAX)}
    except ValueError as error:
        raise RemoteProtocolError(f"{address}: no tree of tasks: {error}") from None


def read_settings(address: str, response: RemotingCommand) -> list[dict[str, Any]]:
    """Return a row ``{"key", "value", "origin", "doc"}`` for each setting."""
    told = _read(address, response)
    try:
        return [_setting(row) for row in _rows(told, "settings")]
    except ValueError as error:
        raise RemoteProtocolError(f"{address}: no settings: {error}") from None


def _read(address: str, response: RemotingCommand) -> Any:
    size = len(response.body_bytes())
    if size > ANSWER_BYTES_MAX:
        raise RemoteProtocolError(
            f"{address}: the answer has {size} bytes, at most {ANSWER_BYTES_MAX} are read"
        )
    return read_map(address, response)


def _task(told: Any, nested_max: int) -> dict[str, Any]:
    if nested_max == 0:
        raise ValueError(f"more than {NESTED_MAX} tasks within each other")
    nurseries = _rows(told, "nurseries")
    if len(nurseries) > NESTED_MAX:
        raise ValueError(f"a task has {len(nurseries)} nurseries, at most {NESTED_MAX}")
    return {
        "name": _text(told, "name"),
        "waits_in": _text(told, "waits_in"),
        "nurseries": [_nursery(one, nested_max - 1) for one in nurseries],
    }


def _nursery(told: Any, nested_max: int) -> dict[str, Any]:
    deadline_s = told.get("deadline_in_s") if isinstance(told, dict) else None
    if not (deadline_s is None or _is_number(deadline_s)):
        raise _wrong("deadline_in_s", "a number", deadline_s)
    return {
        "tasks": [_task(one, nested_max) for one in _rows(told, "tasks")],
        "left_out": _count(told, "left_out"),
        "deadline_in_s": deadline_s,
    }


def _setting(told: Any) -> dict[str, Any]:
    value = _field(told, "value")
    if not (isinstance(value, str | bool) or _is_number(value)):
        raise _wrong("value", "text, a number, true or false", value)
    return {
        "key": _text(told, "key"),
        "value": value,
        "origin": _text(told, "origin"),
        "doc": _text(told, "doc") if "doc" in told else "",
    }


def _rows(told: Any, name: str) -> list[Any]:
    value = _field(told, name)
    if not isinstance(value, list):
        raise _wrong(name, "a list", value)
    return value


def _text(told: Any, name: str) -> str:
    value = _field(told, name)
    if not isinstance(value, str):
        raise _wrong(name, "text", value)
    return value


def _count(told: Any, name: str) -> int:
    value = _field(told, name)
    if type(value) is not int or value < 0:
        raise _wrong(name, "a count", value)
    return value


def _field(told: Any, name: str) -> Any:
    if not isinstance(told, dict):
        raise _wrong(f"what should have {name}", "a map", told)
    if name not in told:
        raise ValueError(f"{name} is missing")
    return told[name]


def _is_number(value: object) -> bool:
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


def _wrong(name: str, kind: str, value: object) -> ValueError:
    if isinstance(value, str | bytes):
        value = value[:_SHOWN_CHARS]
    elif isinstance(value, list | dict):
        value = type(value)()
    return ValueError(f"{name} is not {kind} but {value!r} ({type(value).__name__})")
