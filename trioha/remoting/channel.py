"""The seam between a connection and those who handle its requests.

A handler is a plain function: it gets the channel a request came in on, the request, and the
instant, and returns the response, or None when there is none or when it comes later through
`Channel.send_nowait` (a parked pull, a put that waits for its slave). Nothing here awaits: all the
requests of one read are handled in one go and answered in one write.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Protocol

from trioha.wire.remoting_command import RemotingCommand


class Instant:
    """Time of a batch. Deadlines count on `now_ms`, records are stamped with `wall_ms`."""

    def __init__(self, now_ms: int, wall_ms: int) -> None:
        self.now_ms: Final = now_ms
        """Monotonic milliseconds, of no particular origin: for timers and leases."""
        self.wall_ms: Final = wall_ms
        """Milliseconds since 1970: for what is stored or shown."""


class Channel(Protocol, Hashable):
    """One connection as its handlers see it. Hashable by identity."""

    @property
    def peer(self) -> str:
        """The other end as ``host:port``."""

    @property
    def peer_host(self) -> bytes:
        """The other end as a record stores it: 4 or 16 address bytes, then the port as i32."""

    @property
    def closed(self) -> bool: ...

    def send_nowait(self, command: RemotingCommand) -> None:
        """Queue a response or a request of our own; silently dropped once closed."""

    def request_nowait(
        self,
        command: RemotingCommand,
        deadline_ms: int,
        on_response: Callable[[RemotingCommand | None], None],
    ) -> None:
        """Send a request of our own (its opaque is chosen here) and hand over what comes back.

        `on_response` is called exactly once: with the response, or with None when `deadline_ms`
        passed or the connection closed.
        """

    def go_on_nowait(self, request: RemotingCommand) -> None:
        """Have this request of the connection handled again, after other connections had a turn.

        For a request that takes long, whose handler keeps what it has done in `request.progress`
        and returns None meanwhile. It comes the same way again, through checks and modes. The
        connection's next request waits until it is done.
        """

    def mark_replication(self) -> None:
        """Note that the peer is a proven node that sends log bytes and gets no answer here.

        The connection is exempt from the node's budget: replication never waits for clients. And
        TCP acknowledges its bytes a little later, many at a time.
        """

    def close_nowait(self, reason: str) -> None:
        """Close the connection; `reason` goes to the journal."""


Handler = Callable[[Channel, RemotingCommand, Instant], RemotingCommand | None]
