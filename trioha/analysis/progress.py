"""How long work is followed: who scans reports rows and bytes, who shows them decides how."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """One piece of work at a time, from `begin` to `end`."""

    def begin(self, what: str, total: int, unit: str) -> None:
        """Work starts; `total` counts `unit`s: bytes, or tasks. 0 when nobody knows."""

    def advance(self, count: int, rows: int = 0) -> None:
        """So many units, and so many rows in them, more."""

    def resize(self, total: int) -> None:
        """There is more, or less, to do than was said at the beginning."""

    def end(self) -> None:
        """It is over, done or not."""


class NoProgress:
    """Shows nothing."""

    def begin(self, what: str, total: int, unit: str) -> None:
        pass

    def advance(self, count: int, rows: int = 0) -> None:
        pass

    def resize(self, total: int) -> None:
        pass

    def end(self) -> None:
        pass
