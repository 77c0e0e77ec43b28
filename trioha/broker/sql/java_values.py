"""Java's types of values, and its readings of strings as numbers, as SQL92 filters need them.

`int(text)` and `float(text)` will not do: Java takes `5d` and `0x1p3`, and takes neither `1_0` nor
`inf`.
"""

from __future__ import annotations

import math
import re
from enum import Enum

_INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MAX = (1 << 63) - 1
_LONG_MIN = -1 - LONG_MAX
LONG_DIGITS = 19
_SHORT_DIGITS = 10
"""Number of digits below which a number is an Integer in any case."""

_JAVA_INTEGER = re.compile(r"[+-]?\d+")
_JAVA_DOUBLE = re.compile(
    r"""[+-]?(?:
    (?P<word>NaN|Infinity)
    |(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?P<suffix>[fFdD])?
    |(?P<hex>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?
    )""",
    re.VERBOSE,
)
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


class SqlEvaluationError(ValueError):
    """A comparison of these values has no answer: RocketMQ's evaluation throws."""


class JavaType(Enum):
    """Java's type of a value that is not null."""

    TEXT = "String"
    BOOLEAN = "Boolean"
    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"
    NONE = "null"


def compare_doubles(one: float, other: float) -> int:
    """Double.compareTo: -0.0 is below 0.0, and NaN is equal to itself and above all else."""
    if one < other:
        return -1
    if one > other:
        return 1
    return _rank(one) - _rank(other)


def _rank(number: float) -> int:
    return 1 if number != number else -1 if number == 0 and math.copysign(1, number) < 0 else 0


def integer_of(text: str) -> int:
    """Integer.valueOf.

    Errors: SqlEvaluationError, as of those below.
    """
    return _whole(text, _INT_MIN, INT_MAX)


def long_of(text: str) -> int:
    """Long.valueOf."""
    return _whole(text, _LONG_MIN, LONG_MAX)


def _whole(text: str, low: int, high: int) -> int:
    if len(text) < _SHORT_DIGITS and text.isascii() and text.isdecimal():
        return int(text)
    # Java takes the digits of any script, but only of the basic plane.
    if _JAVA_INTEGER.fullmatch(text) and (text.isascii() or max(text) <= "\uffff"):
        digits = text.lstrip("+-0")
        if len(digits) <= LONG_DIGITS:
            number = int(digits or "0")
            number = -number if text[0] == "-" else number
            if low <= number <= high:
                return number
    raise SqlEvaluationError(f"{text:.32} is no number")


def double_of(text: str) -> float:
    """Double.valueOf."""
    text = text.strip(_JAVA_BLANKS)
    match = _JAVA_DOUBLE.fullmatch(text)
    if match is None:
        raise SqlEvaluationError(f"{text:.32} is no number")
    if match["hex"]:
        try:
            return float.fromhex(text.rstrip("fFdD"))
        except OverflowError:
            return -math.inf if text[0] == "-" else math.inf
    return float(text[:-1] if match["suffix"] else text)
