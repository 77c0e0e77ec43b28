"""What an operator changes from the console, as the screen of all such changes sees it.

A line is read, a plan made, the plan carried out (`operations` has them all).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from trioha.failover.asking import Flow
from trioha.jobs.telling import JobScope

Say = Callable[[str], None]
"""Told how far it is, in a line."""


@attrs.frozen
class Done:
    """What became of it."""

    lines: list[str]
    is_well: bool = True


@attrs.frozen
class Planned:
    """What would be done. Nothing has changed yet."""

    lines: list[str]
    loses: Sequence[str]
    refusals: Sequence[str]
    carry_out: Callable[[JobScope, Say], Flow[Done]]
    asks_name: bool = False
    """A name is typed although nothing is lost."""

    @property
    def is_confirmed_by_name(self) -> bool:
        return bool(self.loses) or self.asks_name


@attrs.frozen
class PlannedOperation:
    """One change of one thing."""

    title: str
    name: str
    """Of the thing: it is typed where something would be lost."""
    plan: Callable[[JobScope], Flow[Planned]]
