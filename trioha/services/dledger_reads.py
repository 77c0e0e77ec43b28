"""Questions about the present, at the member that leads: how far a group is, where a queue ends.

A leader that was cut off does not know that there is a newer one. Its messages are committed ones
all the same, but its answer to "where does this group go on" could be older than a commit that the
new leader has acknowledged. So the core is asked first: on a lease it says yes at once, else when
a majority has confirmed the leadership (docs/decisions/0014-raft-log-is-the-commitlog.md).

The tables of a leader are ahead of the commit. An answer that shows a change which is not committed
yet waits for the commit: otherwise the next leader, which may lack the change, would answer less.

A question that gets no leave is not answered with an error here: the member leads no longer, so the
question is parked or forwarded as if it came now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from trioha.broker.raft_answers import PRESENT
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import RequestTable
from trioha.wire.remoting_command import RemotingCommand

HELD_MAX = 10_000
"""Answers that wait for a commit at once; `dledger.leadership.READS_MAX`."""


class CurrentReads:
    """Puts the core's leave before handlers; for a node that leads."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        read: Callable[[Callable[[int], None]], None],
        uncommitted_end: Callable[[], int],
        otherwise: Callable[[Channel, RemotingCommand], None],
        events: EventSink,
    ) -> None:
        """`read` calls back with the offset to have applied, -1 for no; maybe before it returns.

        `uncommitted_end`: up to where the log must be committed before the tables may be shown; -1
        when that is not known yet.
        `otherwise` gets a question for which there is no leave.
        """
        self._read = read
        self._uncommitted_end = uncommitted_end
        self._otherwise = otherwise
        self._own = RequestTable({code: handlers[code] for code in PRESENT}, events)
        self._held: deque[tuple[int, Channel, RemotingCommand, RemotingCommand]] = deque()
        """Offset that must be committed first, channel, request and answer, in order."""

    def handle(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Answer once it is certain that no other member leads: `Mode.CONFIRM`."""
        self._read(partial(self._answer, channel, request, instant))

    def confirm(self, then: Callable[[bool], None]) -> None:
        """Call `then` with True once it is certain that no other member leads; or with False."""
        self._read(lambda committed_offset: then(committed_offset >= 0))

    def on_commit(self, committed_offset: int) -> None:
        """Send the answers that have waited for this. HOT."""
        held = self._held
        while held and held[0][0] <= committed_offset:
            _, channel, _, response = held.popleft()
            channel.send_nowait(response)

    def give_up(self) -> None:
        """This member leads no longer, or is handing over: what is held takes its way anew."""
        held, self._held = self._held, deque()
        for _, channel, request, _ in held:
            if not channel.closed:
                self._otherwise(channel, request)

    def _answer(
        self, channel: Channel, request: RemotingCommand, instant: Instant, committed_offset: int
    ) -> None:
        if channel.closed:
            return
        if committed_offset < 0 or len(self._held) >= HELD_MAX:
            self._otherwise(channel, request)
            return
        # A leader has applied whatever it has committed.
        response = self._own.handle(channel, request, instant)
        if response is None or request.is_oneway:
            return
        end = self._uncommitted_end()
        if end < 0:
            self._otherwise(channel, request)
        elif end:
            self._held.append((end, channel, request, response))
        else:
            channel.send_nowait(response)
