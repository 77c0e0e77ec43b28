"""Readers of fields in plain answers: a field that is missing or of another type is None.

A node of an older version lacks fields, and a newer one may have changed some: neither may blank a
screen. So no reader raises, and none returns a zero instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import attrs

T = TypeVar("T", bound=attrs.AttrsInstance)
Fields = Mapping[str, Any]

EMPTY: Fields = {}


def fields_of(value: object) -> Fields:
    """Return `value` if it is a map, else an empty map."""
    return value if isinstance(value, dict) else EMPTY


def rows_of(value: object) -> list[Fields]:
    """Return the maps in a list; its other items are left out."""
    if not isinstance(value, list | tuple):
        return []
    return [one for one in value if isinstance(one, dict)]


def whole(fields: Fields, name: str) -> int | None:
    """Return a whole number, also from text, as in RocketMQ's tables."""
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


def text(fields: Fields, name: str) -> str:
    """Return a text; "" if there is none."""
    return words(fields, name) or ""


def words(fields: Fields, name: str) -> str | None:
    """Return a text; None also for an empty one."""
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


_BY_TYPE: Mapping[str, Callable[[Fields, str], object]] = {
    "int | None": whole,
    "float | None": number,
    "bool | None": truth,
    "str | None": words,
    "str": text,
}


def read(kind: type[T], fields: Fields, **known: object) -> T:
    """Return a value of an attrs class; what is not `known` is read by field name and type."""
    return kind(**{name: reader(fields, name) for name, reader in _read_by(kind, *known)}, **known)


@cache
def _read_by(
    kind: type[attrs.AttrsInstance], *known: str
) -> tuple[tuple[str, Callable[[Fields, str], object]], ...]:
    """Return the fields of a class that are not known, each with its reader."""
    # Modules of this package annotate with texts: a field's type is the text in its source.
    return tuple(
        (field.name, _BY_TYPE[str(field.type)])
        for field in attrs.fields(kind)
        if field.name not in known
    )
