"""The console's share of a processor. It runs beside brokers for days, so there is a limit."""

from __future__ import annotations

SHARE = 0.07
"""Share of a core that the console takes in the mean. The aim is to stay below 0.10."""
_LEAD_S = 0.25
"""The console may save at most so many processor seconds for later, and owe at most as many."""


class ProcessorBudget:
    """Tells when the large tables have to be read less often.

    Everything that the process does counts, keys and drawing as well. What is left of the share is
    for tables: they are asked for at the full rate while processor time is saved, and at a quarter
    of it while some is owed (`Collector.thrifty`).
    """

    def __init__(self, now_s: float, used_s: float) -> None:
        self._now_s = now_s
        self._used_s = used_s
        self._saved_s = _LEAD_S

    def is_spent(self, now_s: float, used_s: float) -> bool:
        """Return whether more was used than the share allows; `used_s` is the process's so far."""
        allowed_s = SHARE * (now_s - self._now_s)
        saved_s = self._saved_s + allowed_s - (used_s - self._used_s)
        self._saved_s = min(_LEAD_S, max(-_LEAD_S, saved_s))
        self._now_s, self._used_s = now_s, used_s
        return self._saved_s < 0
