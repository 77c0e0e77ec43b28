"""Tables that were understood before, kept for as long as no node answers anew.

Queue tables are asked for every five seconds and looked at every second. An answer is the same
object from one snapshot to the next until a newer one takes its place (`Collector.raw`), so whether
anything is new is told by comparing identities, and four looks of five cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, TypeVar

T = TypeVar("T")


class Tables:
    """By kind: what was made of which answers. One per stream of snapshots."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[list[str], list[object], Any]] = {}

    def of(self, kind: str, parts: Iterable[tuple[str, object]], make: Callable[[], T]) -> T:
        """What `make` gives for these answers, each with the name of its place."""
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
