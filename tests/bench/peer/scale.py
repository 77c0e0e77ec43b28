"""Seconds and amounts of a run: the whole comparison takes 80 minutes, `--quick` ten."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

MIB = 1024 * 1024


@attrs.frozen(kw_only=True)
class Scale:
    """Seconds of each part of a run, and amounts.

    A window of three seconds holds tens of thousands of sends from 64 threads and still 5,000 from
    one. What speaks against short windows on this kind of machine is its drift from minute to
    minute, and that is met by rounds, not by seconds.
    """

    seconds: float = 3.0
    warm_up_s: float = 0.5
    """Before each window: a new producer asks for its route and connects."""
    broker_warm_up_s: float = 6.0
    """A fresh JVM has compiled little: 64 threads send this long before the first row."""
    header_warm_up_s: float = 4.0
    """The same with a slave in sync, and with each further kind of header."""
    e2e_seconds: float = 10.1
    """At a hundred messages a second a p99 needs a thousand."""
    frames: int = 5_000
    """Frames of the blocking socket, and of the bare relay beside it."""
    backlog: int = 500_000
    """Two to three seconds of draining at the speed of the faster broker."""
    filter_backlog: int = 2_000_000
    """Two to three seconds of looking at messages of which a filter takes one in a hundred.

    A multiple of 3,200: batches of 32, numbers from 0 to 99.
    """
    waiting_timers: int = 1_000_000
    """Messages for a later time that a broker holds while others are sent or fall due."""
    due_timers: int = 100_000
    """Messages that fall due at one moment: a second's work and more."""
    log_bytes: int = 1024 * MIB
    calm_s: float = 2.0
    """Seconds of paced sends around the loss and the return of a slave."""
    neighbours: int = 0
    """Processes that spin beside the nodes and their clients, as on a machine that others share."""
    is_cold: bool = False
    """Each load has a Java client of its own, whose compiler has compiled nothing yet, as one that
    has just been deployed. The brokers are warm."""

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Scale:
        """Return the scale with these values, from `attrs.asdict` or from a file."""
        return cls(**values)  # type: ignore[arg-type]


QUICK = Scale(
    seconds=1.0,
    warm_up_s=0.5,
    broker_warm_up_s=1.0,
    header_warm_up_s=1.0,
    e2e_seconds=2.0,
    frames=1000,
    backlog=32 * 1000,
    filter_backlog=32 * 1000,
    waiting_timers=10_000,
    due_timers=2_000,
    log_bytes=64 * MIB,
    calm_s=1.0,
)
