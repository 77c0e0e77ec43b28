"""The value that a parser of incoming bytes gives out in place of an event."""

from __future__ import annotations

from enum import Enum
from typing import Final


class NeedData(Enum):
    """The type of `NEED_DATA`, so that type checkers can tell it from an event."""

    NEED_DATA = "NEED_DATA"


NEED_DATA: Final = NeedData.NEED_DATA
"""Nothing more to find until more bytes arrive."""
