"""The requests of one read, handled in one go: what a link does between its read and its write.

What a handler raises decides: a rejection becomes an answer; a fault of ours that one request met
goes to the journal and to the client (docs/decisions/0008-faults-of-ours-in-a-handler.md); a broken
invariant or disk ends the node.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Final

from trioha.errors import (
    CommandError,
    DiskFull,
    LocalProtocolError,
    RemoteProtocolError,
    StoreError,
)
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.connection import FrameRejected, RemotingConnection
from trioha.remoting.fast_failure import WaitLimits, Waits
from trioha.remoting.outbox import Outbox
from trioha.wire.codes import SENDS, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

TURN_REQUESTS: Final = 256
"""Requests of one connection until the others have their turn: 10 to 20 ms of sends."""
TURN_MS: Final = 20
TURN_UNSENT_BYTES: Final = 1_048_576
"""Bytes of answers after which a connection's other requests wait until its peer has read."""
_SENDS: Final = SENDS
_REJECTIONS: Final = (
    int(ResponseCode.NO_PERMISSION),
    int(ResponseCode.SYSTEM_ERROR),
    int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
)
"""Answers to requests without a right account or proof among them."""
TURN_ANSWERS_BYTES: Final = 65_536
"""A turn ends behind so many bytes of answers: other clients do not wait for all that a consumer
asked for at once."""
EARLY_ANSWERS_BYTES: Final = 49_152
"""Answers that leave at once although more requests of the same read are there, those of pulls: the
peer works on them while the rest is done. With one write for all, the two would take turns. The
same holds for answers that have waited for a millisecond, behind filters or ends of transactions.
"""


class Requests:
    """Takes commands out of the machine, has them handled and puts the answers in the outbox."""

    def __init__(
        self,
        machine: RemotingConnection,
        outbox: Outbox,
        handle: Handler,
        now_ms: Callable[[], int],
        answer_early: Callable[[], None],
        waits: WaitLimits | None = None,
    ) -> None:
        """`handle` gets the requests of every code; it raises only what ends the node.

        `answer_early` sends the answers that wait, while more requests of the same read are there.
        """
        self._now_ms = now_ms
        self._answer_early = answer_early
        self._waits = Waits(waits or WaitLimits())
        self._machine = machine
        self._outbox = outbox
        self._handle = handle
        self.unfinished: list[RemotingCommand] = []
        """Requests that are handled again, one a turn, before the next frame."""

    @property
    def unfinished_bytes(self) -> int:
        """Memory of the unfinished requests: their bodies, and what was made of them."""
        return sum(
            [
                len(request.body) + (request.progress.size_bytes if request.progress else 0)
                for request in self.unfinished
            ]
        )

    def go_on(self, channel: Channel, instant: Instant) -> None:
        """Handle the first unfinished request again."""
        request = self.unfinished.pop(0)
        response = self._handle(channel, request, instant)
        if response is not None and not request.flag & 2:
            self._outbox.add(response)

    def handle_all(
        self, channel: Channel, instant: Instant, *, waited_ms: int = 0, is_over: bool = False
    ) -> bool:
        """Handle the whole frames that are there; True if the turn ends before the last. HOT.

        `waited_ms`: at least so long ago they have arrived at this machine.
        `is_over`: the peer has closed the connection behind them. Sends that want an answer are
        dropped then: their sender counts their outcome as unknown, and may have gone on since. Last
        words of a client that closes at once, its offset commits above all, are handled.

        Errors: RemoteProtocolError as `RemotingConnection.next_command`; what ends the node.
        """
        machine = self._machine
        outbox = self._outbox
        handle = self._handle
        if self.unfinished:
            if is_over:
                self.unfinished.clear()
            else:
                self.go_on(channel, instant)
            return True
        left_ms = instant.now_ms
        turn_ends_ms = left_ms + TURN_MS
        is_behind = self._waits.is_behind(waited_ms, instant.now_ms)
        answered = 0
        for _ in range(TURN_REQUESTS):
            try:
                command = machine.next_frame()
            except FrameRejected as rejected:
                command = rejected.command
                if not command.flag & 3:
                    outbox.add(command.response(rejected.code, rejected.remark))
                continue
            if command is None:
                return False
            if command.flag & 1:
                machine.response_received(command)
                continue
            is_send = command.code in _SENDS
            if is_over and is_send and not command.flag & 2:
                continue
            if is_behind and not command.flag & 2:
                remark = self._waits.rejection(command.code, waited_ms)
                if remark is not None:
                    outbox.add(command.response(ResponseCode.SYSTEM_BUSY, remark))
                    continue
            response = handle(channel, command, instant)
            if not machine.was_served:
                machine.was_served = response is None or response.code not in _REJECTIONS
            if response is not None and not command.flag & 2:
                outbox.add(response)
                if outbox.size > TURN_UNSENT_BYTES:
                    if outbox.is_over:
                        channel.close_nowait(f"it does not read: {outbox.size} bytes wait for it")
                        return False
                    return True
                if outbox.size >= EARLY_ANSWERS_BYTES and machine.has_data:
                    answered += outbox.size
                    self._answer_early()
                    if answered >= TURN_ANSWERS_BYTES:
                        return True
            if self.unfinished:
                return True
            if is_send:
                # Sends of one turn cost a few milliseconds together: no look at the clock.
                continue
            now_ms = self._now_ms()
            if now_ms >= turn_ends_ms:
                return True
            if now_ms > left_ms and outbox.size and machine.has_data:
                left_ms = now_ms
                self._answer_early()
        return True


class RequestTable:
    """Handlers by request code: all that a node needs whose handlers never change."""

    def __init__(self, handlers: Mapping[int, Handler], events: EventSink) -> None:
        self._handlers = handlers
        self._events = events

    def handle(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Return the answer to a request, or None when it comes later or never.

        Errors: AssertionError, LocalProtocolError and StoreError of a handler; they end the node.
        """
        handler = self._handlers.get(request.code)
        if handler is None:
            return not_supported(request)
        try:
            return handler(channel, request, instant)
        except Exception as error:
            return answer_to_error(error, channel, request, self._events)


def answer_late(
    channel: Channel, request: RemotingCommand, response: RemotingCommand | None
) -> None:
    """Send a response that is no handler's return value; a one-way request gets none."""
    if response is not None and not request.is_oneway:
        channel.send_nowait(response)


def not_supported(request: RemotingCommand) -> RemotingCommand:
    """Return the answer to a request that this node has no handler for."""
    return request.response(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        f" request type {request.code} not supported",
    )


def answer_to_error(
    error: Exception, channel: Channel, request: RemotingCommand, events: EventSink
) -> RemotingCommand:
    """Return the answer to a request whose handler has raised `error`.

    Errors: `error` itself if it ends the node.
    """
    if isinstance(error, CommandError):
        return request.response(error.code, error.remark)
    if isinstance(error, RemoteProtocolError):
        return request.response(ResponseCode.SYSTEM_ERROR, str(error))
    if isinstance(error, DiskFull):
        return request.response(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
    if isinstance(error, (AssertionError, LocalProtocolError, StoreError)):
        raise error
    events.event(
        "handler_failed",
        peer=channel.peer,
        code=request.code,
        error=repr(error),
        traceback="".join(traceback.format_exception(error)),
    )
    return request.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
