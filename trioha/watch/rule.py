"""The parts of an alert rule: area, unit, thresholds, and a reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import attrs

from trioha.watch.replica import Replica
from trioha.watch.snapshot import ClusterSnapshot


class Area(Enum):
    """Subject area of a rule, by which checks choose rules."""

    HA = "ha"
    BROKER = "broker"
    NAMESRV = "namesrv"
    DISK = "disk"
    GROUP = "group"


class Unit(Enum):
    BYTES = "bytes"
    SECONDS = "seconds"
    RATIO = "ratio"
    COUNT = "count"
    FLAG = "flag"
    """1 for true, 0 for false."""


@attrs.frozen
class Reading:
    """One rule's present number for one subject."""

    rule: str
    subject: str
    value: float | None
    _text: str | Callable[[], str]

    @property
    def text(self) -> str:
        """A sentence that names the subject, for the case that the value is too high.

        Of five thousand groups few need one, so it may be made when it is read.
        """
        return self._text if isinstance(self._text, str) else self._text()


@attrs.frozen(kw_only=True)
class Rule:
    name: str
    area: Area
    unit: Unit
    warn: float | None
    """Threshold of a warning; None for none."""
    crit: float | None
    for_s: float
    """Seconds for which the value must hold before the alert begins or ends."""
    doc: str
    read: Callable[[ClusterSnapshot], Iterator[Reading]]


def is_answering(replica: Replica | None) -> bool:
    """Return whether a node has answered, and its newest question too."""
    return replica is not None and not replica.answer.error and replica.answer.wall_ms is not None
