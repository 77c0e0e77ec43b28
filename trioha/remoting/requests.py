"""The requests of one read, handled in one go: what a link does between its read and its write.

What a handler raises decides: a rejection becomes an answer; a fault of ours that one request met
goes to the journal and to the client (docs/decisions/0008-faults-of-ours-in-a-handler.md); a broken
invariant or disk ends the node.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping

from trioha.errors import (
    CommandError,
    DiskFull,
    LocalProtocolError,
    RemoteProtocolError,
    StoreError,
)
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.connection import RemotingConnection
from trioha.remoting.outbox import Outbox
from trioha.wire.codes import SENDS, ResponseCode
from trioha.wire.remoting_command import RemotingCommand


class Requests:
    """Takes commands out of the machine, has them handled and puts the answers in the outbox."""

    def __init__(self, machine: RemotingConnection, outbox: Outbox, handle: Handler) -> None:
        """`handle` gets the requests of every code; it raises only what ends the node."""
        self._machine = machine
        self._outbox = outbox
        self._handle = handle

    def handle_all(self, channel: Channel, instant: Instant, *, is_over: bool = False) -> None:
        """Handle every whole frame that is there. HOT.

        `is_over`: the peer has closed the connection behind them. Sends that want an answer are
        dropped then: their sender counts their outcome as unknown, and may have gone on since. Last
        words of a client that closes at once, its offset commits above all, are handled.

        Errors: RemoteProtocolError as `RemotingConnection.next_command`; what ends the node.
        """
        machine = self._machine
        outbox = self._outbox
        handle = self._handle
        while True:
            command = machine.next_frame()
            if command is None:
                return
            if command.flag & 1:
                machine.response_received(command)
                continue
            if is_over and command.code in SENDS and not command.flag & 2:
                continue
            response = handle(channel, command, instant)
            if response is not None and not command.flag & 2:
                outbox.add(response)
                if outbox.is_over:
                    channel.close_nowait(f"it does not read: {outbox.size} bytes wait for it")
                    return


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
