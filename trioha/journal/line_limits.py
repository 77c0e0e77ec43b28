"""Limits of the journal lines that peers cause, whose words and number are theirs to choose."""

from __future__ import annotations

from typing import Final

import attrs

from trioha.journal.events import EventSink

LINES_MAX: Final = 60
"""Lines about one host within `INTERVAL_MS`."""
INTERVAL_MS: Final = 60_000
HOSTS_MAX: Final = 256
"""Hosts that are counted by themselves within an interval; all others are one."""
_OTHERS: Final = ""


@attrs.define(eq=False)
class _Lines:
    since_ms: int
    count: int = 0
    left_out: int = 0


class LineLimits:
    """Events by the host of the peer that caused them."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._hosts: dict[str, _Lines] = {}

    def event(self, name: str, host: str, now_ms: int, **fields: object) -> None:
        """Record an event, or leave it out: the host's next one has `left_out`, how many were."""
        lines = self._lines_of(host, now_ms)
        if lines.count >= LINES_MAX:
            lines.left_out += 1
            return
        lines.count += 1
        if lines.left_out:
            fields["left_out"], lines.left_out = lines.left_out, 0
        self._events.event(name, **fields)

    def _lines_of(self, host: str, now_ms: int) -> _Lines:
        lines = self._hosts.get(host)
        if lines is None:
            if len(self._hosts) >= HOSTS_MAX:
                self._forget(now_ms)
            if len(self._hosts) >= HOSTS_MAX:
                host = _OTHERS
            lines = self._hosts.setdefault(host, _Lines(now_ms))
        if now_ms - lines.since_ms >= INTERVAL_MS:
            lines.since_ms, lines.count = now_ms, 0
        return lines

    def _forget(self, now_ms: int) -> None:
        """Forget hosts without a line in the last interval; the others keep their counts."""
        left_out = 0
        for host, lines in list(self._hosts.items()):
            if now_ms - lines.since_ms >= INTERVAL_MS:
                left_out += lines.left_out
                del self._hosts[host]
        if left_out:
            self._hosts.setdefault(_OTHERS, _Lines(now_ms)).left_out += left_out
