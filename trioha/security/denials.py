"""Journal lines of rejected requests: few of them, however many requests a stranger sends.

The same origin with the same reason has one line a minute, which says how often it happened since
the last one. An origin has a few reasons a minute; what it is rejected for beyond them is counted
in one more line. So a flood does not push older events out of the journal, and one host's flood
does not hide another host's requests. The hosts of one IPv6 network of 64 bits are one origin:
a host with one of its addresses has them all.
"""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv6Address, IPv6Network
from typing import Final

import attrs

from trioha.journal import EventSink

AGAIN_MS: Final = 60_000
KEPT_MAX: Final = 256
"""Reasons of all origins that are remembered; beyond that a new one has no line in this minute."""
KEPT_OF_ONE_MAX: Final = 16
"""Reasons of one origin."""
OTHER_REASONS: Final = "other reasons"
_FORGET_MS: Final = 1_000
_REASON_CHARS_MAX: Final = 300


@attrs.define(eq=False)
class _Denial:
    told_ms: int
    count: int = 0
    """Requests since the last line."""


class Denials:
    """Rejected requests by origin and reason."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._known: dict[tuple[str, str], _Denial] = {}
        self._reasons: Counter[str] = Counter()
        """Number of the reasons of each origin."""
        self._forgot_ms = -_FORGET_MS

    def add(self, peer: str, code: int, reason: str, now_ms: int) -> None:
        """Note a rejected request. `peer` is ``host:port``; ports change with connections."""
        origin = _origin(peer.rpartition(":")[0])
        known = self._known.get((origin, reason))
        if known is None:
            self._forget(now_ms)
            if self._reasons[origin] >= KEPT_OF_ONE_MAX:
                reason = OTHER_REASONS
                known = self._known.get((origin, reason))
        if known is None:
            if len(self._known) >= KEPT_MAX:
                return
            self._reasons[origin] += 1
            known = self._known[origin, reason] = _Denial(now_ms - AGAIN_MS)
        known.count += 1
        if now_ms - known.told_ms >= AGAIN_MS:
            shown = _printable(reason)[:_REASON_CHARS_MAX]
            self._events.event(
                "acl_denied", peer=origin, code=code, reason=shown, count=known.count
            )
            known.told_ms, known.count = now_ms, 0

    def _forget(self, now_ms: int) -> None:
        """Forget what is a minute old, not with each request of a flood."""
        if now_ms - self._forgot_ms < _FORGET_MS:
            return
        self._forgot_ms = now_ms
        self._known = {
            key: one for key, one in self._known.items() if now_ms - one.told_ms < AGAIN_MS
        }
        self._reasons = Counter(origin for origin, _ in self._known)


def _origin(host: str) -> str:
    """The host, or the network of 64 bits in which an IPv6 host lies."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or IPv6Network((address, 64), strict=False))


def _printable(text: str) -> str:
    """Return the text without what a terminal would obey: it holds what a stranger has sent."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
