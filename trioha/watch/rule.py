"""What a rule is made of: what it is about, in what unit, and what it read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import attrs

from trioha.watch.replica import Replica
from trioha.watch.snapshot import ClusterSnapshot


class Area(Enum):
    """What a check is about."""

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
    """1 when it is so."""


@attrs.frozen
class Reading:
    """One rule's number for one subject, now."""

    rule: str
    subject: str
    value: float | None
    text: str
    """A sentence that names the subject, fit for the case that the value is too high."""


@attrs.frozen(kw_only=True)
class Rule:
    name: str
    area: Area
    unit: Unit
    warn: float | None
    """From this value on; None for never."""
    crit: float | None
    for_s: float
    """How long it has to be so, and to be over."""
    doc: str
    read: Callable[[ClusterSnapshot], Iterator[Reading]]


def who(replica: Replica) -> str:
    """A member as sentences and alerts name it."""
    return f"{replica.name} {replica.registered_id} at {replica.address}"


def is_answering(replica: Replica | None) -> bool:
    """It has told something, and the newest question was answered too."""
    return replica is not None and not replica.answer.error and replica.answer.wall_ms is not None
