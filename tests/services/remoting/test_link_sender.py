"""The sending half of a connection, without a connection."""

from __future__ import annotations

import attrs
import pytest
import trio

from trioha.remoting.outbox import Outbox
from trioha.remoting.outboxes import Outboxes
from trioha.services.remoting.link_sender import LinkSender
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import Buffer, RemotingCommand, encode

COMMAND = RemotingCommand(RequestCode.HEART_BEAT, opaque=1)
FRAME = encode(COMMAND)


@attrs.define
class Kernel:
    """Takes so many bytes of each write, and notes all that it was asked to do."""

    takes: int = 1 << 30
    is_broken: bool = False
    taken: list[bytes] = attrs.field(factory=list)
    reasons: list[str] = attrs.field(factory=list)
    unsent: int = 0
    outboxes: Outboxes = attrs.field(factory=Outboxes)
    bytes_max: int = 1 << 20

    def sender(self) -> LinkSender:
        def count() -> None:
            self.unsent += 1

        outbox = Outbox(self.bytes_max)
        return LinkSender(self.try_send, outbox, self.outboxes, self.reasons.append, count)

    def try_send(self, buffers: list[Buffer]) -> list[Buffer]:
        if self.is_broken:
            raise trio.BrokenResourceError("gone")
        data = b"".join(bytes(buffer) for buffer in buffers)
        self.taken.append(data[: self.takes])
        rest = data[self.takes :]
        return [rest] if rest else []


def test_frames_of_a_batch_leave_in_one_write_at_its_end() -> None:
    kernel = Kernel()
    sender = kernel.sender()
    with kernel.outboxes.batch():
        sender.send_nowait(COMMAND)
        sender.send_nowait(COMMAND)
        assert kernel.taken == []
        assert sender.outbox_bytes == 2 * len(FRAME)
    assert kernel.taken == [FRAME + FRAME]
    assert sender.outbox_bytes == 0
    assert not sender.wake.is_set()


def test_outside_a_batch_the_write_task_sends() -> None:
    kernel = Kernel()
    sender = kernel.sender()
    sender.send_nowait(COMMAND)
    assert kernel.taken == []
    assert sender.wake.is_set()


def test_what_the_kernel_does_not_take_is_the_write_task_s() -> None:
    kernel = Kernel(takes=5)
    sender = kernel.sender()
    with kernel.outboxes.batch():
        sender.send_nowait(COMMAND)
    assert sender.wake.is_set()
    assert kernel.unsent == 1
    assert sender.outbox_bytes == len(FRAME) - 5
    sender.is_writing = True
    with kernel.outboxes.batch():
        sender.send_nowait(COMMAND)
    assert len(kernel.taken) == 1, "nobody writes beside the write task"
    assert kernel.unsent == 2


def test_nothing_is_sent_once_it_is_closed() -> None:
    kernel = Kernel()
    sender = kernel.sender()
    with kernel.outboxes.batch():
        sender.send_nowait(COMMAND)
        sender.closed = True
        sender.send_nowait(COMMAND)
    assert kernel.taken == []
    assert sender.outbox_bytes == len(FRAME)


def test_a_broken_stream_drops_what_waits_and_says_nothing() -> None:
    """The read task meets the same end and reports it."""
    kernel = Kernel(is_broken=True)
    sender = kernel.sender()
    with kernel.outboxes.batch():
        sender.send_nowait(COMMAND)
    assert sender.outbox_bytes == 0
    assert kernel.reasons == []


def test_a_peer_that_reads_nothing_is_closed() -> None:
    kernel = Kernel(bytes_max=len(FRAME))
    sender = kernel.sender()
    with kernel.outboxes.batch():
        sender.send_nowait(COMMAND)
        assert kernel.reasons == []
        sender.send_nowait(COMMAND)
    assert kernel.reasons == [f"it does not read: {2 * len(FRAME)} bytes wait for it"]


@pytest.mark.parametrize("count", [1, 3])
def test_the_write_task_is_woken_once_for_all(count: int) -> None:
    kernel = Kernel()
    sender = kernel.sender()
    for _ in range(count):
        sender.send_nowait(COMMAND)
    assert sender.wake.is_set()
    sender.flush_nowait()
    assert kernel.taken == [FRAME * count]
