"""Remoting frames: encode and decode (RemotingCommand.java, RocketMQSerializable.java).

A frame is ``total i32 | type u8 + header length u24 | header | body``; `total` counts what follows
it. The header is JSON (type 0) or ROCKETMQ's packed form (type 1); a response uses the form of its
request. We accept leniently (numbers and booleans in extFields, blanks after the JSON, unknown
languages) and send exactly: compact JSON, every ext value a string, absent fields left out.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from sys import getsizeof
from typing import Final

import msgspec

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.wire.codes import (
    FRAME_BYTES_MAX,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    VERSION_V4_9_8,
    LanguageCode,
    SerializeType,
)
from trioha.wire.json_header import (
    ExtValue,
    JsonHeader,
    OutgoingJsonHeader,
    decode_json_fields,
    decode_json_header,
    encode_json_header,
)
from trioha.wire.packed_fields import ext_text, pack_fields, text_of, too_long, unpack_fields
from trioha.wire.progress import Progress

Buffer = bytes | bytearray | memoryview

__all__ = [
    "Buffer",
    "ExtValue",
    "Progress",
    "RemotingCommand",
    "decode_at",
    "decode_frame",
    "encode",
    "encode_buffers",
]

_PRELUDE: Final = struct.Struct(">II")
_FIXED: Final = struct.Struct(">hBhiiii")
_FIXED_SIZE: Final = 17
_HEAD: Final = struct.Struct(">IIhBhiiii")
_HEAD_WITH_REMARK: Final = struct.Struct(">IIhBhiii")
_JSON_HEADER: Final = (
    b'{"code":%d,"extFields":%b,"flag":%d,"language":"%b","opaque":%d,"version":%d,'
    b'"serializeTypeCurrentRPC":"JSON"}'
)
_LENGTH: Final = struct.Struct(">i")
_LANGUAGES: Final[dict[object, LanguageCode]] = {code.name: code for code in LanguageCode} | {
    int(code): code for code in LanguageCode
}
_LANGUAGE_NAMES: Final = {int(code): code.name for code in LanguageCode}
_LANGUAGE_BYTES: Final = {int(code): code.name.encode() for code in LanguageCode}
_HEADER_BYTES_MAX: Final = 0xFFFFFF
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_decode_header: Final = decode_json_header
# Looking a member up in its enum costs more than the comparison it is for.
_JSON: Final = 0
_ROCKETMQ: Final = 1
_OTHER: Final = LanguageCode.OTHER
_PYTHON: Final = LanguageCode.PYTHON
_COPIED_BODY_BYTES_MAX: Final = 4096
"""A smaller body is cheaper to copy than to view, and does not hold the whole read in memory."""
_BYTES_WITHOUT_CONTENT: Final = 400
"""Memory of a request without fields and body."""

assert int(SerializeType.JSON) == _JSON
assert int(SerializeType.ROCKETMQ) == _ROCKETMQ


class RemotingCommand:
    """One request or response.

    `ext_fields` holds JSON scalars as they came; read them with `ext_str`, `ext_int`, `ext_bool`.
    On sending, values are stringified (booleans as ``true``/``false``, None left out).
    `encoded_fields` are the same fields as bytes, in the form that `serialize_type` says: of a
    packed header that came in, or as a `FieldsTemplate` made them. Packed ones are taken apart when
    somebody asks for `ext_fields`; that raises RemoteProtocolError if they are none.
    `body` may be a sequence of buffers: they go to the socket without being joined.
    `progress` is what was done of a request in earlier turns, None as a rule.
    """

    def __init__(
        self,
        code: int,
        ext_fields: dict[str, ExtValue] | None = None,
        body: Buffer | Sequence[Buffer] = b"",
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        version: int = VERSION_V4_9_8,
        language: LanguageCode = _PYTHON,
        serialize_type: int = _JSON,
        encoded_fields: bytes | None = None,
    ) -> None:
        self.code = code
        self._ext_fields = ext_fields
        self.encoded_fields = encoded_fields
        self.body = body
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.version = version
        self.language = language
        self.serialize_type = serialize_type
        self.progress: Progress | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotingCommand) and self._fields() == other._fields()

    def __repr__(self) -> str:
        return "RemotingCommand({!r}, {!r}, {!r}, {}, {}, {!r}, {}, {!r}, {})".format(
            *self._fields()
        )

    def _fields(self) -> tuple[object, ...]:
        return (
            self.code,
            self.ext_fields,
            self.body,
            self.opaque,
            self.flag,
            self.remark,
            self.version,
            self.language,
            self.serialize_type,
        )

    @property
    def ext_fields(self) -> dict[str, ExtValue]:
        fields = self._ext_fields
        if fields is None:
            encoded = self.encoded_fields
            if encoded is None:
                fields = {}
            elif self.serialize_type == _ROCKETMQ:
                fields = unpack_fields(encoded)
            else:
                fields = decode_json_fields(encoded)
            self._ext_fields = fields
            # The caller may change the fields, and the changed fields are sent.
            self.encoded_fields = None
        return fields

    @property
    def packed_fields(self) -> bytes | None:
        """The fields in packed form, if they are there in it."""
        return self.encoded_fields if self.serialize_type == _ROCKETMQ else None

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY_FLAG != 0

    def ext_str(self, name: str, default: str | None = None) -> str:
        """The field as text. Errors: RemoteProtocolError if absent and no default is given."""
        value = self.ext_fields.get(name)
        if isinstance(value, str):
            return value
        if value is None:
            if default is None:
                raise RemoteProtocolError(f"request {self.code}: field {name} is missing")
            return default
        return ext_text(value)

    def ext_int(self, name: str, default: int | None = None) -> int:
        """The field as a Java long, whether it came as number or text.

        Errors: RemoteProtocolError if it is neither, beyond 64 bits, or absent without a default.
        """
        value = self.ext_fields.get(name)
        if value is None or value == "":
            if default is None:
                raise RemoteProtocolError(f"request {self.code}: field {name} is missing")
            return default
        try:
            number = int(value)
        except (ValueError, OverflowError):
            raise RemoteProtocolError(
                f"request {self.code}: field {name} is not a number: {value!r:.60}"
            ) from None
        if _INT64_MIN <= number <= _INT64_MAX:
            return number
        raise RemoteProtocolError(f"request {self.code}: field {name} exceeds 64 bits")

    def ext_bool(self, name: str, default: bool = False) -> bool:
        """The field as a boolean. C++ sends "0"/"1", Java "true" in any case, JS real booleans."""
        value = self.ext_fields.get(name)
        if value is None:
            return default
        if isinstance(value, str):
            return value in ("true", "1") or value.lower() == "true"
        return bool(value)

    def body_bytes(self) -> bytes:
        """The body joined into one bytes object."""
        body = self.body
        if isinstance(body, bytes):
            return body
        if isinstance(body, (bytearray, memoryview)):
            return bytes(body)
        return b"".join(body)

    def detach(self, names: frozenset[str] | None = None) -> int:
        """Make the request ready to wait: return the bytes of memory that it takes from now on.

        Its body no longer keeps the read in memory that it came with, and what was done of it is
        forgotten: it will be handled from the beginning. With `names` it loses its body, its remark
        and all other fields.
        """
        self.progress = None
        if names is not None:
            self.body = b""
            self.remark = None
            fields = self.ext_fields
            self._ext_fields = {name: fields[name] for name in fields if name in names}
        self.body = self.body_bytes()
        size = getsizeof(self.body) + getsizeof(self.remark) + _BYTES_WITHOUT_CONTENT
        kept = self._ext_fields
        if kept is None:
            return size + getsizeof(self.encoded_fields)
        for name, value in kept.items():
            size += getsizeof(name) + getsizeof(value)
        return size + getsizeof(kept)

    def response(
        self,
        code: int = 0,
        remark: str | None = None,
        ext_fields: dict[str, ExtValue] | None = None,
        body: Buffer | Sequence[Buffer] = b"",
        encoded_fields: bytes | None = None,
    ) -> RemotingCommand:
        """The answer to this request: same opaque, same header form."""
        return RemotingCommand(
            code,
            ext_fields,
            body,
            self.opaque,
            RESPONSE_FLAG,
            remark,
            VERSION_V4_9_8,
            _PYTHON,
            self.serialize_type,
            encoded_fields,
        )


def encode_buffers(command: RemotingCommand) -> list[Buffer]:
    """The frame as a list of buffers, the body's own memory among them.

    Errors: LocalProtocolError when the frame would exceed the 16 MiB that every peer enforces.
    """
    body = command.body
    buffers: list[Buffer]
    if isinstance(body, bytes):  # nearly always; `memoryview` would be looked up by its name
        buffers = [body]
        body_size = len(body)
    elif isinstance(body, (bytearray, memoryview)):
        body_size, buffers = len(body), [body]
    else:
        body_size = sum(map(len, body))
        buffers = list(body)
    is_json = command.serialize_type == _JSON
    head = _json_head(command, body_size) if is_json else _rocketmq_head(command, body_size)
    if len(head) + body_size > FRAME_BYTES_MAX or len(head) > _HEADER_BYTES_MAX:
        raise LocalProtocolError(
            f"frame of {len(head) + body_size} bytes exceeds {FRAME_BYTES_MAX}"
        )
    if not body_size:
        return [head]
    buffers.insert(0, head)
    return buffers


def encode(command: RemotingCommand) -> bytes:
    """The frame as one bytes object."""
    return b"".join(encode_buffers(command))


def decode_frame(frame: Buffer) -> RemotingCommand:
    """Decode one whole frame, length word included.

    Errors: RemoteProtocolError for anything that is not a frame.
    """
    data = frame if isinstance(frame, bytes) else bytes(frame)
    size = len(data)
    if size < 8:
        raise RemoteProtocolError(f"frame of {size} bytes is shorter than its prelude")
    total = int.from_bytes(data[:4], "big")
    if total + 4 != size:
        raise RemoteProtocolError(f"lengths lie: frame {size}, total {total}")
    return decode_at(data, 0, size)


def decode_at(data: bytes, begin: int, end: int) -> RemotingCommand:
    """Decode the frame of `data` that lies between the two; its length word has been looked at.

    A large body is a view of `data`.
    Errors: RemoteProtocolError for anything that is not a frame.
    """
    start = begin + 8
    header_end = start + (data[begin + 5] << 16 | data[begin + 6] << 8 | data[begin + 7])
    if header_end > end:
        raise RemoteProtocolError(f"lengths lie: frame {end - begin}, header {header_end - start}")
    body: Buffer
    if end - header_end <= _COPIED_BODY_BYTES_MAX:
        body = data[header_end:end]
    else:
        body = memoryview(data)[header_end:end]
    serialize_type = data[begin + 4]
    if serialize_type == _ROCKETMQ:
        return _decode_rocketmq(data, start, header_end, body)
    if serialize_type == _JSON:
        return _decode_json(data[start:header_end], body)
    raise RemoteProtocolError(f"unknown header serialization {serialize_type}")


def _json_head(command: RemotingCommand, body_size: int) -> bytes:
    """Return all bytes before the body."""
    remark = command.remark
    encoded = command.encoded_fields
    if encoded is not None and remark is None:
        header = _JSON_HEADER % (
            command.code,
            encoded,
            command.flag,
            _LANGUAGE_BYTES[command.language],
            command.opaque,
            command.version,
        )
    else:
        header = encode_json_header(
            OutgoingJsonHeader(
                command.code,
                # Always an object: the Java client dereferences it without looking (gotcha 6).
                _texts(command.ext_fields),
                command.flag,
                _LANGUAGE_NAMES[command.language],
                command.opaque,
                command.version,
                msgspec.UNSET if remark is None else remark,
            )
        )
    return _PRELUDE.pack(4 + len(header) + body_size, len(header)) + header


def _texts(ext_fields: dict[str, ExtValue]) -> Mapping[str, ExtValue]:
    """The fields with every value a string, as C++ and Go insist on (gotcha 3)."""
    for value in ext_fields.values():
        if not isinstance(value, str):
            break
    else:
        return ext_fields
    return {
        name: value if isinstance(value, str) else ext_text(value)
        for name, value in ext_fields.items()
        if value is not None
    }


def _rocketmq_head(command: RemotingCommand, body_size: int) -> bytes:
    """Return all bytes before the body."""
    code = command.code
    if not -32768 <= code <= 32767:
        raise LocalProtocolError(f"code {code} does not fit a ROCKETMQ header")
    fields = command.encoded_fields
    if fields is None:
        fields = pack_fields(command.ext_fields)
    if command.remark is None:
        size = _FIXED_SIZE + 4 + len(fields)
        return (
            _HEAD.pack(
                4 + size + body_size,
                _ROCKETMQ << 24 | size,
                code,
                command.language,
                command.version,
                command.opaque,
                command.flag,
                0,
                len(fields),
            )
            + fields
        )
    remark = command.remark.encode()
    size = _FIXED_SIZE + len(remark) + 4 + len(fields)
    head = _HEAD_WITH_REMARK.pack(
        4 + size + body_size,
        _ROCKETMQ << 24 | size,
        code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((head, remark, len(fields).to_bytes(4, "big"), fields))


def _decode_json(header: bytes, body: Buffer) -> RemotingCommand:
    try:
        fields: JsonHeader = _decode_header(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"undecodable JSON header: {error}") from None
    version = fields.version
    return RemotingCommand(
        fields.code,
        fields.extFields,
        body,
        fields.opaque,
        fields.flag,
        fields.remark,
        version if isinstance(version, int) else _version_of(version),
        _LANGUAGES.get(fields.language, _OTHER),
        _JSON,
    )


def _version_of(text: int | str) -> int:
    """A version that came as text; 0, the oldest, if it is no ordinal."""
    try:
        number = int(text)
    except ValueError:
        return 0
    return number if 0 <= number <= 0x7FFF else 0


def _decode_rocketmq(data: bytes, start: int, end: int, body: Buffer) -> RemotingCommand:
    if end - start < _FIXED_SIZE + 4:
        raise RemoteProtocolError(f"ROCKETMQ header of {end - start} bytes is too short")
    # Without a remark, which is the rule, the last number is the table's size.
    code, language, version, opaque, flag, remark_size, fields_size = _FIXED.unpack_from(
        data, start
    )
    position = start + _FIXED_SIZE
    remark: str | None = None
    if remark_size:
        remark_at = position
        position += remark_size
        if remark_size < 0 or position > end - 4:
            raise too_long(remark_size)
        remark = text_of(data[remark_at:position])
        fields_size = _LENGTH.unpack_from(data, position)[0]
    position += 4
    if fields_size < 0 or position + fields_size > end:
        raise too_long(fields_size)
    return RemotingCommand(
        code,
        None,
        body,
        opaque,
        flag,
        remark,
        version,
        _LANGUAGES.get(language, _OTHER),
        _ROCKETMQ,
        data[position : position + fields_size],
    )
