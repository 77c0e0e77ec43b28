"""Reads that must know of everything acknowledged so far: how far a group is, where a queue ends.

A leader that was cut off does not know that there is a newer one. Its messages are committed ones
all the same, but its answer to "where does this group go on" could be older than a commit that the
new leader has acknowledged. So the core is asked first: on a lease it says yes at once, else when
a majority has confirmed the leadership (docs/decisions/0014-raft-log-is-the-commitlog.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.connection import RemotingConnection
from trioha.remoting.outbox import Outbox
from trioha.remoting.requests import Requests
from trioha.services.old_routes import refuse
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

CURRENT = (
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_CONSUME_STATS,
)
"""A client that asks these acts on the answer; a pull finds what it misses the next time."""


class CurrentReads:
    """Puts the core's leave before handlers; for a node that leads."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        read: Callable[[Callable[[int], None]], None],
        events: EventSink,
    ) -> None:
        """`read` calls back with the offset to have applied, -1 for no; maybe before it returns."""
        own: dict[int, Handler] = {code: handlers[code] for code in CURRENT}
        self._read = read
        self._requests = Requests(RemotingConnection(), Outbox(0), own, events)

    def handle(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Answer once it is certain that nobody else leads. A handler of `CURRENT`."""
        self._read(partial(self._answer, channel, request, instant))

    def _answer(
        self, channel: Channel, request: RemotingCommand, instant: Instant, committed_offset: int
    ) -> None:
        if channel.closed:
            return
        if committed_offset < 0:
            refuse(channel, request, "this node does not lead its group any more")
            return
        # A leader has applied whatever it has committed.
        response = self._requests.handle(channel, request, instant)
        if response is not None and not request.is_oneway:
            channel.send_nowait(response)
