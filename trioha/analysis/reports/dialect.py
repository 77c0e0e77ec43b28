"""The few pieces of SQL that only these reports need and that engines spell differently."""

from __future__ import annotations

from trioha.analysis.engine import Engine


def each_word(engine: Engine, column: str, separator: str = " ") -> str:
    """FROM ... suffix: one row per separated word of a column, in ``word.value``.

    KEYS holds many keys in one text. Two separators in a row make an empty word: leave it out.
    """
    if engine.name == "spark":
        return f" LATERAL VIEW explode(split({column}, '{separator}')) word AS value"
    return f", LATERAL (SELECT unnest(string_split({column}, '{separator}')) AS value) AS word"


def text_of(engine: Engine, column: str) -> str:
    """SQL: a binary column as text."""
    return f"CAST({column} AS {'STRING' if engine.name == 'spark' else 'TEXT'})"


def op_places(engine: Engine) -> str:
    """SQL: what a record of the op topic ends, as text."""
    return text_of(engine, "body") if engine.name == "spark" else "op_places"
