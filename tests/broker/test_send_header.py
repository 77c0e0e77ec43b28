from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from trioha.broker.send_header import SendHeader, read_packed, read_send_header
from trioha.errors import RemoteProtocolError
from trioha.wire.codes import RequestCode
from trioha.wire.packed_fields import pack_fields
from trioha.wire.remoting_command import RemotingCommand

NUMBERS = ["0", "-1", "1x", " 7", "2147483648", "9" * 19]
TEXT = st.sampled_from(["", "T", "true", "false", "ü", *NUMBERS])
NAMES = st.sampled_from([*"abcdefghijklm", "AccessKey", "bb", "ü", ""])
FIELDS = st.dictionaries(NAMES, TEXT | st.integers(0, 2**40).map(str))
USUAL = {"b": "T", "e": "1", "f": "0", "g": "17", "h": "0", "i": "k\x01v", "j": "2", "m": "true"}


def parts(header: SendHeader) -> tuple[object, ...]:
    return (
        header.topic,
        header.queue_id,
        header.sys_flag,
        header.born_timestamp,
        header.flag,
        header.properties,
        header.reconsume_times,
        header.is_batch,
    )


@given(FIELDS, st.booleans(), FIELDS, st.booleans())
@example({}, True, {}, False)
@example({"a": "group"}, True, {"Signature": "s"}, True)
def test_a_packed_header_reads_like_its_fields(
    fields: dict[str, str], is_usual: bool, more: dict[str, str], is_twice: bool
) -> None:
    """Java's client writes the whole table twice when it signs."""
    texts = {**USUAL, **fields} if is_usual else fields
    table = pack_fields(dict(sorted(texts.items())))
    packed = read_packed(table * (1 + is_twice) + pack_fields(more))
    texts = {**texts, **more}
    if packed is None:
        return
    # An empty text is null in packed form.
    request = RemotingCommand(
        RequestCode.SEND_MESSAGE_V2, {name: text for name, text in texts.items() if text}
    )
    assert parts(packed) == parts(read_send_header(request))


def test_the_usual_header_takes_the_short_way() -> None:
    table = pack_fields({"a": "group", "c": "TBW102", "d": "4", **USUAL, "k": "false"})
    signed = table + table + pack_fields({"Signature": "s", "AccessKey": "k"})
    for data in (table, signed):
        header = read_packed(data)
        assert header is not None
        assert parts(header) == ("T", 1, 0, 17, 0, b"k\x01v", 2, True)


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_bytes_that_are_no_table_are_left_to_the_other_way(
    tail: bytes, at: int, value: int
) -> None:
    data = bytearray(pack_fields({**USUAL}) + tail)
    data[at % len(data)] = value
    header = read_packed(bytes(data))
    request = RemotingCommand(
        RequestCode.SEND_MESSAGE_V2, serialize_type=1, encoded_fields=bytes(data)
    )
    try:
        expected = read_send_header(request)
    except RemoteProtocolError:
        # Fields that we do not read may hold anything.
        return
    if header is not None:
        assert parts(header) == parts(expected)
