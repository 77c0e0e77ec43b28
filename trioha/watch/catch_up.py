"""Time to catch up: of a slave with its master's log, of a group with its topics."""

from __future__ import annotations


def catch_up_s(behind: float, gain_per_s: float | None) -> float | None:
    """Return the seconds until `behind` is zero, if it shrinks by `gain_per_s` each second.

    0.0 if it is zero already; None if the gain is not known, or if there is none.
    """
    if behind <= 0:
        return 0.0
    return behind / gain_per_s if gain_per_s is not None and gain_per_s > 0 else None
