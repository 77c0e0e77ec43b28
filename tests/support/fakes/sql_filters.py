"""SQL92 filters and properties drawn at random: right ones, and ones that are almost right."""

from __future__ import annotations

import random

NAMES = ("a", "b", "c", "Price", "_x$1")
TEXTS = (
    *("", "x", "it''s", "true", "TRUE", "false", "5", "-5", "+5", "5.0", "0", "-0", "-0.0", "007"),
    *("2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("1e3", "1E-3", "5d", "5f", "5L", ".5", "5.", "NaN", "-NaN", "Infinity", "-Infinity", "0x1p3"),
    *(
        "0x1.8P-2f",
        "0x10",
        "1e400",
        "-1e400",
        " 5 ",
        " 5.5\t",
        "5 5",
        "1_0",
        "\u0665",
        "\uff15",
        "+",
        ".",
    ),
    *(
        "9007199254740993",
        "9007199254740992",
        "\u017f",
        "\U0001d7d9",
        "inf",
        "1" * 30,
        "0" * 30 + "5",
    ),
)
NUMBERS = (
    *("0", "1", "5", "7", "5L", "5l", "2147483647", "2147483648", "9223372036854775807"),
    *(
        "9223372036854775808",
        "5.0",
        "5.",
        ".5",
        "1e3",
        "5E-1",
        "0.0",
        "1e400",
        "1e-400",
        "0l",
        "05",
    ),
    *("9007199254740993", "9007199254740992.0", "1e18", "3.5e+1"),
)
SCRAPS = (
    *("AND", "OR", "NOT", "(", ")", ",", "=", "<>", "<", ">", "<=", ">=", "+", "-", "IS", "NULL"),
    *("BETWEEN", "IN", "TRUE", "LIKE", "!=", "--", "/*", "*/", "'", "''", "#", "\n", "-- c\n"),
    *("/* c */", "/***/", "-- c", "a", "'x'", "5", "%", ";", "é", '"'),
)
_BLANKS = (" ", " ", " ", " ", "  ", "\t", "\n", " /* c **/ ", " -- c\r\n", "\f")
_DEPTH_MAX = 4


def drawn_expression(rng: random.Random, *, has_parts: bool = False) -> str:
    """Mostly one that the grammar allows; the rules of types may still refuse it.

    `has_parts`: with CONTAINS and its like, of RocketMQ 5.
    """
    words = _condition(rng, 0, has_parts)
    while rng.random() < 0.06:
        words.insert(rng.randrange(len(words) + 1), rng.choice(SCRAPS))
    while len(words) > 1 and rng.random() < 0.03:
        del words[rng.randrange(len(words))]
    if rng.random() < 0.03:
        return "".join(words)
    return "".join(word + rng.choice(_BLANKS) for word in words)


def drawn_properties(rng: random.Random) -> dict[str, str]:
    texts = (text.replace("''", "'") for text in rng.choices(TEXTS, k=len(NAMES)))
    drawn = zip(NAMES, texts, strict=True)
    return {name: text for name, text in drawn if text and rng.random() < 0.8}


def _condition(rng: random.Random, depth: int, has_parts: bool) -> list[str]:
    draw = rng.random()
    if depth >= _DEPTH_MAX or draw < 0.6:
        return _comparison(rng, depth, has_parts)
    if draw < 0.85:
        words = _condition(rng, depth + 1, has_parts)
        for _ in range(rng.randint(1, 3)):
            words += [_case(rng, rng.choice(("AND", "OR"))), *_condition(rng, depth + 1, has_parts)]
        return words
    if draw < 0.93:
        return [_case(rng, "NOT"), "(", *_condition(rng, depth + 1, has_parts), ")"]
    return ["(", *_condition(rng, depth + 1, has_parts), ")"]


def _comparison(rng: random.Random, depth: int, has_parts: bool) -> list[str]:
    left = _operand(rng, depth, has_parts)
    draw = rng.randrange(12 if has_parts else 10)
    negated = [_case(rng, "NOT")] if rng.random() < 0.4 else []
    if draw < 3:
        return [*left, rng.choice(("=", "<>")), *_operand(rng, depth, has_parts)]
    if draw < 6:
        return [*left, rng.choice(("<", "<=", ">", ">=")), *_number(rng, depth, has_parts)]
    if draw == 6:
        words = [
            *negated,
            "BETWEEN",
            *_number(rng, depth, has_parts),
            "AND",
            *_number(rng, depth, has_parts),
        ]
        return [*left, *(_case(rng, word) for word in words)]
    if draw == 7:
        elements = ", ".join(f"'{rng.choice(TEXTS)}'" for _ in range(rng.choice((1, 2, 4, 5, 6))))
        return [*left, *negated, _case(rng, "IN"), "(", elements, ")"]
    if draw == 8:
        return [*left, "IS", *negated, _case(rng, "NULL")]
    if draw > 9:
        word = rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
        return [*left, *negated, _case(rng, word), f"'{rng.choice(TEXTS)}'"]
    return left


def _number(rng: random.Random, depth: int, has_parts: bool) -> list[str]:
    """An operand for < and the like, more often than not."""
    draw = rng.random()
    if draw < 0.5:
        return [*rng.choice(((), (), ("-",), ("+",), ("-", "-"))), rng.choice(NUMBERS)]
    return [rng.choice(NAMES)] if draw < 0.9 else _operand(rng, depth, has_parts)


def _operand(rng: random.Random, depth: int, has_parts: bool) -> list[str]:
    draw = rng.random()
    if draw < 0.5:
        return [rng.choice(NAMES)]
    if draw < 0.65:
        return [f"'{rng.choice(TEXTS)}'"]
    if draw < 0.8:
        return [rng.choice(NUMBERS)]
    if draw < 0.86:
        return [_case(rng, rng.choice(("TRUE", "FALSE", "NULL")))]
    if draw < 0.93:
        return [rng.choice(("-", "+", "NOT")), *_operand(rng, depth, has_parts)]
    return (
        ["(", *_condition(rng, depth + 1, has_parts), ")"]
        if depth < _DEPTH_MAX
        else [rng.choice(NAMES)]
    )


def _case(rng: random.Random, word: str) -> str:
    return rng.choice((word, word, word.lower(), word.title()))
