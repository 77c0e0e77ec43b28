"""Python's search for cycles, in pieces that no key waits for.

A search holds up everything for about a microsecond per object that it looks at. Textual makes
cycles with every line that it draws, so they have to be found; the tables of a large cluster are
made of a hundred thousand objects that are in none. So young objects are looked at seldom, the
tables not at all, and everything only while nobody types.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 25_000
"""Objects made since the last search that begin another one: it takes some 20 ms.

The answers of a hundred brokers are 10,000 objects a second, which go by themselves when the next
ones come. A search that begins before that looks at them in vain: with 2,500 here the searches took
1.3 % of a core, with 25,000 they take 0.4 %; keys wait as before (`just bench-console`).
"""
_ROUNDS = 2
"""Searches after which the objects that survived them are looked at as well: that takes 50 ms."""
_LARGE = 10_000
"""Objects of a table that are worth keeping out of all searches."""
_NEVER = 1_000_000
_QUIET_S = 3.0
"""Seconds without a key after which the operator counts as idle."""
_PERIOD_S = 600.0
_PERIOD_MAX_S = 3_600.0
"""Seconds after which all objects are looked at even if keys are typed."""


class IdleCollector:
    """Searches all objects for garbage while no key is typed."""

    def __init__(self, now_s: float) -> None:
        self._collected_s = now_s
        # Modules stay in memory. `look` finds the few cycles among them in a quiet moment; a search
        # now would delay the first screen by some 40 ms.
        gc.freeze()
        gc.set_threshold(_YOUNG, _ROUNDS, _NEVER)

    @contextmanager
    def making_tables(self) -> Iterator[None]:
        """Take what is made inside out of the searches until everything is looked at."""
        gc.disable()
        try:
            yield
        finally:
            if gc.get_count()[0] > _LARGE:
                gc.freeze()
            gc.enable()

    def look(self, now_s: float, key_s: float) -> bool:
        """Look at everything if it is time; `key_s` is the time of the last key."""
        since_s = now_s - self._collected_s
        is_quiet = now_s - key_s >= _QUIET_S
        if since_s < _PERIOD_S or not (is_quiet or since_s >= _PERIOD_MAX_S):
            return False
        self._collected_s = now_s
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        return True
