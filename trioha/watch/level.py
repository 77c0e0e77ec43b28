"""Level, word and sentence of a condition."""

from __future__ import annotations

import enum

import attrs


class Level(enum.IntEnum):
    """Level of a condition; larger is worse."""

    GOOD = 0
    UNKNOWN = 1
    WARN = 2
    BAD = 3


@attrs.frozen
class Condition:
    """`word` fits a column; `why` is a sentence, or "" if the word tells everything."""

    level: Level
    word: str
    why: str = ""
