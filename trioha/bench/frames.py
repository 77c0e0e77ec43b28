"""Send requests encoded once and put together per send; responses read no further than need be.

Theory of operation. A load generator that costs as much as the broker measures itself. So each
concurrent sender ("slot") owns one encoded frame: its opaque names the slot and never changes, the
queue neither; per send only the birth timestamp and the serial number in UNIQ_KEY are put between
its pieces, and all the pieces of one write are joined once.
Of a response the opaque and "is the code 0" are read, by position or by search; anything else than
code 0 takes the ordinary decoder.

With an account each send is signed anew, since birth timestamp and serial number are signed too:
the signed values are kept in pieces as well, and the signature is one more piece of the frame.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_batch_command, send_command
from trioha.errors import RemoteProtocolError
from trioha.security.signature import Credentials
from trioha.security.signing_key import ACCESS_KEY, SIGNATURE, signed_text
from trioha.wire.codes import FRAME_BYTES_MAX, ResponseCode, SerializeType
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

# Nine digits however many slots there are, so that a JSON header keeps its length.
OPAQUE_BASE = 100_000_000
_BORN_PLACE = 1_111_111_111_111
_BORN_DIGITS = 13
_SERIAL_DIGITS = 8
_SIGNATURE_PLACE = "SIGNATURE-of-HMAC-SHA1-here="
_LENGTH = struct.Struct(">I")
_OPAQUE_FIELD = b'"opaque":'
_OPAQUE_DIGITS = 9
_JSON_SUCCESS = b'{"code":0,'
# Behind the eight bytes of the prelude: code i16, language i8, version i16, then opaque i32.
_ROCKETMQ_CODE_OPAQUE = struct.Struct(">h3xi")


class SendFrame:
    """One slot's request, in pieces."""

    def __init__(
        self,
        slot: int,
        queue: MessageQueue,
        body: bytes,
        *,
        group: str,
        id_prefix: str,
        batch: int = 1,
        properties: Sequence[Mapping[str, str]] = (),
        sys_flag: int = 0,
        serialize_type: SerializeType = SerializeType.JSON,
        credentials: Credentials | None = None,
    ) -> None:
        """`properties`: those of each message of a batch beside UNIQ_KEY; by default none."""
        # The same number everywhere, found again in the encoded frame.
        marks = [f"{id_prefix}{number:0{_SERIAL_DIGITS}X}" for number in range(batch)]
        messages = [
            Message(queue.topic, body, properties=own, sys_flag=sys_flag)
            for own in properties or [{}] * batch
        ]
        if batch == 1:
            command = send_command(group, messages[0], marks[0], queue, _BORN_PLACE)
        else:
            command = send_batch_command(group, messages, marks, queue, _BORN_PLACE)
        command.opaque = OPAQUE_BASE + slot
        command.serialize_type = serialize_type
        self._body_size = len(command.body_bytes())
        self._signed = None if credentials is None else _SignedPieces(command, credentials)
        frame = encode(command)
        born_at, serials_at = _places(frame, marks, id_prefix)
        if self._signed is not None:
            self._signed.cut(frame, marks, id_prefix)
        # Bytes between the places that change: before the birth timestamp, then before each
        # serial number, then the rest.
        self._head = frame[:born_at]
        ends = [position + _SERIAL_DIGITS for position in serials_at]
        begins = [born_at + _BORN_DIGITS, *ends]
        self._between = [frame[begin:end] for begin, end in zip(begins, serials_at, strict=False)]
        self._tail = frame[ends[-1] :]

    def append_to(self, out: list[bytes], born: bytes, serial: int, stamp: bytes = b"") -> None:
        """Add the pieces of one send: birth timestamp (13 digits), serial numbers from `serial`.

        The body begins with `stamp`.
        """
        if self._signed is not None:
            self._signed.append_to(out, born, serial, stamp)
            return
        out += (self._head, born)
        for piece in self._between:
            out += (piece, b"%08X" % serial)
            serial += 1
        out.append(_stamped(self._tail, self._body_size, stamp))


class _SignedPieces:
    """One slot's request with a signature, in pieces."""

    def __init__(self, command: RemotingCommand, credentials: Credentials) -> None:
        fields = command.ext_fields
        fields[ACCESS_KEY] = credentials.access_key
        fields[SIGNATURE] = _SIGNATURE_PLACE
        self._key = credentials.key
        self._content = signed_text(fields).encode() + command.body_bytes()
        self._body_size = len(command.body_bytes())
        self._frame: list[bytes] = []
        """Bytes between the places that change; the first place is the birth timestamp."""
        self._values: list[bytes] = []
        """The same of the signed values."""
        self._signature_index = 0
        """Number of the place that the signature has in the frame."""

    def cut(self, frame: bytes, marks: list[str], id_prefix: str) -> None:
        """Take the frame apart, and the values in the same places."""
        born_at, serials_at = _places(frame, marks, id_prefix)
        signature_at = frame.index(_SIGNATURE_PLACE.encode())
        places = [(born_at, _BORN_DIGITS), (signature_at, len(_SIGNATURE_PLACE))]
        places += [(place, _SERIAL_DIGITS) for place in serials_at]
        places.sort()
        assert places[0][0] == born_at, "names of fields put the birth timestamp first"
        self._signature_index = places.index((signature_at, len(_SIGNATURE_PLACE)))
        self._frame = _pieces(frame, places)
        born_at, serials_at = _places(self._content, marks, id_prefix)
        places = [(born_at, _BORN_DIGITS), *((place, _SERIAL_DIGITS) for place in serials_at)]
        self._values = _pieces(self._content, places)

    def append_to(self, out: list[bytes], born: bytes, serial: int, stamp: bytes) -> None:
        values = self._values
        fills = [born]
        content = [values[0], born]
        for piece in values[1:-1]:
            fills.append(b"%08X" % serial)
            content += (piece, fills[-1])
            serial += 1
        content.append(_stamped(values[-1], self._body_size, stamp))
        fills.insert(self._signature_index, self._key.signature_over(b"".join(content)))
        for piece, fill in zip(self._frame, fills, strict=False):
            out += (piece, fill)
        out.append(_stamped(self._frame[-1], self._body_size, stamp))


def _stamped(tail: bytes, body_size: int, stamp: bytes) -> bytes:
    """Return what ends with a body, the body beginning with the stamp."""
    if not stamp:
        return tail
    body_at = len(tail) - body_size
    return tail[:body_at] + stamp + tail[body_at + len(stamp) :]


def _places(data: bytes, marks: list[str], id_prefix: str) -> tuple[int, list[int]]:
    """Return where the birth timestamp and the serial numbers begin."""
    born_at = data.index(b"%d" % _BORN_PLACE)
    return born_at, [data.index(mark.encode()) + len(id_prefix) for mark in marks]


def _pieces(data: bytes, places: list[tuple[int, int]]) -> list[bytes]:
    """Return what stands before, between and behind places of given sizes."""
    pieces = []
    begin = 0
    for place, size in places:
        pieces.append(data[begin:place])
        begin = place + size
    return [*pieces, data[begin:]]


class ResponseReader:
    """Cuts a byte stream into responses and tells each one's slot."""

    def __init__(self) -> None:
        self.refusals: Counter[int] = Counter()
        """Number of responses by code, without code 0."""
        self.follow_ups: list[bytes] = []
        """Frames to send after the answers that were read."""
        self._rest = b""

    def slots(self, data: bytes) -> list[int]:
        """The slots that `data` answers, in order.

        Errors: RemoteProtocolError for what is no response of ours.
        """
        if self._rest:
            data = self._rest + data
            self._rest = b""
        slots: list[int] = []
        position = 0
        end = len(data)
        find = data.find
        append = slots.append
        while end - position >= 4:
            size = _LENGTH.unpack_from(data, position)[0] + 4
            if size > FRAME_BYTES_MAX or size < 8:
                raise RemoteProtocolError(f"response of {size} bytes")
            frame_end = position + size
            if frame_end > end:
                break
            header = position + 8
            if data.startswith(_JSON_SUCCESS, header):
                digits = find(_OPAQUE_FIELD, header, frame_end) + len(_OPAQUE_FIELD)
                append(int(data[digits : digits + _OPAQUE_DIGITS]) - OPAQUE_BASE)
            elif data[position + 4] == SerializeType.ROCKETMQ:
                code, opaque = _ROCKETMQ_CODE_OPAQUE.unpack_from(data, header)
                if code != ResponseCode.SUCCESS:
                    self.refusals[code] += 1
                append(opaque - OPAQUE_BASE)
            else:
                self._slow(data[position:frame_end], append)
            position = frame_end
        if position < end:
            self._rest = data[position:]
        return slots

    def _slow(self, frame: bytes, append: Callable[[int], None]) -> None:
        command = decode_frame(frame)
        if not command.is_response:
            return  # a broker's own request to us: nothing we measure
        if command.code != ResponseCode.SUCCESS:
            self.refusals[command.code] += 1
        append(command.opaque - OPAQUE_BASE)
