"""How well something is, in one word: what conditions are made of."""

from __future__ import annotations

import enum

import attrs


class Level(enum.IntEnum):
    """How much it should worry; larger is worse."""

    GOOD = 0
    UNKNOWN = 1
    WARN = 2
    BAD = 3


@attrs.frozen
class Condition:
    """`word` fits a column, `why` is a sentence, or "" when there is nothing to add."""

    level: Level
    word: str
    why: str = ""
