"""Sends a member's messages to its peers, by the connections of the moment.

Messages leave in the scheduler pass that made them (decision 6). A message that cannot leave is
dropped: while there is no connection, and beyond `OUTBOX_BYTES_MAX`; the core repeats it.
"""

from __future__ import annotations

from typing import Final, Protocol

from trioha.dledger.message_codec import GroupDoor, code_of
from trioha.dledger.messages import RaftMessage
from trioha.wire.codes import ONEWAY_FLAG, SerializeType
from trioha.wire.remoting_command import RemotingCommand

OUTBOX_BYTES_MAX: Final = 16 << 20
"""Room for two windows (`RaftSettings.inflight_bytes_max`): one lost and one sent again."""
_ROCKETMQ: Final = SerializeType.ROCKETMQ


class PeerChannel(Protocol):
    """A connection to a peer: `trioha.services.remoting.link_sender.LinkSender`."""

    @property
    def outbox_bytes(self) -> int: ...
    def send_nowait(self, command: RemotingCommand) -> None: ...


class PeerOutlet:
    """The way of messages to one peer."""

    def __init__(self, door: GroupDoor) -> None:
        self.channel: PeerChannel | None = None
        """The connection; None while there is none."""
        self.dropped = 0
        """Count of messages that were dropped."""
        self._door = door

    def send(self, message: RaftMessage) -> None:
        """Send a message, or drop it. HOT."""
        channel = self.channel
        if channel is None or channel.outbox_bytes > OUTBOX_BYTES_MAX:
            self.dropped += 1
            return
        channel.send_nowait(
            RemotingCommand(
                code_of(message),
                None,
                self._door.encode(message),
                flag=ONEWAY_FLAG,
                serialize_type=_ROCKETMQ,
                encoded_fields=b"",
            )
        )


class PeerSends:
    """The ways to all peers."""

    def __init__(self) -> None:
        self.outlets: dict[str, PeerOutlet] = {}
        """By member id."""
        self.unknown = 0
        """Count of messages to members whose address we do not know."""

    def send(self, message: RaftMessage) -> None:
        """Send or drop a message. Outside a batch of `outboxes` it costs a task switch. HOT."""
        outlet = self.outlets.get(message.target)
        if outlet is None:
            self.unknown += 1
        else:
            outlet.send(message)
