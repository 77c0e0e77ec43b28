"""A cache of tables that were made from answers, until a node answers anew.

Queue tables are asked for every five seconds and read every second. An answer is the same object
from one snapshot to the next until a newer one replaces it (`Collector.raw`). So comparing
identities finds out whether an answer is new, and four reads of five cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, TypeVar

T = TypeVar("T")


class Tables:
    """Cached tables by kind, with the answers they were made from; one per stream of snapshots."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[list[str], list[object], Any]] = {}

    def of(self, kind: str, parts: Iterable[tuple[str, object]], make: Callable[[], T]) -> T:
        """Return `make()`, or the cached table if `parts` (place, answer) are still the same."""
        places: list[str] = []
        answers: list[object] = []
        for place, answer in parts:
            places.append(place)
            answers.append(answer)
        kept = self._kept.get(kind)
        if kept is not None and kept[0] == places and all(map(is_, kept[1], answers)):
            found: T = kept[2]
            return found
        made = make()
        self._kept[kind] = places, answers, made
        return made
