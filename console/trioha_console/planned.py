"""A change that an operator makes from the console: its plan and its outcome.

`screens.operation` shows every such change; `operations` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from trioha.failover.asking import Flow
from trioha.jobs.telling import JobScope

Say = Callable[[str], None]
"""Takes a line that tells the progress."""


@attrs.frozen
class Done:
    """The outcome of a change."""

    lines: list[str]
    is_well: bool = True


@attrs.frozen
class Planned:
    """The plan of a change. Nothing has changed yet."""

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
    """Name of the thing. The operator types it if something would be lost."""
    plan: Callable[[JobScope], Flow[Planned]]
