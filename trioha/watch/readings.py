"""Readers of fields in plain answers: a field that is missing or of another type is None.

A node of an older version lacks fields, and a newer one may have changed some: neither may blank a
screen. So no reader raises, and none returns a zero instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

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
    if value is None or type(value) is int:
        return value
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


class _ByType(NamedTuple):
    read: Callable[[Fields, str], object]
    exact: type | None = None
    """Values of just this type are taken as they are. None: the reader looks at each."""
    missing: object = None


_BY_TYPE: Mapping[str, _ByType] = {
    "int | None": _ByType(whole, int),
    "float | None": _ByType(number),
    "bool | None": _ByType(truth, bool),
    "str | None": _ByType(words),
    "str": _ByType(text, str, ""),
}


def read(kind: type[T], fields: Fields, **known: object) -> T:
    """Return a value of an attrs class; what is not `known` is read by field name and type."""
    get = fields.get
    for name, (reader, exact, missing) in _read_by(kind, *known):
        value = get(name)
        if value is None:
            known[name] = missing
        else:
            known[name] = value if type(value) is exact else reader(fields, name)
    return kind(**known)


@cache
def _read_by(kind: type[attrs.AttrsInstance], *known: str) -> tuple[tuple[str, _ByType], ...]:
    """Return the fields of a class that are not known, each with its reader."""
    # Modules of this package annotate with texts: a field's type is the text in its source.
    return tuple(
        (field.name, _BY_TYPE[str(field.type)])
        for field in attrs.fields(kind)
        if field.name not in known
    )
