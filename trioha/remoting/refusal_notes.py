"""Journal lines about requests that a node refuses because of what they say.

Theory of operation. A request that breaks the protocol is answered with its reason and changes
nothing. Between nodes that is never ordinary: a version, a configuration or a stranger is wrong. So
the first such request of a host and code is written down, and again after a minute. A stranger who
sends a million of them writes one line a minute.
"""

from __future__ import annotations

from collections.abc import Mapping

from trioha.errors import RemoteProtocolError
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire.remoting_command import RemotingCommand

NOTE_INTERVAL_MS = 60_000
NOTES_MAX = 256
"""Limit of hosts and codes that are remembered; the one noted longest ago makes room."""


class RefusalNotes:
    """The refused requests of one node."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._noted_ms: dict[tuple[str, int], int] = {}

    def watched(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return the handlers, each with a note on requests that it refuses as illegal."""
        return {code: self._watched(handler) for code, handler in handlers.items()}

    def note(self, channel: Channel, request: RemotingCommand, reason: str, now_ms: int) -> None:
        """Write a line, unless this host's requests of this code had one in the last minute."""
        key = (channel.peer.rpartition(":")[0], request.code)
        noted_ms = self._noted_ms.get(key)
        if noted_ms is not None and now_ms - noted_ms < NOTE_INTERVAL_MS:
            return
        self._noted_ms.pop(key, None)
        self._noted_ms[key] = now_ms
        if len(self._noted_ms) > NOTES_MAX:
            del self._noted_ms[next(iter(self._noted_ms))]
        self._events.event(
            "request_refused", peer=channel.peer, code=request.code, reason=reason[:500]
        )

    def _watched(self, handler: Handler) -> Handler:
        def answer(
            channel: Channel, request: RemotingCommand, instant: Instant
        ) -> RemotingCommand | None:
            try:
                return handler(channel, request, instant)
            except RemoteProtocolError as error:
                self.note(channel, request, str(error), instant.now_ms)
                raise

        return answer
