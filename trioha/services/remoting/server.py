"""Accepts remoting connections and guards the node against each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import islice

import trio

from trioha.config import BrokerConfig, NamesrvConfig
from trioha.journal import EventSink
from trioha.journal.line_limits import LineLimits
from trioha.remoting.channel import Channel, Handler
from trioha.remoting.fast_failure import WaitLimits
from trioha.remoting.outboxes import Outboxes
from trioha.remoting.traffic_budget import FrameLimits, TrafficBudget
from trioha.services.loop.clock import Clock
from trioha.services.loop.descriptors import are_scarce, descriptor_limit
from trioha.services.loop.transport import Listener, Transport
from trioha.services.remoting.link import LinkLimits, RemotingLink

_NOTE_INTERVAL_S = 60.0
_PART_S = 1.0
"""A peer closes as soon as it reads the end: a round trip."""
_CLOSED = 8
"""Connections that make room for one."""


def server_limits(
    config: BrokerConfig | NamesrvConfig,
    body_bytes: Mapping[int, int],
    budget: TrafficBudget,
    waits: WaitLimits | None = None,
) -> LinkLimits:
    """Return the limits of the connections that a node accepts."""
    return LinkLimits(
        idle_s=config.server_channel_max_idle_time_seconds,
        first_frame_s=config.first_frame_timeout / 1000,
        frame_s=config.frame_timeout / 1000,
        outbox_bytes_max=config.outbox_bytes_max,
        frames=FrameLimits(body_bytes, budget),
        waits=waits,
    )


class RemotingServer:
    """The connections of one node, all served by the same handler of requests."""

    def __init__(
        self,
        handle: Handler,
        clock: Clock,
        events: EventSink,
        *,
        limits: LinkLimits | None = None,
        connections_max: int = 10_000,
        on_closed: Callable[[Channel], None] | None = None,
        on_batch: Callable[[], None] | None = None,
        on_late: Callable[[int], None] | None = None,
        outboxes: Outboxes | None = None,
    ) -> None:
        """`handle` gets every request of every connection."""
        self.outboxes = outboxes or Outboxes()
        self._handle = handle
        self._clock = clock
        self._events = events
        self._lines = LineLimits(events)
        self._limits = limits or LinkLimits()
        self._connections_max = connections_max
        self._on_closed = on_closed
        self._on_batch = on_batch
        self._on_late = on_late
        self._links: dict[str, dict[RemotingLink, None]] = {}
        """Connections by the peer's host, oldest first."""
        self.connection_count = 0
        self._all_closed = trio.Event()
        """Set whenever the last connection has ended."""
        self._silent: dict[RemotingLink, None] = {}
        """Connections without a served request, oldest first; others in it are skipped."""
        self._noted_s = -math.inf
        self.refused_count = 0
        """Connections that were closed because there were too many."""

    async def accept(self, listener: Listener, connections: trio.Nursery) -> None:
        """Accept until cancelled; each connection becomes a task of `connections`."""
        while True:
            transport = await listener.accept()
            if not self._admits(transport.peer):
                transport.close()
                continue
            connections.start_soon(
                self.serve_connection, transport, name=f"remoting.conn[{transport.peer}]"
            )

    async def part(self) -> None:
        """Send what is queued and nothing more, then wait until the peers close, or `_PART_S`.

        To close a connection over bytes that nobody has read resets it: a peer that still sends
        would lose the answers that it has not read. No connection may be accepted any more.
        """
        self._all_closed = trio.Event()
        for link in [link for links in self._links.values() for link in links]:
            link.finish_nowait()
        if self._links:
            with trio.move_on_after(_PART_S):
                await self._all_closed.wait()

    def _admits(self, peer: str) -> bool:
        """Return whether there is room for a connection, perhaps by closing others.

        Connections without a served request make room, the oldest first. Then the host with the
        most connections does: no host shuts out others.
        """
        count = self.connection_count
        if count >= self._connections_max:
            reason = f"{self._connections_max} connections are open (connectionsMax)"
        elif are_scarce():
            reason = (
                f"{descriptor_limit()} file descriptors are nearly used up by "
                f"{count} connections; raise the limit (ulimit -n)"
            )
        else:
            return True
        self.refused_count += 1
        how, closed = "silent", self._oldest_silent()
        if not closed:
            how, closed = "of the host with the most", self._newest_of_largest(host_of(peer))
        for link in closed:
            link.close_nowait("" if link.is_silent else f"{reason}: it made room for other hosts")
        if trio.current_time() >= self._noted_s + _NOTE_INTERVAL_S:
            self._noted_s = trio.current_time()
            outcome = f"{closed[0].peer}, {how}, made room" if closed else "it was closed"
            self._events.event("connection_refused", peer=peer, reason=f"{reason}: {outcome}")
        # Those that were closed have their descriptors until the next pass: the reserve has room.
        return bool(closed) and not are_scarce(share=0.25)

    def _oldest_silent(self) -> list[RemotingLink]:
        """Return the oldest few that were not served: the store's files need room, too."""
        found: list[RemotingLink] = []
        for link in list(self._silent):
            del self._silent[link]
            if link.is_silent and not link.closed:
                found.append(link)
                if len(found) == _CLOSED:
                    break
        return found

    def _newest_of_largest(self, host: str) -> list[RemotingLink]:
        """Return a few connections of the host with the most, if `host` has fewer."""
        largest = max(self._links.values(), key=len, default={})
        spare = len(largest) - len(self._links.get(host, ())) - 1
        is_open = (link for link in reversed(largest) if not link.closed)
        return list(islice(is_open, max(0, min(spare, _CLOSED))))

    async def serve_connection(self, transport: Transport) -> None:
        """Serve one connection until it ends; an abnormal end is one journal line."""
        link = RemotingLink(
            transport,
            self._clock,
            handle=self._handle,
            limits=self._limits,
            outboxes=self.outboxes,
            on_batch=self._on_batch,
            on_late=self._on_late,
        )
        host = host_of(link.peer)
        self._links.setdefault(host, {})[link] = None
        self.connection_count += 1
        self._silent[link] = None
        try:
            await link.serve()
        finally:
            self.connection_count -= 1
            del self._links[host][link]
            if not self._links[host]:
                del self._links[host]
            if not self._links:
                self._all_closed.set()
            self._silent.pop(link, None)
            if self._on_closed is not None:
                with self.outboxes.batch():
                    self._on_closed(link)
        if link.close_reason:
            self._lines.event(
                "connection_closed",
                host,
                self._clock.now_ms(),
                peer=link.peer,
                reason=link.close_reason,
            )


def host_of(peer: str) -> str:
    """Return the host of ``host:port``."""
    return peer.rpartition(":")[0]
