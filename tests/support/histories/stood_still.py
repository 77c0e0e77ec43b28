"""Stock clients whose own library has stopped working, told apart from brokers that lost something.

A consumer of the C++ library once read nothing for 109 s while messages waited, and the library's
own log had no new line in that time. Why is unknown; most likely the library hung. One that works
writes a line every few seconds (4 s at most in 75 s without a message). So a silent log tells of a
library that has stopped. Only then may a new client of the same group read what the old one has
not. All of it has to come, and the caller reports the client that stood still.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Set

from support.histories.messages import name_of
from support.peers.clients import StockConsumer
from support.processes.rig import ProcessFailed

STOOD_STILL_S = 60.0
"""A library that logs no line for so long has stopped working."""


def wait_for_names(
    consumer: StockConsumer,
    wanted: Set[str],
    restart: Callable[[], StockConsumer],
    within_s: float,
    *,
    while_any_comes: bool = False,
) -> StockConsumer | None:
    """Wait until a consumer, or a new one for one that stood still, has seen these names.

    Each of the two has `within_s` for all of its names; with `while_any_comes` it has so long
    again whenever it got some. Returns the new one if there had to be one. Errors: ProcessFailed.
    """
    try:
        _wait(consumer, wanted, "of what was acknowledged", within_s, while_any_comes)
    except ProcessFailed:
        silent_s = consumer.silent_s
        if consumer.ended or silent_s is None or silent_s < STOOD_STILL_S:
            raise
    else:
        return None
    left = wanted - _names(consumer)
    # Its connections close, so the brokers give its queues to the new one.
    consumer.kill()
    fresh = restart()
    what = f"of what {consumer.process.name} stood still before"
    _wait(fresh, left, what, within_s, while_any_comes)
    return fresh


def told(consumer: StockConsumer, fresh: StockConsumer) -> str:
    """Return the sentence for the report about a client that stood still."""
    old, new = consumer.process.name, fresh.process.name
    return f"the library of {old} stood still; {new} read the rest"


def _wait(
    consumer: StockConsumer, wanted: Set[str], what: str, within_s: float, while_any_comes: bool
) -> None:
    """Errors: ProcessFailed, with one of the names that are missing."""
    before = len(wanted) + 1
    missing = wanted - _names(consumer)
    while missing and len(missing) < before:
        before = len(missing) if while_any_comes else 0
        with contextlib.suppress(ProcessFailed):
            consumer.wait_until(lambda: wanted <= _names(consumer), what, within_s)
        missing = wanted - _names(consumer)
    if missing:
        words = f"{len(missing)} {what} were not read, {min(missing)} among them"
        raise ProcessFailed(f"{consumer.process.name}: {words}\n{consumer.process.tail()}")


def _names(consumer: StockConsumer) -> set[str]:
    return {name_of((body or "").encode()) for body in consumer.bodies}
