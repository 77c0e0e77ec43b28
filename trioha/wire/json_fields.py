"""Fields of decoded JSON bodies, read leniently.

Clients disagree about types: C++ sends numbers as text and enums as ordinals, fastjson leaves null
fields out or in. Each reader takes what can be meant and refuses the rest.

Errors: all raise RemoteProtocolError, naming the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from trioha.errors import RemoteProtocolError

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

EnumT = TypeVar("EnumT", bound=StrEnum)
Json = Mapping[str, object]


def object_of(value: object, what: str) -> Json:
    """`value` as an object; null counts as an empty one."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise RemoteProtocolError(f"{what} is not a JSON object: {value!r:.60}")


def list_of(value: object, what: str) -> list[object]:
    """`value` as a list; null counts as an empty one."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise RemoteProtocolError(f"{what} is not a JSON array: {value!r:.60}")


def integer_of(value: object, what: str) -> int:
    """`value` as a Java long, whether it came as number or text."""
    try:
        if not isinstance(value, (int, float, str)):
            raise ValueError
        number = int(value)
    except (ValueError, OverflowError):
        raise RemoteProtocolError(f"{what} is not a number: {value!r:.60}") from None
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise RemoteProtocolError(f"{what} exceeds 64 bits")
    return number


def integer(fields: Json, name: str, default: int = 0) -> int:
    value = fields.get(name)
    if value is None or value == "":
        return default
    return integer_of(value, name)


def text(fields: Json, name: str, default: str = "") -> str:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(value)
    raise RemoteProtocolError(f"{name} is not text: {value!r:.60}")


def boolean(fields: Json, name: str, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, str):
        return value == "1" or value.lower() == "true"
    if isinstance(value, (bool, int)):
        return bool(value)
    raise RemoteProtocolError(f"{name} is not a boolean: {value!r:.60}")


def enumerated(fields: Json, name: str, default: EnumT) -> EnumT:
    """A Java enum by its name or its ordinal; the default if it is absent or unknown."""
    value = fields.get(name)
    members = list(type(default))
    if isinstance(value, str):
        return next((member for member in members if member.value == value), default)
    if isinstance(value, int) and 0 <= value < len(members):
        return members[value]
    return default


def texts(fields: Json, name: str) -> tuple[str, ...]:
    """A list of texts; elements of other types are refused."""
    values = []
    for value in list_of(fields.get(name), name):
        if not isinstance(value, str):
            raise RemoteProtocolError(f"{name} holds what is not text: {value!r:.60}")
        values.append(value)
    return tuple(values)
