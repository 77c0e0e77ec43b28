"""Queue of encoded frames that wait to be sent on one connection, with their bytes counted."""

from __future__ import annotations

from trioha.errors import LocalProtocolError
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import Buffer, RemotingCommand, encode_buffers


class Outbox:
    """Frames go in, buffers come out; the kernel may take a part and leave the rest here."""

    def __init__(self, bytes_max: int) -> None:
        self.buffers: list[Buffer] = []
        self.size = 0
        self.is_queued = False
        """The batch that runs, or the write task, will send it."""
        self._bytes_max = bytes_max

    @property
    def is_over(self) -> bool:
        """More waits than one connection may cost us."""
        return self.size > self._bytes_max

    def add(self, command: RemotingCommand) -> None:
        """Encode and append; an answer that no frame can carry becomes one that says so.

        Errors: LocalProtocolError for a request of ours that is too large.
        """
        try:
            buffers = encode_buffers(command)
        except LocalProtocolError as error:
            if not command.is_response:
                raise
            buffers = encode_buffers(
                RemotingCommand(
                    ResponseCode.SYSTEM_ERROR,
                    opaque=command.opaque,
                    flag=command.flag,
                    remark=f"the answer is too large: {error}",
                    serialize_type=command.serialize_type,
                )
            )
        for buffer in buffers:
            self.buffers.append(buffer)
            self.size += len(buffer)

    def take(self) -> list[Buffer]:
        """Return all that waits; `size` still counts it until `sent` says what became of it."""
        buffers = self.buffers
        self.buffers = []
        return buffers

    def sent(self, rest: list[Buffer]) -> None:
        """The kernel took what was taken out, all but `rest`; what came meanwhile is behind it."""
        if rest or self.buffers:
            self.buffers = rest + self.buffers
            self.size = sum([len(buffer) for buffer in self.buffers])
        else:
            self.size = 0

    def clear(self) -> None:
        self.buffers = []
        self.size = 0
