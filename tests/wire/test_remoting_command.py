from __future__ import annotations

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.wire.codes import FRAME_BYTES_MAX, LanguageCode, SerializeType
from trioha.wire.remoting_command import (
    ExtValue,
    RemotingCommand,
    decode_frame,
    encode,
    encode_buffers,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
SOME_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@st.composite
def commands(draw: st.DrawFn) -> RemotingCommand:
    # ROCKETMQ's form cannot tell an empty text from none.
    ext_fields: dict[str, ExtValue] = {**draw(st.dictionaries(TEXT, SOME_TEXT, max_size=4))}
    return RemotingCommand(
        draw(st.integers(-(2**15), 2**15 - 1)),
        ext_fields,
        draw(st.binary(max_size=40)),
        draw(INT32),
        draw(INT32),
        draw(st.none() | SOME_TEXT),
        draw(st.integers(0, 2**15 - 1)),
        draw(st.sampled_from(LanguageCode)),
        draw(st.sampled_from(SerializeType)),
    )


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def decode_header(**fields: object) -> RemotingCommand:
    return decode_frame(json_frame(json.dumps(fields).encode()))


@given(commands())
def test_commands_survive_the_round_trip(command: RemotingCommand) -> None:
    decoded = decode_frame(encode(command))
    assert decoded.body_bytes() == command.body
    decoded.body = command.body
    assert decoded == command


@given(commands())
def test_a_frame_is_its_buffers_joined(command: RemotingCommand) -> None:
    body = command.body_bytes()
    whole = encode(command)
    command.body = [memoryview(body)[:3], memoryview(body)[3:]]
    assert b"".join(encode_buffers(command)) == whole
    assert command.body_bytes() == body


def test_the_body_goes_out_uncopied() -> None:
    body = memoryview(b"hello")
    assert any(buffer is body for buffer in encode_buffers(RemotingCommand(0, body=[body])))


def test_a_json_header_looks_as_clients_expect_it() -> None:
    request = RemotingCommand(105, {"topic": "T"}, opaque=7)
    response = request.response(0, None, {"queueId": 1, "isOn": True, "none": None, "msgId": "A"})
    frame = encode(response)
    assert json.loads(frame[8:]) == {
        "code": 0,
        "extFields": {"queueId": "1", "isOn": "true", "msgId": "A"},
        "flag": 1,
        "language": "PYTHON",
        "opaque": 7,
        "serializeTypeCurrentRPC": "JSON",
        "version": 409,
    }
    assert b" " not in frame


def test_a_response_always_has_ext_fields() -> None:
    """Gotcha 6: the Java client dereferences them unconditionally."""
    assert json.loads(encode(RemotingCommand(11).response(1, "no"))[8:])["extFields"] == {}


def test_control_characters_are_escaped() -> None:
    frame = encode(RemotingCommand(0, {"i": "a\x01b\x02"}))
    assert b"a\\u0001b\\u0002" in frame


def test_a_rocketmq_header_is_packed_as_java_packs_it() -> None:
    command = RemotingCommand(
        10, {"a": "bc"}, b"B", 5, 0, "r", 409, LanguageCode.JAVA, SerializeType.ROCKETMQ
    )
    header = "000a 00 0199 00000005 00000000 00000001 72 00000009 0001 61 00000002 6263"
    data = bytes.fromhex(header)
    assert encode(command) == struct.pack(">II", 4 + len(data) + 1, 1 << 24 | len(data)) + data + (
        b"B"
    )


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_a_response_takes_the_form_of_its_request(serialize_type: SerializeType) -> None:
    request = RemotingCommand(105, opaque=9, serialize_type=serialize_type)
    response = request.response()
    assert response.is_response
    assert (response.opaque, response.serialize_type) == (9, serialize_type)
    assert encode(response)[4] == serialize_type


@pytest.mark.parametrize("tail", [b" ", b"\n", b"\r\n\t "])
def test_blanks_behind_the_header_are_harmless(tail: bytes) -> None:
    command = decode_frame(json_frame(b'{"code":34,"opaque":1}' + tail, b"body"))
    assert (command.code, command.body_bytes()) == (34, b"body")


def test_ext_values_may_be_any_scalar() -> None:
    command = decode_header(
        code=10, extFields={"n": 5, "f": 1.5, "t": True, "z": None, "s": "7", "e": ""}
    )
    assert command.ext_int("n") == 5
    assert command.ext_str("n") == "5"
    assert command.ext_int("s") == 7
    assert command.ext_int("f") == 1
    assert command.ext_bool("t")
    assert command.ext_str("t") == "true"
    assert command.ext_str("z", "") == ""
    assert command.ext_int("z", 3) == 3
    assert command.ext_int("e", 4) == 4
    assert command.ext_str("e") == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1", True),
        ("0", False),
        ("true", True),
        ("True", True),
        ("TRUE", True),
        ("false", False),
        ("", False),
        (1, True),
        (0, False),
        (None, False),
    ],
)
def test_booleans_come_in_every_clients_spelling(value: ExtValue, expected: bool) -> None:
    assert RemotingCommand(0, {"b": value}).ext_bool("b") is expected


@pytest.mark.parametrize("value", ["x", "1.5", "9223372036854775808", 2**63, "9" * 5000, 1e300])
def test_a_field_that_is_no_long_is_refused(value: ExtValue) -> None:
    with pytest.raises(RemoteProtocolError, match="field n"):
        RemotingCommand(10, {"n": value}).ext_int("n")


def test_a_missing_field_is_named() -> None:
    with pytest.raises(RemoteProtocolError, match="field topic is missing"):
        RemotingCommand(105).ext_str("topic")
    with pytest.raises(RemoteProtocolError, match="field queueId is missing"):
        RemotingCommand(105).ext_int("queueId")


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("CPP", LanguageCode.CPP),
        (9, LanguageCode.GO),
        ("KLINGON", LanguageCode.OTHER),
        (99, LanguageCode.OTHER),
        (None, LanguageCode.OTHER),
    ],
)
def test_a_language_is_a_name_or_an_ordinal(language: object, expected: LanguageCode) -> None:
    assert decode_header(code=1, language=language).language is expected


@pytest.mark.parametrize(("version", "expected"), [(317, 317), ("317", 317), ("x", 0), ("-1", 0)])
def test_a_version_may_be_text(version: object, expected: int) -> None:
    assert decode_header(code=1, version=version).version == expected


def test_unknown_header_keys_are_ignored_and_the_last_duplicate_counts() -> None:
    command = decode_frame(json_frame(b'{"code":1,"code":2,"x":{"y":[1]},"remark":null}'))
    assert (command.code, command.remark) == (2, None)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"code":"x"}',
        b'{"code":NaN}',
        b'{"code":1e999}',
        b'{"code":99999999999}',
        b'{"opaque":2147483648}',
        b'{"opaque":' + b"9" * 5000 + b"}",
        b'{"extFields":[]}',
        b'{"extFields":{"a":{}}}',
        b'{"remark":5}',
        b'{"remark":"\xff"}',
        b'{"remark":"\\ud800"}',
        b'{"code":1} x',
        b'{"x":' + b"[" * 100_000,
        b'{"x":' + b'{"x":' * 100_000,
    ],
)
def test_a_hostile_json_header_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_frame(json_frame(header))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "0001",
        # Remark, ext and string lengths that are negative or beyond the header.
        "000a 00 0199 00000005 00000000 ffffffff 00000000",
        "000a 00 0199 00000005 00000000 7fffffff 00000000",
        "000a 00 0199 00000005 00000000 00000000 ffffffff",
        "000a 00 0199 00000005 00000000 00000000 7fffffff",
        "000a 00 0199 00000005 00000000 00000000 00000004 ffff 0000",
        "000a 00 0199 00000005 00000000 00000000 00000007 0001 61 ffffffff",
        "000a 00 0199 00000005 00000000 00000000 00000007 0001 61 00000001",
        "000a 00 0199 00000005 00000000 00000000 00000003 0001 61",
        "000a 00 0199 00000005 00000000 00000001 ff 00000000",
    ],
)
def test_a_hostile_rocketmq_header_is_refused(header: str) -> None:
    data = bytes.fromhex(header)
    frame = struct.pack(">II", 4 + len(data), 1 << 24 | len(data)) + data
    with pytest.raises(RemoteProtocolError):
        # The table is taken apart when it is asked for.
        assert decode_frame(frame).ext_fields


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0\4",
        struct.pack(">II", 4, 1),
        struct.pack(">II", 5, 0),
        struct.pack(">II", 3, 0) + b"x",
        struct.pack(">II", 4, 2 << 24),
        struct.pack(">II", 0xFFFFFFFF, 0xFFFFFFFF),
    ],
)
def test_lying_lengths_are_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_frame(frame)


def test_a_frame_with_a_byte_more_or_less_than_it_says_is_refused() -> None:
    frame = json_frame(b'{"code":1}', b"body")
    assert decode_frame(frame).body_bytes() == b"body"
    for lying in (frame + b"!", frame[:-1]):
        with pytest.raises(RemoteProtocolError, match="lengths lie"):
            decode_frame(lying)


@given(commands(), st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=4))
def test_a_damaged_frame_is_read_or_refused_and_can_be_answered(
    command: RemotingCommand, damages: list[tuple[int, int]]
) -> None:
    frame = bytearray(encode(command))
    for at, mask in damages:
        frame[at % len(frame)] ^= mask
    with suppress(RemoteProtocolError):
        answered(decode_frame(frame))


@given(st.binary(max_size=80), st.sampled_from([0, 1, 2]))
def test_any_header_is_read_or_refused_and_can_be_answered(header: bytes, kind: int) -> None:
    frame = struct.pack(">II", 4 + len(header), kind << 24 | len(header)) + header
    with suppress(RemoteProtocolError):
        answered(decode_frame(frame))
    with suppress(RemoteProtocolError):
        decode_frame(header)


def answered(request: RemotingCommand) -> None:
    """Answer it as handlers do: with its own fields read and echoed."""
    for name in request.ext_fields:
        request.ext_str(name, "")
        request.ext_bool(name)
        with suppress(RemoteProtocolError):
            request.ext_int(name, 0)
    encode(request.response(0, request.remark, request.ext_fields))


def test_a_frame_beyond_the_limit_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="exceeds"):
        encode(RemotingCommand(0, body=bytes(FRAME_BYTES_MAX)))


@pytest.mark.parametrize("code", [-32769, 32768])
def test_a_code_beyond_a_short_has_no_rocketmq_form(code: int) -> None:
    with pytest.raises(LocalProtocolError, match="does not fit"):
        encode(RemotingCommand(code, serialize_type=SerializeType.ROCKETMQ))
