"""Slave's half of one HA link (HAService.HAClient), bytes and values only.

The slave reports the end of its log at once on connecting (Java waits five seconds; its master
takes an early report), then every `haSendHeartbeatInterval`, and after every batch of frames that
moved the end: one report however many frames a read brought. In the middle of a frame whose rest
is about to come a report would only cost the master's time, so in bulk it is left out, for
`UNREPORTED_BYTES_MAX` at most. It never reports what it does not hold.

With the epoch that it shook hands on (`trioha.ha.hello`) it opens an extended link: every frame
then names its kind and its epoch, and one of another epoch ends the link. Metadata frames, which it
does assemble, are handed on between the bytes of log between which they came; a report says how far
it got with either.

Frames are not assembled. Whatever part of a body has arrived is handed on to be appended: the log
is bytes, a record cut short is completed by the next read, and a link that breaks in the middle of
a frame has lost nothing that arrived. So a link buffers at most one header.

Every frame, an empty one too, must start where our log ends; only an empty log takes any start.
Anything else means that the two logs differ, and the link ends with both numbers. Where our log
ends with a whole record the first bytes to come must begin one: a log that another node wrote
meets the master's in the middle of a record, and is rejected before a byte is appended.
"""

from __future__ import annotations

import struct
from typing import Final

from trioha.errors import RemoteProtocolError
from trioha.ha import auth
from trioha.ha.events import LogTransferred, MasterHeartbeat, MetadataTransferred, Term
from trioha.wire import record
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

FRAME_BYTES_MAX: Final = 16 << 20  # as for remoting frames; RocketMQ's slave takes 4 MiB at most
UNREPORTED_BYTES_MAX: Final = 4 << 20
CHALLENGE_PATIENCE_MS: Final = 1000  # a master that has a challenge speaks at once
_EMPTY: Final = memoryview(b"")
_RECORD_HEAD: Final = struct.Struct(">iI")  # total size, magic


class SlaveConnection:
    """One master as its slave follows it. Holds no socket and reads no clock.

    The caller appends each `LogTransferred` to its log before it asks for the next event, and drops
    the connection when it cannot.
    """

    def __init__(
        self,
        max_phy_offset: int,
        now_ms: int,
        *,
        report_interval_ms: int,
        secret: str | Keyring = "",
        at_record: bool = False,
        term: Term | None = None,
        home_id: int = 0,
    ) -> None:
        """`at_record`: our log is known to end with a whole record, or is empty. `term`: that of
        the handshake, if there was one; the slave `home_id` opens an extended link then."""
        self.metadata_position = -1
        """Master's position of the newest metadata given out; -1 for none on this link."""
        self.max_phy_offset = max_phy_offset
        """End of our log, with all bytes given to the caller."""
        self.next_deadline_ms = now_ms + (CHALLENGE_PATIENCE_MS if keyring_of(secret) else 0)
        """Time at which a report is due, whatever arrives."""
        self.heard = False
        """Has the master accepted us, by any frame that fits?"""
        self._report_interval_ms = report_interval_ms
        self._reported_offset = -1
        self._secret = keyring_of(secret)
        # Reports wait for the challenge, as long as one can be expected.
        self._held_back = bool(keyring_of(secret))
        self._answer = b""
        # Past the point where a challenge could come.
        self._begun = False
        self._expects_record = at_record
        # Less than a record's size and magic.
        self._head = b""
        # Less than a challenge, later less than a header.
        self._header = b""
        self._data = _EMPTY
        self._body_offset = 0
        self._body_left = 0
        self._master_offset = 0
        self._term = term
        self._header_struct = TRANSFER_HEADER if term is None else EXTENDED_HEADER
        self._opening = b""
        if term is not None:
            self._opening = EXTENDED_OPENING.pack(EXTENDED_MAGIC, term.epoch, term.nonce, home_id)
        self._reported_position = -1
        # Bytes of a metadata frame so far; None while the frame carries log.
        self._metadata: bytearray | None = None

    @property
    def gap_bytes(self) -> int:
        """Bytes that the newest frame announced and this node lacks; the master may hold more."""
        return max(0, self._master_offset - self.max_phy_offset) if self.max_phy_offset else 0

    @property
    def frame_bytes_left(self) -> int:
        """Bytes still to come of the frame whose header is here."""
        return self._body_left

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the master; handle every event before the next call."""
        assert not self._data, f"{len(self._data)} bytes of the last read are not handled"
        self._data = memoryview(self._head + data if self._head else data)
        self._head = b""

    def next_event(self) -> LogTransferred | MetadataTransferred | MasterHeartbeat | NeedData:
        """Return the next frame, or the part of it that has arrived.

        Errors: RemoteProtocolError when the master's log does not continue ours.
        """
        if not self._body_left:
            if not (self._begun or self._pass_challenge()) or not self._take_header():
                return NEED_DATA
            if self._metadata is None and not self._body_left:
                return MasterHeartbeat(self._body_offset)
        if self._metadata is not None:
            return self._take_metadata(self._metadata)
        data = self._data
        if not data:
            return NEED_DATA
        offset, left = self._body_offset, self._body_left
        if self._expects_record:
            if len(data) < min(_RECORD_HEAD.size, left):
                self._head, self._data = bytes(data), _EMPTY
                return NEED_DATA
            self._check_record(offset, data[:left])
        body = data if len(data) <= left else data[:left]
        size = len(body)
        self._data = data[size:]
        self._body_left = left - size
        self.max_phy_offset = self._body_offset = offset + size
        return LogTransferred(offset, body)

    def report(self, now_ms: int, *, in_bulk: bool = False) -> bytes:
        """Return the bytes to send now: an answer to the challenge, then a report; b"" for none.

        `in_bulk` says that bytes arrive faster than we read them.
        """
        if now_ms < self.next_deadline_ms:
            unreported = self.max_phy_offset - self._reported_offset
            news = unreported > 0 or self.metadata_position > self._reported_position
            if self._held_back or not news:
                return b""
            if in_bulk and self._body_left and unreported < UNREPORTED_BYTES_MAX:
                return b""
        # A classic master, or one that allows our address, has no challenge and waits for us.
        self._held_back = False
        start, self._answer, self._opening = self._answer + self._opening, b"", b""
        self._reported_offset = self.max_phy_offset
        self.next_deadline_ms = now_ms + self._report_interval_ms
        if self._term is None:
            return start + REPORT.pack(self.max_phy_offset)
        self._reported_position = self.metadata_position
        return start + EXTENDED_REPORT.pack(self.max_phy_offset, self.metadata_position)

    def _pass_challenge(self) -> bool:
        """Answer the challenge if the master opens with one; False while that is not known."""
        wanted = auth.CHALLENGE_BYTES - len(self._header)
        start = self._header + bytes(self._data[:wanted])
        if not auth.MAGIC.startswith(start[: len(auth.MAGIC)]):
            self._begun = True
            return True
        self._header, self._data = start, self._data[wanted:]
        if len(start) < auth.CHALLENGE_BYTES:
            return False
        if not self._secret:
            raise RemoteProtocolError(
                "the master asks for proof of the shared secret; set haSecret to the master's, "
                "or have this address added to its haAllowedPeers"
            )
        if not self._held_back:
            raise RemoteProtocolError(
                f"the master's challenge took over {CHALLENGE_PATIENCE_MS} ms; trying again"
            )
        self._answer = auth.answer(self._secret, start)
        self._header, self._held_back, self._begun = b"", False, True
        return True

    def _take_header(self) -> bool:
        """Take one header off the data; False while it is incomplete."""
        data, before = self._data, self._header
        wanted = self._header_struct.size - len(before)
        if len(data) < wanted:
            self._header, self._data = before + bytes(data), _EMPTY
            return False
        header = before + bytes(data[:wanted]) if before else data[:wanted]
        self._header, self._data = b"", data[wanted:]
        if self._term is None:
            phy_offset, size = TRANSFER_HEADER.unpack(header)
        else:
            kind, epoch, phy_offset, size = EXTENDED_HEADER.unpack(header)
            self._check_kind(kind, epoch, phy_offset, size)
            if kind == KIND_METADATA:
                self.heard = True
                self._metadata = bytearray()
                self._body_offset, self._body_left = phy_offset, size
                return True
        self._check_frame(phy_offset, size)
        self.heard = True
        self._body_offset, self._body_left = phy_offset, size
        self._master_offset = phy_offset + size
        return True

    def _take_metadata(self, body: bytearray) -> MetadataTransferred | NeedData:
        data, left = self._data, self._body_left
        part = data[:left]
        body += part
        self._data, self._body_left = data[len(part) :], left - len(part)
        if self._body_left:
            return NEED_DATA
        self._metadata = None
        self.metadata_position = self._body_offset
        return MetadataTransferred(self._body_offset, bytes(body))

    def _check_kind(self, kind: int, epoch: int, offset: int, size: int) -> None:
        assert self._term is not None
        if epoch != self._term.epoch:
            raise RemoteProtocolError(
                f"the master sends a frame of epoch {epoch} on a link of epoch {self._term.epoch}"
            )
        if kind == KIND_METADATA:
            if size > METADATA_BYTES_MAX or size < 0 or offset < self.metadata_position:
                raise RemoteProtocolError(
                    f"metadata of {size} bytes at position {offset}, after "
                    f"{self.metadata_position}; at most {METADATA_BYTES_MAX} are allowed"
                )
        elif kind != KIND_LOG and (kind != KIND_HEARTBEAT or size):
            raise RemoteProtocolError(f"the master sends a frame of kind {kind}, {size} bytes")

    def _check_record(self, phy_offset: int, body: memoryview) -> None:
        self._expects_record = False
        if len(body) >= _RECORD_HEAD.size:
            _, magic = _RECORD_HEAD.unpack_from(body)
            if magic in (record.MAGIC, record.BLANK_MAGIC):
                return
        raise RemoteProtocolError(
            f"no record begins at offset {phy_offset} of the master's log, where ours ends with a "
            "whole one: the two logs differ; compare with `trioha log diff`, then empty this "
            "store, or make this node master"
        )

    def _check_frame(self, phy_offset: int, size: int) -> None:
        ours = self.max_phy_offset
        if not 0 <= size <= FRAME_BYTES_MAX or phy_offset < 0:
            raise RemoteProtocolError(
                f"frame of {size} bytes at offset {phy_offset}, at most {FRAME_BYTES_MAX} are "
                "allowed: this is no HA port, or haTransferBatchSize of the master is too large"
            )
        if phy_offset == ours or not ours:
            return
        if phy_offset < ours:
            raise RemoteProtocolError(
                f"master is at offset {phy_offset}, our log ends at {ours}: we are ahead of it; "
                "compare with `trioha log diff`, then empty this store, or make this node master"
            )
        raise RemoteProtocolError(
            f"master's log goes on at offset {phy_offset}, ours ends at {ours}: what lies between "
            "is gone from the master; empty this store to copy anew"
        )
