"""Fields of plain answers, read so that what is missing or of another shape is None.

A node of an older version lacks fields, one of a newer version may have changed some: neither may
blank a screen. So nothing here raises, and nothing turns into zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]

EMPTY: Fields = {}


def fields_of(value: object) -> Fields:
    """`value` if it is a map, else an empty one."""
    return value if isinstance(value, dict) else EMPTY


def rows_of(value: object) -> list[Fields]:
    """The maps of a list; whatever else is in it is left out."""
    if not isinstance(value, list | tuple):
        return []
    return [one for one in value if isinstance(one, dict)]


def whole(fields: Fields, name: str) -> int | None:
    """A whole number, also from text, as RocketMQ's tables have it."""
    value = fields.get(name)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return None
    return None


def number(fields: Fields, name: str) -> float | None:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if abs(found) < float("inf") else None


def truth(fields: Fields, name: str) -> bool | None:
    value = fields.get(name)
    return value if isinstance(value, bool) else None


def words(fields: Fields, name: str) -> str | None:
    """Text; None for an empty one as well."""
    value = fields.get(name)
    return value if isinstance(value, str) and value else None
