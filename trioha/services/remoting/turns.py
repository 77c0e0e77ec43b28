"""Handles the requests of one connection turn by turn, without a task of its own.

A turn handles the requests of one read, or as many as `trioha.remoting.requests` lets one
connection handle while others wait. Its answers leave in one write at its end; only then comes what
else it set off (`on_batch`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from trioha.remoting.channel import Channel, Instant
from trioha.remoting.connection import RemotingConnection
from trioha.remoting.outbox import Outbox
from trioha.remoting.outboxes import Outboxes, Sender
from trioha.remoting.requests import TURN_UNSENT_BYTES, Requests
from trioha.services.loop.clock import Clock

_LATE_MS: Final = 1000
"""After so long a pause, a request may have lain in the kernel for a while."""


class TurnLink(Channel, Protocol):
    """The connection, as its turns see it."""

    def renew_lease(self, now_ms: int) -> None:
        """Note that the peer is alive, or has begun a frame."""


class TurnStream(Protocol):
    """The byte stream that turns read from: part of `trioha.services.loop.transport.Transport`."""

    @property
    def waited_ms(self) -> int: ...
    def peer_has_gone(self) -> bool: ...


class Turns:
    """The turns of one connection. HOT."""

    def __init__(
        self,
        link: TurnLink,
        sender: Sender,
        stream: TurnStream,
        machine: RemotingConnection,
        outbox: Outbox,
        outboxes: Outboxes,
        requests: Requests,
        clock: Clock,
        on_batch: Callable[[], None] | None,
        on_late: Callable[[int], None] | None,
    ) -> None:
        self._link = link
        self._sender = sender
        self._stream = stream
        self._machine = machine
        self._outbox = outbox
        self._outboxes = outboxes
        self._requests = requests
        self._clock = clock
        self._on_batch = on_batch
        self._on_late = on_late
        self._late_from_ms = 0
        self._arrived_ms = 0
        self._is_over = False
        self.has_more = False
        """The last turn has left requests of its read."""
        self.is_running = False
        self.lease_due_ms = 0
        """Time from which a turn renews the lease."""
        self.drops = False
        """The connection ends: requests are dropped, and nothing is answered."""

    def take(self, data: bytes) -> bool:
        """Handle what one read has brought. False: `next`, or a peer that reads, has to follow."""
        if self.drops:
            return True
        instant = self._clock.instant()
        self._machine.receive_data(data)
        self._arrived_ms = instant.now_ms - self._stream.waited_ms
        # A process that stood still finds requests whose senders have given them up.
        is_late = instant.now_ms >= self._late_from_ms
        self._is_over = is_late and self._stream.peer_has_gone()
        self._run(instant, is_late)
        return not self.has_more and self._outbox.size <= TURN_UNSENT_BYTES

    def next(self) -> None:
        """Handle more of the same read."""
        self._run(self._clock.instant(), False)

    def go_on(self) -> None:
        """Handle the first unfinished request again, outside of any read."""
        try:
            with self._outboxes:
                self.is_running = True
                try:
                    self._requests.go_on(self._link, self._clock.instant())
                finally:
                    self._end()
        finally:
            self._after_batch()

    def _run(self, instant: Instant, is_late: bool) -> None:
        """Handle the requests of one turn.

        Errors: RemoteProtocolError; what a handler's broken invariant raises.
        """
        self._late_from_ms = instant.now_ms + _LATE_MS
        try:
            with self._outboxes:
                if is_late and self._on_late is not None:
                    self._on_late(instant.now_ms)
                self.is_running = True
                try:
                    self.has_more = self._requests.handle_all(
                        self._link,
                        instant,
                        waited_ms=instant.now_ms - self._arrived_ms,
                        is_over=self._is_over,
                    )
                finally:
                    self._end()
        finally:
            self._after_batch()
        if self._machine.mid_frame or instant.now_ms >= self.lease_due_ms:
            self._link.renew_lease(instant.now_ms)

    def _end(self) -> None:
        self.is_running = False
        outbox = self._outbox
        if outbox.size and not outbox.is_queued:
            outbox.is_queued = True
            self._outboxes.add(self._sender)

    def _after_batch(self) -> None:
        if self._on_batch is not None:
            with self._outboxes:
                self._on_batch()
