"""Conditions and their operands as closures over a message's properties.

Each closure returns a value of Java's or None for null, and raises SqlEvaluationError where Java's
evaluation throws. Which rule compares two operands follows from their types
(ComparisonExpression.__compare): a property is a String, and every other type is known when the
expression is compiled.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol

from trioha.broker.sql.java_values import (
    JavaType,
    SqlEvaluationError,
    compare_doubles,
    double_of,
    integer_of,
    long_of,
)


class Properties(Protocol):
    """Values of a message's properties: a table, or a text to search."""

    def get(self, name: str, /) -> str | None: ...


Value = str | bool | int | float | None
Evaluate = Callable[[Properties], Value]
Predicate = Callable[[Properties], bool | None]
Holds = Callable[[int, int], bool]
Compare = Callable[[Any, Any], int]


class Typed(Protocol):
    """An operand."""

    @property
    def type(self) -> JavaType: ...
    @property
    def evaluate(self) -> Evaluate: ...


def property_of(name: str) -> Evaluate:
    return operator.methodcaller("get", name)


def constant(value: Value) -> Evaluate:
    return lambda properties: value


def null_of(inner: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> None:
        inner(properties)  # it may raise

    return evaluate


def boolean_cast(inner: Evaluate) -> Predicate:
    return lambda properties: None if inner(properties) is None else False


def negated(inner: Predicate) -> Predicate:
    def evaluate(properties: Properties) -> bool | None:
        value = inner(properties)
        return None if value is None else not value

    return evaluate


def any_of(conditions: tuple[Predicate, ...]) -> Predicate:
    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = False
        for condition in conditions:
            value = condition(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return evaluate


def all_of(conditions: tuple[Predicate, ...]) -> Predicate:
    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = True
        for condition in conditions:
            value = condition(properties)
            if value is None:
                result = None
            elif not value:
                return False
        return result

    return evaluate


def is_null(inner: Evaluate, is_not: bool) -> Predicate:
    return lambda properties: (inner(properties) is None) is not is_not


def is_in(inner: Evaluate, elements: frozenset[str], is_not: bool) -> Predicate:
    def evaluate(properties: Properties) -> bool | None:
        value = inner(properties)
        return None if value is None else (value in elements) is not is_not

    return evaluate


def has_part(
    inner: Evaluate, holds: Callable[[str, str], bool], part: str, is_not: bool
) -> Predicate:
    """CONTAINS and its like. Also with NOT it is FALSE for an empty part, and for no string.

    RocketMQ does not evaluate the operand before an empty part, so it raises no error either.
    """

    def evaluate(properties: Properties) -> bool:
        if not part:
            return False
        value = inner(properties)
        return isinstance(value, str) and holds(value, part) is not is_not

    return evaluate


def equal(left: Typed, right: Typed) -> Predicate:
    """Equality. Two nulls are equal; a null on the right alone makes it FALSE, on the left null."""
    left_value, right_value = left.evaluate, right.evaluate
    is_equal = _equal_by_type(left.type, right.type)

    def evaluate(properties: Properties) -> bool | None:
        one, other = left_value(properties), right_value(properties)
        if one is None:
            return True if other is None else None
        return False if other is None else is_equal(one, other)

    return evaluate


def ordered(left: Typed, right: Typed, holds: Holds) -> Predicate:
    """Return the predicate of < <= > or >=; it is null when either side is."""
    left_value, right_value = left.evaluate, right.evaluate
    compare = compare_by_type(left.type, right.type)

    def evaluate(properties: Properties) -> bool | None:
        one = left_value(properties)
        if one is None:
            return None
        other = right_value(properties)
        if other is None:
            return None
        return holds(compare(one, other), 0)

    return evaluate


def compare_by_type(left: JavaType, right: JavaType) -> Compare:
    """Numbers and strings: a string becomes what the number beside it is, two become doubles."""
    if JavaType.DOUBLE in (left, right) or left is right is JavaType.TEXT:
        one_of: Callable[[Any], float] = double_of if left is JavaType.TEXT else float
        other_of: Callable[[Any], float] = double_of if right is JavaType.TEXT else float
        return lambda one, other: compare_doubles(one_of(one), other_of(other))
    if left is JavaType.TEXT:
        read = integer_of if right is JavaType.INTEGER else long_of
        return lambda one, other: read(one) - other
    if right is JavaType.TEXT:
        read = integer_of if left is JavaType.INTEGER else long_of
        return lambda one, other: one - read(other)
    return operator.sub


def _equal_by_type(left: JavaType, right: JavaType) -> Callable[[Any, Any], bool]:
    if left is right and left is not JavaType.DOUBLE:
        return operator.eq
    if JavaType.BOOLEAN in (left, right):
        if left is JavaType.TEXT:
            return lambda one, other: (one.lower() == "true") is other
        if right is JavaType.TEXT:
            return _class_cast_exception
        return lambda one, other: False
    compare = compare_by_type(left, right)
    return lambda one, other: compare(one, other) == 0


def _class_cast_exception(one: bool, other: str) -> bool:
    raise SqlEvaluationError("RocketMQ cannot compare a condition with a string on its right")
