"""Attributes of topics, which RocketMQ 5's tools set: `+message.type=FIFO,-reserve.time`.

A request names changes only: `+key=value` adds or alters, `-key` deletes, and what it does not name
stays (AttributeUtil.java). The broker keeps attributes and gives them back. RocketMQ's proxy reads
`message.type` and rejects messages of another type; the broker itself does not, as RocketMQ's.

An attribute that asks for a kind of queue or of retention that this broker does not have is
rejected: an operator who set it would rely on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import attrs

from trioha.wire.refusals import system_error

MESSAGE_TYPE: Final = "message.type"
RESERVE_TIME: Final = "reserve.time"


@attrs.frozen
class _Kind:
    """An attribute with a set of values."""

    values: frozenset[str]
    absent: frozenset[str] = frozenset()
    """Values of RocketMQ that this broker does not support."""
    is_changeable: bool = True


_KINDS: Final[Mapping[str, _Kind]] = {
    MESSAGE_TYPE: _Kind(
        frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"})
    ),
    "queue.type": _Kind(frozenset({"SimpleCQ"}), frozenset({"BatchCQ"}), is_changeable=False),
    "cleanup.policy": _Kind(frozenset({"DELETE"}), frozenset({"COMPACTION"}), is_changeable=False),
}


def altered(current: Mapping[str, str], changes: str, *, is_new: bool) -> dict[str, str]:
    """Return the attributes of a topic after the changes that a request names.

    Errors: CommandError (SYSTEM_ERROR, as RocketMQ 5), which says what is wrong.
    """
    found = dict(current)
    seen = set()
    for change in filter(None, changes.split(",")):
        sign, (key, equals, value) = change[0], change[1:].partition("=")
        if sign not in "+-" or not key or (sign == "+") != bool(equals and value):
            raise system_error(f"attribute {change!r:.80} is neither +key=value nor -key")
        if key in seen:
            raise system_error(f"attribute {key:.80} is named twice")
        seen.add(key)
        if key not in _KINDS and key != RESERVE_TIME:
            known = ", ".join(sorted((*_KINDS, RESERVE_TIME)))
            raise system_error(f"unknown attribute {key!r:.80}; a topic may have {known}")
        if sign == "+":
            _check(key, value)
            _check_change(key, value, found.get(key), is_new=is_new)
            found[key] = value
        elif found.pop(key, None) is None:
            raise system_error(f"attribute {key} cannot be deleted: the topic does not have it")
        else:
            _check_change(key, "", current.get(key), is_new=is_new)
    return found


def _check(key: str, value: str) -> None:
    kind = _KINDS.get(key)
    if kind is None:
        if not re.fullmatch("-1|[0-9]{1,18}", value, re.ASCII):
            raise system_error(f"{key} is a number from -1 to 10^18, not {value!r:.40}")
    elif value in kind.absent:
        raise system_error(f"{key}={value} is not supported by this broker")
    elif value not in kind.values:
        raise system_error(f"{key} is one of {', '.join(sorted(kind.values))}, not {value!r:.40}")


def _check_change(key: str, value: str, before: str | None, *, is_new: bool) -> None:
    """Reject the change of an attribute that is fixed once the topic exists."""
    if key in _KINDS and not _KINDS[key].is_changeable and not is_new and value != before:
        raise system_error(f"attribute {key} cannot be changed once the topic exists")
