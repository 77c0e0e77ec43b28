"""Master's half of one HA link (HAConnection.java), bytes and values only.

The slave speaks first: eight bytes, the end of its log as i64. The first report says where to
serve from; every later one acknowledges. The master then ships the log in frames of 12 header bytes
(`phy_offset` i64, `size` i32) and `size` raw bytes, each from within one segment, and an empty
frame when it has said nothing for `haSendHeartbeatInterval`. Frames follow each other without a
gap, so only a tail can be lost, and the next link starts at the offset that the slave reports.

Of several reports that arrive together only the last complete one counts; half a report waits for
its rest. With a challenge to answer (`trioha.ha.auth`), the answer comes before the first report.

A slave that has shaken hands (`trioha.ha.hello`) opens with a magic and the epoch it shook hands
on, and is served extended frames: they name that epoch, and carry metadata between the stretches of
log around which it changed. An opening of another epoch than this master's ends the link: an ack
counts only if slave and master agree on the term.

RocketMQ believes any number in an ack, starts an empty slave at the last segment, and heartbeats
for ever to a slave whose offset it no longer holds. Here every number is checked, an empty slave
gets all by default, and what cannot be served ends the link: with both numbers in the error, and a
last empty frame at the nearest offset we do hold, from which the slave learns them too.
"""

from __future__ import annotations

import struct
from typing import Final

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.ha import auth
from trioha.ha.events import SlaveReported, Term
from trioha.wire.ha_frames import (
    EXTENDED_HEADER,
    EXTENDED_MAGIC,
    EXTENDED_OPENING,
    EXTENDED_REPORT,
    KIND_HEARTBEAT,
    KIND_LOG,
    KIND_METADATA,
    METADATA_BYTES_MAX,
    REPORT,
    TRANSFER_HEADER,
)
from trioha.wire.keyring import Keyring, keyring_of
from trioha.wire.need_data import NEED_DATA, NeedData
from trioha.wire.remoting_command import Buffer

_pack_header: Final = TRANSFER_HEADER.pack
_pack_extended: Final = EXTENDED_HEADER.pack
_HANDSHAKE: Final = struct.Struct(">iHHi")
"""State, two flags, length of the address behind: the opening of a slave of RocketMQ 5 in
controller mode (AutoSwitchHAClient.java)."""
_STATE_HANDSHAKE: Final = 1


class MasterConnection:
    """One slave as its master follows it. Holds no socket and reads no clock."""

    def __init__(
        self,
        *,
        segment_bytes: int,
        transfer_batch_bytes_max: int,
        heartbeat_interval_ms: int,
        empty_slave_from_last: bool = False,
        secret: str | Keyring = "",
        challenge: bytes = b"",
        term: Term | None = None,
    ) -> None:
        """`challenge` is what `auth.challenge` made and the peer was sent, if it has to prove
        that it knows `secret`; `term` is our epoch, without which no extended link is served."""
        self.epoch = 0
        """Epoch of an extended link; 0 for a classic one, and until the slave has opened."""
        self.home_id = -1
        """The slave's configured brokerId; -1 until it has told it."""
        self.metadata_sent_position = -1
        """Position of the newest metadata frame."""
        self.metadata_ack_position = -1
        """Invariant: at most `metadata_sent_position`."""
        self.slave_request_offset = -1
        """Offset that the slave asked for; -1 until it reports."""
        self.slave_ack_offset = -1
        """Offset up to which the slave holds the log; never above `next_transfer_offset`."""
        self.next_transfer_offset = -1
        """Offset at which the next frame starts."""
        self.next_deadline_ms: int | None = None
        """Time at which a heartbeat is due; None until the slave has reported."""
        self.last_words = b""
        """Set beside an error: a frame that tells the slave our offset. Send it, then close."""
        self._segment_bytes = segment_bytes
        self._transfer_batch_bytes_max = transfer_batch_bytes_max
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._empty_slave_from_last = empty_slave_from_last
        self._secret = keyring_of(secret)
        self._challenge = challenge
        self._term = term
        self._opened = False
        self._of_controller_mode = False
        self._report_bytes = REPORT.size
        # Less than one report, or less than one answer or opening.
        self._buffer = b""

    @property
    def authenticated(self) -> bool:
        """Does the master wait for no proof of the peer any more?"""
        return not self._challenge

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the slave. Keeps at most the one report that counts and a rest."""
        buffer = self._buffer + data if self._buffer else data
        if not (self._opened or self._challenge) and len(buffer) >= REPORT.size:
            self._opened = not buffer.startswith(EXTENDED_MAGIC)
            self._of_controller_mode = self._opened and _is_handshake(buffer)
        if self._opened and len(buffer) > self._report_bytes:
            last = (len(buffer) // self._report_bytes - 1) * self._report_bytes
            buffer = buffer[last:]
        self._buffer = buffer

    def next_event(
        self, min_phy_offset: int, max_phy_offset: int, now_ms: int
    ) -> SlaveReported | NeedData:
        """Return the slave's next report, checked against the extent of this node's log.

        Errors: RemoteProtocolError when the slave cannot follow us or must not.
        """
        if self._challenge and not self._check_answer():
            return NEED_DATA
        if self._of_controller_mode:
            raise RemoteProtocolError(
                "the slave opens with the handshake of RocketMQ 5 in controller mode, and this "
                "master speaks the classic protocol only: set enableControllerMode=false there"
            )
        if not (self._opened or self._open_extended()) or len(self._buffer) < self._report_bytes:
            return NEED_DATA
        position = -1
        if self.epoch:
            offset, position = EXTENDED_REPORT.unpack_from(self._buffer)
            self._check_position(position)
        else:
            (offset,) = REPORT.unpack_from(self._buffer)
        self._buffer = self._buffer[self._report_bytes :]
        if self.slave_request_offset >= 0:
            self._check_ack(offset, max_phy_offset)
            self.slave_ack_offset = offset
            return SlaveReported(offset, False, position)
        self._check_first_report(offset, min_phy_offset, max_phy_offset)
        self.slave_request_offset = self.slave_ack_offset = offset
        self.next_transfer_offset = offset or self._start_for_empty(min_phy_offset, max_phy_offset)
        # Due at once: if there is nothing to ship, the slave learns from it that it is accepted.
        self.next_deadline_ms = now_ms
        return SlaveReported(offset, True, position)

    def send_transfer(self, body: memoryview, now_ms: int) -> list[Buffer]:
        """Frame the stretch of the log at `next_transfer_offset`, headers and views by turns.

        `body` lies within one segment; it is cut into frames of `haTransferBatchSize`.
        """
        offset = self.next_transfer_offset
        if offset < 0:
            raise LocalProtocolError("transfer before the slave's first report")
        self.next_deadline_ms = now_ms + self._heartbeat_interval_ms
        size, step = len(body), self._transfer_batch_bytes_max
        self.next_transfer_offset = offset + size
        if size <= step:
            return [self._header(offset, size), body]
        buffers: list[Buffer] = []
        for start in range(0, size, step):
            part = body[start : start + step]
            buffers.append(self._header(offset + start, len(part)))
            buffers.append(part)
        return buffers

    def send_metadata(self, position: int, body: bytes, now_ms: int) -> list[Buffer]:
        """Frame a change of metadata; positions never fall."""
        if self.slave_request_offset < 0 or not self.epoch:
            raise LocalProtocolError("metadata on a link that is not an extended one")
        if position < self.metadata_sent_position or len(body) > METADATA_BYTES_MAX:
            raise LocalProtocolError(
                f"metadata of {len(body)} bytes at position {position}, after "
                f"{self.metadata_sent_position}"
            )
        self.next_deadline_ms = now_ms + self._heartbeat_interval_ms
        self.metadata_sent_position = position
        return [_pack_extended(KIND_METADATA, self.epoch, position, len(body)), body]

    def send_heartbeat(self, now_ms: int) -> bytes:
        """An empty frame."""
        if self.next_transfer_offset < 0:
            raise LocalProtocolError("heartbeat before the slave's first report")
        self.next_deadline_ms = now_ms + self._heartbeat_interval_ms
        return self._empty_frame(self.next_transfer_offset)

    def _header(self, phy_offset: int, size: int) -> bytes:
        if self.epoch:
            return _pack_extended(KIND_LOG, self.epoch, phy_offset, size)
        return _pack_header(phy_offset, size)

    def _empty_frame(self, phy_offset: int) -> bytes:
        if self.epoch:
            return _pack_extended(KIND_HEARTBEAT, self.epoch, phy_offset, 0)
        return _pack_header(phy_offset, 0)

    def _open_extended(self) -> bool:
        """Take the opening off the buffer; False while it is incomplete."""
        buffer = self._buffer
        if len(buffer) < EXTENDED_OPENING.size:
            return False
        _, epoch, nonce, self.home_id = EXTENDED_OPENING.unpack_from(buffer)
        self._check_term(epoch, nonce)
        self.epoch, self._report_bytes = epoch, EXTENDED_REPORT.size
        self._opened, self._buffer = True, b""
        self.receive_data(buffer[EXTENDED_OPENING.size :])
        return True

    def _check_term(self, epoch: int, nonce: bytes) -> None:
        term = self._term
        if term is None:
            raise RemoteProtocolError(
                f"the slave shook hands on epoch {epoch}, and this master has none"
            )
        if (epoch, nonce) != (term.epoch, term.nonce):
            raise RemoteProtocolError(
                f"the slave shook hands on epoch {epoch}, ours is {term.epoch}"
                f"{' by another master' if epoch == term.epoch else ''}: it has to ask again"
            )

    def _check_position(self, position: int) -> None:
        if not self.metadata_ack_position <= position <= self.metadata_sent_position:
            raise RemoteProtocolError(
                f"slave acknowledges metadata up to {position}, after "
                f"{self.metadata_ack_position}, and was sent it up to "
                f"{self.metadata_sent_position}: no honest slave does; find out who it is"
            )
        self.metadata_ack_position = position

    def _check_answer(self) -> bool:
        """Take the answer to our challenge off the buffer; False while it is incomplete."""
        if len(self._buffer) < auth.ANSWER_BYTES:
            return False
        given, rest = self._buffer[: auth.ANSWER_BYTES], self._buffer[auth.ANSWER_BYTES :]
        if not auth.is_answer(self._secret, self._challenge, given):
            raise RemoteProtocolError(
                "wrong answer to the challenge; give the slave our haSecret, "
                "or name its network in haAllowedPeers"
            )
        self._challenge = self._buffer = b""
        self.receive_data(rest)
        return True

    def _check_first_report(self, offset: int, min_phy_offset: int, max_phy_offset: int) -> None:
        if offset > max_phy_offset:
            self.last_words = self._empty_frame(max_phy_offset)
            raise RemoteProtocolError(
                f"slave reports offset {offset}, beyond our end {max_phy_offset}: it followed "
                "another master or holds writes we lost; compare with `trioha log diff`, then "
                "empty the slave's store, or serve from that node instead"
            )
        if offset and offset < min_phy_offset:
            self.last_words = self._empty_frame(min_phy_offset)
            raise RemoteProtocolError(
                f"slave reports offset {offset}, below our first offset {min_phy_offset}: the "
                "log between has been deleted; empty the slave's store to copy anew"
            )

    def _check_ack(self, offset: int, max_phy_offset: int) -> None:
        if offset > self.next_transfer_offset:
            # Covers offsets beyond our end, too: nothing beyond it is ever sent.
            raise RemoteProtocolError(
                f"slave acknowledges offset {offset}, but was sent only up to "
                f"{self.next_transfer_offset} of our {max_phy_offset}: no honest slave does; "
                "find out who it is"
            )
        if offset < self.slave_ack_offset:
            raise RemoteProtocolError(
                f"slave acknowledges offset {offset} after {self.slave_ack_offset}: it lost part "
                "of its log; it has to connect anew"
            )

    def _start_for_empty(self, min_phy_offset: int, max_phy_offset: int) -> int:
        """Return the offset where an empty slave begins: the start of a segment."""
        offset = max_phy_offset if self._empty_slave_from_last else min_phy_offset
        return offset - offset % self._segment_bytes


def _is_handshake(data: bytes) -> bool:
    """Return whether it is a handshake: two reports read as one would be over 4 GiB apart."""
    if len(data) < _HANDSHAKE.size:
        return False
    state, from_last, learner, length = _HANDSHAKE.unpack_from(data)
    whole: bool = len(data) == _HANDSHAKE.size + length
    return whole and (state, max(from_last, learner) <= 1) == (_STATE_HANDSHAKE, True)
