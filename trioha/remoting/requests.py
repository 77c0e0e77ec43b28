"""The requests of one read, handled in one go: what a link does between its read and its write.

What a handler raises decides: a refusal becomes an answer; a fault of ours that one request met is
told to the journal and to who asked (docs/decisions/0008-faults-of-ours-in-a-handler.md); a broken
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
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

_SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
)
"""Requests that store a message once more each time that they are handled."""


class Requests:
    """Takes commands out of the machine, has them handled and puts the answers in the outbox."""

    def __init__(
        self,
        machine: RemotingConnection,
        outbox: Outbox,
        handlers: Mapping[int, Handler],
        events: EventSink,
    ) -> None:
        self._machine = machine
        self._outbox = outbox
        self._handlers = handlers
        self._events = events

    def handle_all(self, channel: Channel, instant: Instant, *, is_over: bool = False) -> None:
        """Handle every whole frame that is there. HOT.

        `is_over`: the peer has closed the connection behind them. Sends that want an answer are
        dropped then: their sender counts their outcome as unknown, and may have gone on since. Last
        words of a client that closes at once, its offset commits above all, are handled.

        Errors: RemoteProtocolError as `RemotingConnection.next_command`; what ends the node.
        """
        machine = self._machine
        outbox = self._outbox
        while True:
            command = machine.next_frame()
            if command is None:
                return
            if command.flag & 1:
                machine.response_received(command)
                continue
            if is_over and command.code in _SENDS and not command.flag & 2:
                continue
            response = self.handle(channel, command, instant)
            if response is not None and not command.flag & 2:
                outbox.add(response)
                if outbox.is_over:
                    channel.close_nowait(f"it does not read: {outbox.size} bytes wait for it")
                    return

    def handle(
        self, channel: Channel, command: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Have one request handled; its answer, or None when that comes later or never."""
        handler = self._handlers.get(command.code)
        if handler is None:
            return command.response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {command.code} not supported",
            )
        try:
            return handler(channel, command, instant)
        except CommandError as error:
            return command.response(error.code, error.remark)
        except RemoteProtocolError as error:
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        except DiskFull as error:
            return command.response(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
        except (AssertionError, LocalProtocolError, StoreError):
            raise
        except Exception as error:
            self._events.event(
                "handler_failed",
                peer=channel.peer,
                code=command.code,
                error=repr(error),
                traceback=traceback.format_exc(),
            )
            return command.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
