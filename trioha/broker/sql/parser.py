"""SQL92 filters: the text of an expression compiled to a closure over a message's properties.

Theory of operation. Grammar and type rules are those of RocketMQ's filter module
(SelectorParser.jj, ComparisonExpression.java 4.9.7), oddities included: `NOT` binds closer than any
comparison, IN takes strings only, a property that stands alone is FALSE when it is there, and `0.0`
is no number. CONTAINS, STARTSWITH and ENDSWITH are those of 5.3.3. Logic has three values. A
comparison that Java answers with an exception, of 'abc' with 5 for instance, raises
`SqlEvaluationError`, and no operator around it can make up for that.

Limits: `EXPRESSION_CHARS_MAX`, `DEPTH_MAX`, `OPERATIONS_MAX`. AND and OR hold their operands in one
row, so that neither the parser nor an evaluation recurses over a long chain.

One difference on purpose: RocketMQ ignores what follows a complete expression, and takes
`a = 1 b = 2` for `a = 1`. Here that is an error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import cast

import attrs

from trioha.broker.sql.conditions import (
    Evaluate,
    Holds,
    Predicate,
    Properties,
    Value,
    all_of,
    any_of,
    boolean_cast,
    compare_by_type,
    constant,
    equal,
    has_part,
    is_in,
    is_null,
    negated,
    null_of,
    ordered,
    property_of,
)
from trioha.broker.sql.java_values import (
    INT_MAX,
    LONG_DIGITS,
    LONG_MAX,
    JavaType,
    SqlEvaluationError,
)
from trioha.broker.sql.tokens import END, SqlFilterError, Tokens, TrailingTextError

EXPRESSION_CHARS_MAX = 65_536
DEPTH_MAX = 64
"""Parentheses, signs and NOTs inside each other, and comparisons of comparisons."""
OPERATIONS_MAX = 1024
"""Operands and operators that one evaluation may look at; the elements of IN do not count.

BETWEEN looks at its left operand twice, so that a few nested words can need many steps.
"""


@attrs.frozen(eq=False)
class SqlFilter:
    """A compiled expression."""

    evaluate: Predicate
    """Returns True, False or None (null). Errors: SqlEvaluationError."""
    operations: int
    """Largest count of steps of an evaluation."""
    names: tuple[str, ...] = ()
    """Properties that an evaluation may ask for: the result depends on nothing else."""

    def wants(self, properties: Properties) -> bool:
        """Is a message with these properties taken? Null and errors mean no. HOT."""
        try:
            return self.evaluate(properties) is True
        except SqlEvaluationError:
            return False


def parse_sql_filter(text: str) -> SqlFilter:
    """Compile an expression.

    Errors: SqlFilterError.
    """
    if len(text) > EXPRESSION_CHARS_MAX:
        raise SqlFilterError(f"{len(text)} characters, at most {EXPRESSION_CHARS_MAX} are read")
    return _Parser(text).parse()


_NUMBERS = (JavaType.INTEGER, JavaType.LONG, JavaType.DOUBLE)


class _Form(Enum):
    """Kinds of operands, by which RocketMQ decides what may be compared."""

    PROPERTY = "property"
    LITERAL = "literal"
    CONDITION = "condition"
    SIGNED = "signed"


@attrs.frozen(eq=False)
class _Operand:
    form: _Form
    type: JavaType
    evaluate: Evaluate
    shown: str
    """The operand in the words of the expression, for error messages."""
    value: Value = None
    """The value of a literal."""
    depth: int = 1
    cost: int = 1
    """Operands and operators that its evaluation looks at."""

    @property
    def is_boolean(self) -> bool:
        """Is it one of RocketMQ's boolean expressions? TRUE, FALSE and NULL are."""
        return self.form is _Form.CONDITION or (
            self.form is _Form.LITERAL and self.type in (JavaType.BOOLEAN, JavaType.NONE)
        )


class _Parser:
    """Recursive descent; one method per rule of the grammar, loosest first."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._names: dict[str, None] = {}
        self._primaries = 0
        self._nesting = 0

    def parse(self) -> SqlFilter:
        tokens = self._tokens
        root = self._or()
        condition = self._condition(root)
        is_comment = tokens.kind == "-" and tokens.text.startswith("--", tokens.position)
        if tokens.kind is not END and not is_comment:
            raise TrailingTextError(
                f"character {tokens.position + 1}: nothing may follow a complete expression, "
                f"found {tokens.shown}"
            )
        return SqlFilter(condition, root.cost, tuple(self._names))

    def _or(self) -> _Operand:
        return self._chain("OR", self._and, any_of)

    def _and(self) -> _Operand:
        return self._chain("AND", self._equality, all_of)

    def _chain(
        self,
        keyword: str,
        rule: Callable[[], _Operand],
        join: Callable[[tuple[Predicate, ...]], Predicate],
    ) -> _Operand:
        first = rule()
        if self._tokens.kind != keyword:
            return first
        operands, conditions = [first], [self._condition(first)]
        while self._tokens.take(keyword):
            operands.append(rule())
            conditions.append(self._condition(operands[-1]))
        return self._made(join(tuple(conditions)), operands)

    def _equality(self) -> _Operand:
        tokens = self._tokens
        left = self._comparison()
        while True:
            if tokens.take("="):
                left = self._equal(left, self._comparison())
            elif tokens.take("<>"):
                left = self._negation(self._equal(left, self._comparison()))
            elif tokens.take("IS"):
                is_not = tokens.take("NOT")
                tokens.expect("NULL")
                left = self._made(is_null(left.evaluate, is_not), [left])
            else:
                return left

    def _comparison(self) -> _Operand:
        tokens = self._tokens
        left = self._unary()
        while True:
            kind = tokens.kind
            if kind in _ORDERS:
                tokens.advance()
                right = self._unary()
                left = self._made(self._ordered(kind, left, right), [left, right])
                continue
            is_not = tokens.take("NOT")
            if tokens.take("BETWEEN"):
                left = self._between(left, is_not)
            elif tokens.take("IN"):
                left = self._in(left, is_not)
            elif word := tokens.take_part_operator():
                part = _unquoted(tokens.expect("string", f"a string for {word}"))
                left = self._made(has_part(left.evaluate, _PARTS[word], part, is_not), [left])
            elif is_not:
                raise tokens.error(
                    "expected BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH behind NOT, "
                    f"found {tokens.shown}"
                )
            else:
                return left

    def _unary(self) -> _Operand:
        tokens = self._tokens
        operators: list[str] = []
        while tokens.kind in ("+", "-", "NOT"):
            operators.append(tokens.kind)
            self._go_deeper()
            tokens.advance()
        operand = self._primary()
        self._nesting -= len(operators)
        for kind in reversed(operators):
            if kind == "NOT":
                operand = self._negation(operand)
            elif kind == "-":
                operand = self._signed(operand)
        return operand

    def _primary(self) -> _Operand:
        tokens = self._tokens
        kind, image = tokens.kind, tokens.image
        self._primaries = self._bounded(self._primaries + 1)
        if kind == "(":
            self._go_deeper()
            tokens.advance()
            operand = self._or()
            tokens.expect(")")
            self._nesting -= 1
            return operand
        if kind == "word":
            self._names[image] = None
            operand = _Operand(_Form.PROPERTY, JavaType.TEXT, property_of(image), image)
        elif kind == "string":
            operand = _literal(JavaType.TEXT, _unquoted(image), image)
        elif kind in ("decimal", "float"):
            operand = self._number(kind, image)
        elif kind in _CONSTANTS:
            operand = _literal(*_CONSTANTS[kind], kind)
        else:
            raise tokens.error(f"expected a property, a value or '(', found {tokens.shown}")
        tokens.advance()
        return operand

    def _number(self, kind: str, image: str) -> _Operand:
        if kind == "float":
            number = float(image)
            if not 0 < number < math.inf:
                raise self._tokens.error(f"{image:.32} is beyond the range of positive doubles")
            return _literal(JavaType.DOUBLE, number, image)
        digits = image.rstrip("lL")
        if len(digits) > LONG_DIGITS or int(digits) > LONG_MAX:
            raise self._tokens.error(f"{image:.32} is beyond the range of 64 bits")
        value = int(digits)
        return _literal(JavaType.INTEGER if value <= INT_MAX else JavaType.LONG, value, image)

    def _between(self, value: _Operand, is_not: bool) -> _Operand:
        low = self._unary()
        self._tokens.expect("AND", "AND of BETWEEN")
        high = self._unary()
        operands = [value, low, value, high]
        if is_not:
            outside = (self._ordered("<", value, low), self._ordered(">", value, high))
            return self._made(any_of(outside), operands)
        inside = (self._ordered(">=", value, low), self._ordered("<=", value, high))
        if low.form is high.form is _Form.LITERAL and _constant_order(high, low) < 0:
            raise self._tokens.error(
                f"BETWEEN {low.shown:.32} AND {high.shown:.32}: the first is the greater one"
            )
        return self._made(all_of(inside), operands)

    def _in(self, value: _Operand, is_not: bool) -> _Operand:
        tokens = self._tokens
        tokens.expect("(", "'(' behind IN")
        elements = {_unquoted(tokens.expect("string", "a string for IN"))}
        while tokens.take(","):
            elements.add(_unquoted(tokens.expect("string", "a string for IN")))
        tokens.expect(")", "',' or ')'")
        if value.form is not _Form.PROPERTY:
            raise tokens.error(f"IN needs a property on its left, not {value.shown:.32}")
        return self._made(is_in(value.evaluate, frozenset(elements), is_not), [value])

    def _ordered(self, kind: str, left: _Operand, right: _Operand) -> Predicate:
        for operand in (left, right):
            is_text = operand.form is _Form.LITERAL and operand.type is JavaType.TEXT
            if is_text or operand.is_boolean:
                raise self._tokens.error(
                    f"{operand.shown:.32} cannot be compared by {kind}, only numbers and properties"
                )
        return ordered(left, right, _ORDERS[kind])

    def _equal(self, left: _Operand, right: _Operand) -> _Operand:
        for operand in (left, right):
            if operand.form is _Form.LITERAL and operand.type is JavaType.NONE:
                raise self._tokens.error("NULL cannot be compared: write IS NULL or IS NOT NULL")
        if left.form is right.form is _Form.LITERAL and left.is_boolean and not right.is_boolean:
            raise self._tokens.error(f"{left.shown} cannot be compared with {right.shown:.32}")
        return self._made(equal(left, right), [left, right])

    def _negation(self, operand: _Operand) -> _Operand:
        return self._made(negated(self._condition(operand)), [operand])

    def _signed(self, operand: _Operand) -> _Operand:
        """Return the negative of a number; of any other operand, null."""
        shown = f"-{operand.shown:.32}"
        value = operand.value
        if operand.type in _NUMBERS:
            assert isinstance(value, int | float)
            return _Operand(_Form.SIGNED, operand.type, constant(-value), shown, -value)
        nothing = null_of(operand.evaluate)
        depth, cost = self._checked(operand.depth + 1), self._bounded(operand.cost + 1)
        return _Operand(_Form.SIGNED, JavaType.NONE, nothing, shown, None, depth, cost)

    def _condition(self, operand: _Operand) -> Predicate:
        if operand.form is _Form.PROPERTY:
            return boolean_cast(operand.evaluate)
        if not operand.is_boolean:
            raise self._tokens.error(f"{operand.shown:.32} is no condition")
        return cast("Predicate", operand.evaluate)

    def _made(self, condition: Predicate, operands: Sequence[_Operand]) -> _Operand:
        depth = self._checked(1 + max(operand.depth for operand in operands))
        cost = self._bounded(1 + sum(operand.cost for operand in operands))
        return _Operand(
            _Form.CONDITION, JavaType.BOOLEAN, condition, "a condition", None, depth, cost
        )

    def _bounded(self, operations: int) -> int:
        if operations > OPERATIONS_MAX:
            raise self._tokens.error(f"more than {OPERATIONS_MAX} operands and operators; use IN")
        return operations

    def _go_deeper(self) -> None:
        self._nesting = self._checked(self._nesting + 1)

    def _checked(self, depth: int) -> int:
        if depth > DEPTH_MAX:
            raise self._tokens.error(f"nested deeper than {DEPTH_MAX} levels")
        return depth


_CONSTANTS: Mapping[str, tuple[JavaType, Value]] = {
    "TRUE": (JavaType.BOOLEAN, True),
    "FALSE": (JavaType.BOOLEAN, False),
    "NULL": (JavaType.NONE, None),
}
_ORDERS: Mapping[str, Holds] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_PARTS: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _literal(type_: JavaType, value: Value, shown: str) -> _Operand:
    return _Operand(_Form.LITERAL, type_, constant(value), shown, value)


def _unquoted(image: str) -> str:
    return image[1:-1].replace("''", "'")


def _constant_order(left: _Operand, right: _Operand) -> int:
    return compare_by_type(left.type, right.type)(left.value, right.value)
