"""Journal lines of rejected requests: few of them, however many requests a stranger sends.

The same peer with the same reason has one line a minute, which says how often it happened since the
last one. A flood must neither hide behind itself nor push older events out of the journal.
"""

from __future__ import annotations

from typing import Final

import attrs

from trioha.journal import EventSink

AGAIN_MS: Final = 60_000
KEPT_MAX: Final = 256
"""Reasons that are remembered; beyond that a new reason has no line within this minute."""
_REASON_CHARS_MAX: Final = 300


@attrs.define(eq=False)
class _Denial:
    told_ms: int
    count: int = 0
    """Requests since the last line."""


class Denials:
    """Rejected requests by peer and reason."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._known: dict[tuple[str, str], _Denial] = {}

    def add(self, peer: str, code: int, reason: str, now_ms: int) -> None:
        """Note a rejected request. `peer` is ``host:port``; ports change with connections."""
        host = peer.rpartition(":")[0]
        known = self._known.get((host, reason))
        if known is None:
            if len(self._known) >= KEPT_MAX:
                self._forget(now_ms)
            if len(self._known) >= KEPT_MAX:
                return
            known = self._known[host, reason] = _Denial(now_ms - AGAIN_MS)
        known.count += 1
        if now_ms - known.told_ms >= AGAIN_MS:
            shown = _printable(reason)[:_REASON_CHARS_MAX]
            self._events.event("acl_denied", peer=host, code=code, reason=shown, count=known.count)
            known.told_ms, known.count = now_ms, 0

    def _forget(self, now_ms: int) -> None:
        self._known = {
            key: one for key, one in self._known.items() if now_ms - one.told_ms < AGAIN_MS
        }


def _printable(text: str) -> str:
    """Return the text without what a terminal would obey: it holds what a stranger has sent."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
