"""Remoting frames: encode and decode (RemotingCommand.java, RocketMQSerializable.java).

A frame is ``total i32 | type u8 + header length u24 | header | body``; `total` counts what follows
it. The header is JSON (type 0) or ROCKETMQ's packed form (type 1); a response uses the form of its
request. We accept leniently (numbers and booleans in extFields, blanks after the JSON, unknown
languages) and send exactly: compact JSON, every ext value a string, absent fields left out.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Annotated

import attrs
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

Buffer = bytes | bytearray | memoryview
ExtValue = str | int | float | bool | None

_PRELUDE = struct.Struct(">II")
_ROCKETMQ_FIXED = struct.Struct(">hBhiii")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_LANGUAGE_BY_NAME: dict[object, LanguageCode] = {code.name: code for code in LanguageCode}
_LANGUAGE_BY_NAME |= {int(code): code for code in LanguageCode}
_LANGUAGE_NAMES = {int(code): code.name for code in LanguageCode}
_HEADER_BYTES_MAX = 0xFFFFFF
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
# Looking a member up in its enum costs more than the comparison it is for.
_JSON = int(SerializeType.JSON)
_ROCKETMQ = int(SerializeType.ROCKETMQ)
_OTHER = LanguageCode.OTHER
_PYTHON = LanguageCode.PYTHON

# Java's int. A number beyond it could be read, but not be echoed in either header form.
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _JsonHeader(msgspec.Struct):
    code: _Int32 = 0
    language: str | int | None = None
    version: _Int32 | str = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    extFields: dict[str, ExtValue] | None = None


class _OutgoingJsonHeader(msgspec.Struct):
    code: int
    extFields: Mapping[str, ExtValue]
    flag: int
    language: str
    opaque: int
    version: int
    remark: str | msgspec.UnsetType = msgspec.UNSET
    serializeTypeCurrentRPC: str = "JSON"


_decode_json = msgspec.json.Decoder(_JsonHeader).decode
_encode_json = msgspec.json.Encoder().encode


@attrs.define(slots=True)
class RemotingCommand:
    """One request or response.

    `ext_fields` holds JSON scalars as they came; read them with `ext_str`, `ext_int`, `ext_bool`.
    On sending, values are stringified (booleans as ``true``/``false``, None left out).
    `body` may be a sequence of buffers: they go to the socket without being joined.
    """

    code: int
    ext_fields: dict[str, ExtValue] = attrs.Factory(dict)
    body: Buffer | Sequence[Buffer] = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    version: int = VERSION_V4_9_8
    language: LanguageCode = LanguageCode.PYTHON
    serialize_type: int = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & ONEWAY_FLAG)

    def ext_str(self, name: str, default: str | None = None) -> str:
        """The field as text. Errors: RemoteProtocolError if absent and no default is given."""
        value = self.ext_fields.get(name)
        if value.__class__ is str:
            return value
        if value is None:
            if default is None:
                raise RemoteProtocolError(f"request {self.code}: field {name} is missing")
            return default
        if value is True or value is False:
            return "true" if value else "false"
        return str(value)

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
        if value.__class__ is str:
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

    def response(
        self,
        code: int = 0,
        remark: str | None = None,
        ext_fields: dict[str, ExtValue] | None = None,
        body: Buffer | Sequence[Buffer] = b"",
    ) -> RemotingCommand:
        """The answer to this request: same opaque, same header form."""
        return RemotingCommand(
            code,
            {} if ext_fields is None else ext_fields,
            body,
            self.opaque,
            RESPONSE_FLAG,
            remark,
            VERSION_V4_9_8,
            _PYTHON,
            self.serialize_type,
        )


def encode_buffers(command: RemotingCommand) -> list[Buffer]:
    """The frame as a list of buffers, the body's own memory among them.

    Errors: LocalProtocolError when the frame would exceed the 16 MiB that every peer enforces.
    """
    encode_header = _json_header if command.serialize_type == _JSON else _rocketmq_header
    header = encode_header(command)
    body = command.body
    if isinstance(body, (bytes, bytearray, memoryview)):
        body_size = len(body)
        buffers: list[Buffer] = [body] if body_size else []
    else:
        body_size = sum(map(len, body))
        buffers = list(body)
    total = 4 + len(header) + body_size
    if total + 4 > FRAME_BYTES_MAX or len(header) > _HEADER_BYTES_MAX:
        raise LocalProtocolError(f"frame of {total + 4} bytes exceeds {FRAME_BYTES_MAX}")
    prelude = _PRELUDE.pack(total, command.serialize_type << 24 | len(header))
    buffers.insert(0, prelude + header)
    return buffers


def encode(command: RemotingCommand) -> bytes:
    """The frame as one bytes object."""
    return b"".join(encode_buffers(command))


def decode_frame(frame: Buffer) -> RemotingCommand:
    """Decode one whole frame, length word included. The body is a view into `frame`.

    Errors: RemoteProtocolError for anything that is not a frame.
    """
    view = memoryview(frame)
    if len(view) < 8:
        raise RemoteProtocolError(f"frame of {len(view)} bytes is shorter than its prelude")
    total, word = _PRELUDE.unpack_from(view)
    header_end = 8 + (word & 0xFFFFFF)
    if total + 4 != len(view) or header_end > len(view):
        raise RemoteProtocolError(
            f"lengths lie: frame {len(view)}, total {total}, header {word & 0xFFFFFF}"
        )
    serialize_type = word >> 24
    if serialize_type == _JSON:
        return _decode_json_command(view[8:header_end], view[header_end:])
    if serialize_type == _ROCKETMQ:
        return _decode_rocketmq_command(bytes(view[8:header_end]), view[header_end:])
    raise RemoteProtocolError(f"unknown header serialization {serialize_type}")


def _ext_text(value: ExtValue) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


def _json_header(command: RemotingCommand) -> bytes:
    remark = command.remark
    return _encode_json(
        _OutgoingJsonHeader(
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


def _texts(ext_fields: Mapping[str, ExtValue]) -> Mapping[str, ExtValue]:
    """The fields with every value a string, as C++ and Go insist on (gotcha 3)."""
    for value in ext_fields.values():
        if value.__class__ is not str:
            break
    else:
        return ext_fields
    return {
        name: value if value.__class__ is str else _ext_text(value)
        for name, value in ext_fields.items()
        if value is not None
    }


def _rocketmq_header(command: RemotingCommand) -> bytes:
    if not -32768 <= command.code <= 32767:
        raise LocalProtocolError(f"code {command.code} does not fit a ROCKETMQ header")
    remark = b"" if command.remark is None else command.remark.encode()
    parts = []
    for name, value in command.ext_fields.items():
        if value is None:
            continue
        key = name.encode()
        text = _ext_text(value).encode()
        parts.append(_I16.pack(len(key)) + key + _I32.pack(len(text)) + text)
    ext = b"".join(parts)
    fixed = _ROCKETMQ_FIXED.pack(
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        len(remark),
    )
    return b"".join((fixed, remark, _I32.pack(len(ext)), ext))


def _decode_json_command(header: memoryview, body: memoryview) -> RemotingCommand:
    try:
        fields = _decode_json(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"undecodable JSON header: {error}") from None
    version = fields.version
    return RemotingCommand(
        fields.code,
        fields.extFields or {},
        body,
        fields.opaque,
        fields.flag,
        fields.remark,
        version if version.__class__ is int else _version_of(version),
        _LANGUAGE_BY_NAME.get(fields.language, _OTHER),
        _JSON,
    )


def _version_of(text: int | str) -> int:
    """A version that came as text; 0, the oldest, if it is no ordinal."""
    try:
        number = int(text)
    except ValueError:
        return 0
    return number if 0 <= number <= 0x7FFF else 0


def _decode_rocketmq_command(header: bytes, body: memoryview) -> RemotingCommand:
    try:
        code, language, version, opaque, flag, remark_size = _ROCKETMQ_FIXED.unpack_from(header)
        position = _ROCKETMQ_FIXED.size
        remark, position = _text(header, position, remark_size)
        (ext_size,) = _I32.unpack_from(header, position)
        position += 4
        end = position + ext_size
        if ext_size < 0 or end > len(header):
            raise RemoteProtocolError(f"ext fields of {ext_size} bytes exceed the header")
        ext_fields: dict[str, ExtValue] = {}
        while position < end:
            (size,) = _I16.unpack_from(header, position)
            name, position = _text(header, position + 2, size)
            (size,) = _I32.unpack_from(header, position)
            value, position = _text(header, position + 4, size)
            # A zero-length string decodes to null in Java.
            ext_fields[name] = value or None
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"undecodable ROCKETMQ header: {error}") from None
    return RemotingCommand(
        code,
        ext_fields,
        body,
        opaque,
        flag,
        remark or None,
        version,
        _LANGUAGE_BY_NAME.get(language, _OTHER),
        _ROCKETMQ,
    )


def _text(header: bytes, start: int, size: int) -> tuple[str, int]:
    """The text of `size` bytes at `start`, and where it ends."""
    end = start + size
    if size < 0 or end > len(header):
        raise RemoteProtocolError(f"string of {size} bytes exceeds the header")
    return header[start:end].decode(), end
