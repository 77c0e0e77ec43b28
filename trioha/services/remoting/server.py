"""Accepts remoting connections and guards the node against each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from trioha.config import BrokerConfig, NamesrvConfig
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler
from trioha.remoting.traffic_budget import FrameLimits, TrafficBudget
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Listener, Transport
from trioha.services.remoting.link import LinkLimits, Outboxes, RemotingLink


def server_limits(
    config: BrokerConfig | NamesrvConfig, body_bytes: Mapping[int, int], budget: TrafficBudget
) -> LinkLimits:
    """Return the limits of the connections that a node accepts."""
    return LinkLimits(
        idle_s=config.server_channel_max_idle_time_seconds,
        first_frame_s=config.first_frame_timeout / 1000,
        frame_s=config.frame_timeout / 1000,
        outbox_bytes_max=config.outbox_bytes_max,
        frames=FrameLimits(body_bytes, budget),
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
        self._limits = limits or LinkLimits()
        self._connections_max = connections_max
        self._on_closed = on_closed
        self._on_batch = on_batch
        self._on_late = on_late
        self._links: set[RemotingLink] = set()

    @property
    def connection_count(self) -> int:
        return len(self._links)

    async def accept(self, listener: Listener, connections: trio.Nursery) -> None:
        """Accept until cancelled; each connection becomes a task of `connections`."""
        while True:
            transport = await listener.accept()
            if len(self._links) >= self._connections_max:
                transport.close()
                self._events.event(
                    "connection_refused",
                    peer=transport.peer,
                    reason=f"{self._connections_max} connections are open (connectionsMax)",
                )
                continue
            connections.start_soon(
                self.serve_connection, transport, name=f"remoting.conn[{transport.peer}]"
            )

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
        self._links.add(link)
        try:
            await link.serve()
        finally:
            self._links.discard(link)
            if self._on_closed is not None:
                with self.outboxes.batch():
                    self._on_closed(link)
        if link.close_reason:
            self._events.event("connection_closed", peer=link.peer, reason=link.close_reason)
