"""Checks a value against the JSON schemas of docs/schemas: as much of the standard as they use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {
    "$schema", "$ref", "$defs", "title", "description", "type", "properties", "required", "items",
    "additionalProperties", "anyOf", "enum", "default",
}  # fmt: skip


def faults(value: object, schema: Mapping[str, Any]) -> list[str]:
    """Return what speaks against `value`, each fault with its place; also unknown properties."""
    return list(_faults(value, schema, schema.get("$defs", {}), "$"))


def _faults(
    value: object, schema: Mapping[str, Any], defs: Mapping[str, Any], place: str
) -> Iterator[str]:
    assert schema.keys() <= _KNOWN, f"this checker does not know {schema.keys() - _KNOWN}"
    if "$ref" in schema:
        yield from _faults(value, defs[schema["$ref"].removeprefix("#/$defs/")], defs, place)
        return
    if "anyOf" in schema:
        tries = [list(_faults(value, one, defs, place)) for one in schema["anyOf"]]
        if all(tries):
            yield from min(tries, key=len)
        return
    kinds = schema.get("type")
    if kinds is not None:
        names = [kinds] if isinstance(kinds, str) else kinds
        allowed = tuple(kind for name in names for kind in _TYPES[name])
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            yield f"{place} is {value!r:.60}, no {kinds}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {value!r}, none of {schema['enum']}"
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, schema.get("items", {}), defs, f"{place}[{index}]")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{place} lacks {name}"
        for name, item in value.items():
            inner = properties.get(name, schema.get("additionalProperties"))
            if not isinstance(inner, dict):
                if inner is None and "properties" in schema:
                    yield f"{place} has {name}, which the schema does not know"
                continue
            yield from _faults(item, inner, defs, f"{place}.{name}")
