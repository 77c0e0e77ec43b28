"""Questions about the present, at the leader: the offset of a group, the end of a queue.

A leader that was cut off does not know that there is a newer one. Its messages are committed, but
its answer to "where does this group continue" could be older than a commit that the new leader has
acknowledged. So the core must give leave first: at once if it holds a lease, otherwise once a
majority has confirmed the leadership (docs/decisions/0014-raft-log-is-the-commitlog.md).

The tables of a leader are ahead of the commit. An answer that shows a change which is not committed
yet waits for the commit: otherwise the next leader, which may lack the change, would answer less.

A question without leave gets no error here. The member does not lead any more, so the question is
parked or forwarded as if it came now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from trioha.broker.raft.answers import PRESENT
from trioha.broker.request_gate import reject
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import RequestTable
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.wire.remoting_command import RemotingCommand

HELD_MAX = 10_000
"""Limit of answers that wait for a commit; equal to `dledger.leadership.READS_MAX`."""


class CurrentReads:
    """Calls the handlers of `PRESENT` once the core has given leave; for a leader."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        read: Callable[[Callable[[int], None]], None],
        uncommitted_end: Callable[[], int],
        otherwise: Callable[[Channel, RemotingCommand], None],
        events: EventSink,
        traffic: TrafficBudget,
    ) -> None:
        """Take the parts of the node.

        `read` calls back with the offset that must be applied first, or -1 without leave; possibly
        before it returns. `uncommitted_end` returns up to where the log must be committed before
        the tables may be shown; -1 if that is not known yet. `otherwise` gets the questions
        without leave. Questions that wait count in the node's budget, `traffic`.
        """
        self._traffic = traffic
        self._read = read
        self._uncommitted_end = uncommitted_end
        self._otherwise = otherwise
        self._own = RequestTable({code: handlers[code] for code in PRESENT}, events)
        self._held: deque[tuple[int, Channel, RemotingCommand, RemotingCommand, int]] = deque()
        """Offset that must be committed first, channel, request, answer and size, in order."""

    def handle(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Answer once it is certain that no other member leads: `Mode.CONFIRM`."""
        size = request.detach()
        if not self._traffic.has_room(size):
            reject(channel, request, "too many questions wait")
            return
        self._traffic.waiting_bytes += size
        self._read(partial(self._answer, channel, request, instant, size))

    def confirm(self, then: Callable[[bool], None]) -> None:
        """Call `then` with True once it is certain that no other member leads; or with False."""
        self._read(lambda committed_offset: then(committed_offset >= 0))

    def on_commit(self, committed_offset: int) -> None:
        """Send the answers that have waited for this commit. HOT."""
        held = self._held
        while held and held[0][0] <= committed_offset:
            _, channel, _, response, size = held.popleft()
            self._traffic.waiting_bytes -= size
            channel.send_nowait(response)

    def give_up(self) -> None:
        """Park or forward the held questions: this member stepped down or is handing over."""
        held, self._held = self._held, deque()
        for _, channel, request, _, size in held:
            self._traffic.waiting_bytes -= size
            if not channel.closed:
                self._otherwise(channel, request)

    def _answer(
        self,
        channel: Channel,
        request: RemotingCommand,
        instant: Instant,
        size: int,
        committed_offset: int,
    ) -> None:
        self._traffic.waiting_bytes -= size
        if channel.closed:
            return
        if committed_offset < 0 or len(self._held) >= HELD_MAX:
            self._otherwise(channel, request)
            return
        # A leader has applied all that it has committed.
        response = self._own.handle(channel, request, instant)
        if response is None or request.is_oneway:
            return
        end = self._uncommitted_end()
        if end < 0:
            self._otherwise(channel, request)
        elif end:
            self._traffic.waiting_bytes += size
            self._held.append((end, channel, request, response, size))
        else:
            channel.send_nowait(response)
