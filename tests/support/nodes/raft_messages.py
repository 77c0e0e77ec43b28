"""Raft messages by the names of their fields, for tests that change or invent some."""

from __future__ import annotations

from typing import Any, TypeVar

from trioha.dledger import messages as say

M = TypeVar("M", bound=say.RaftMessage)


def names_of(kind: type[say.RaftMessage]) -> tuple[str, ...]:
    """Return the names of all fields, in the order of the arguments."""
    return ("source", "target", "term", *kind.FIELDS)


def with_values(message: M, **values: Any) -> M:
    """Return the message with some other values."""
    same = {name: getattr(message, name) for name in names_of(type(message))}
    return type(message)(**{**same, **values})
