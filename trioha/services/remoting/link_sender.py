"""The sending half of one connection, without a task: frames are queued, and leave with the batch.

`RemotingLink` owns it. What the kernel does not take is left to the link's write task.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from trioha.remoting.outbox import Outbox
from trioha.remoting.outboxes import Outboxes
from trioha.wire.remoting_command import Buffer, RemotingCommand


class LinkSender:
    """Queues the frames of one connection and gives them to the kernel. HOT."""

    def __init__(
        self,
        try_send: Callable[[list[Buffer]], list[Buffer]],
        outbox: Outbox,
        outboxes: Outboxes,
        close: Callable[[str], None],
        on_unsent: Callable[[], None],
    ) -> None:
        """`close` gets the reason why the connection has to end. `on_unsent` is called whenever
        more bytes wait for the peer than before."""
        self.closed = False
        """Nothing is sent any more."""
        self.is_writing = False
        """The write task sends what is queued, so nobody else may."""
        self.wake = trio.Event()
        """Set for the write task."""
        self._try_send = try_send
        self._outbox = outbox
        self._outboxes = outboxes
        self._close = close
        self._on_unsent = on_unsent

    @property
    def outbox_bytes(self) -> int:
        """Bytes that wait to be sent."""
        return self._outbox.size

    def send_nowait(self, command: RemotingCommand) -> None:
        """Queue a frame; it is dropped once the connection is closed."""
        if self.closed:
            return
        outbox = self._outbox
        outbox.add(command)
        if outbox.is_over:
            self._close(f"it does not read: {outbox.size} bytes wait for it")
            return
        if self.is_writing:
            self._on_unsent()
        if not outbox.is_queued:
            outbox.is_queued = True
            self._outboxes.add(self)

    def flush_nowait(self) -> None:
        """Give the kernel what is queued; wake the write task for what it does not take."""
        outbox = self._outbox
        outbox.is_queued = False
        if self.is_writing or self.closed or not outbox.size:
            return
        try:
            rest = self._try_send(outbox.take())
        except trio.BrokenResourceError:
            # The read task meets the same end and reports it.
            outbox.clear()
            return
        outbox.sent(rest)
        if rest:
            self.wake.set()
            self._on_unsent()

    def wake_writer(self) -> None:
        """Have the write task send what is queued."""
        self._outbox.is_queued = False
        self.wake.set()
