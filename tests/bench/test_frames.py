"""Frames put together from pieces, responses read no further than need be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.records import split_batch

from trioha.bench.frames import OPAQUE_BASE, ResponseReader, SendFrame
from trioha.client.message import MessageQueue
from trioha.errors import RemoteProtocolError
from trioha.security.signature import Credentials
from trioha.wire.codes import RequestCode, ResponseCode, SerializeType
from trioha.wire.properties import decode_properties
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

PREFIX = "A" * 24
BORN = b"1700000000000"


def sent(frame: SendFrame, serial: int) -> RemotingCommand:
    pieces: list[bytes] = []
    frame.append_to(pieces, BORN, serial)
    return decode_frame(b"".join(pieces))


def response(slot: int, code: int = 0, form: SerializeType = SerializeType.JSON) -> bytes:
    return encode(
        RemotingCommand(
            code, {"msgId": "X"}, opaque=OPAQUE_BASE + slot, flag=1, serialize_type=form
        )
    )


@pytest.mark.parametrize("form", list(SerializeType))
def test_each_send_is_a_whole_request_with_its_own_id_and_time(form: SerializeType) -> None:
    queue = MessageQueue("T", "a", 3)
    frame = SendFrame(7, queue, b"body", group="G", id_prefix=PREFIX, serialize_type=form)
    for serial in (0, 1, 0x7FFFFFFF):
        command = sent(frame, serial)
        assert (command.code, command.opaque) == (RequestCode.SEND_MESSAGE_V2, OPAQUE_BASE + 7)
        assert command.body_bytes() == b"body"
        assert (command.ext_str("g"), command.ext_int("e")) == (BORN.decode(), 3)
        unique = decode_properties(command.ext_str("i"))["UNIQ_KEY"]
        assert unique == f"{PREFIX}{serial:08X}"


def test_each_message_of_a_batch_has_its_own_id() -> None:
    frame = SendFrame(0, MessageQueue("T", "a", 0), b"body", group="G", id_prefix=PREFIX, batch=3)
    elements = split_batch(sent(frame, 10).body_bytes())
    ids = [decode_properties(bytes(element.properties))["UNIQ_KEY"] for element in elements]
    assert ids == [f"{PREFIX}{serial:08X}" for serial in (10, 11, 12)]


@pytest.mark.parametrize("form", list(SerializeType))
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("prefix", [PREFIX, "0" * 24])
def test_each_send_of_an_account_has_its_own_signature(
    form: SerializeType, batch: int, prefix: str
) -> None:
    queue = MessageQueue("T", "a", 3)
    account = Credentials("account-1", "secret-1")
    frame = SendFrame(
        *(7, queue, b"body"),
        group="G",
        id_prefix=prefix,
        batch=batch,
        serialize_type=form,
        credentials=account,
    )
    plain = SendFrame(
        *(7, queue, b"body"), group="G", id_prefix=prefix, batch=batch, serialize_type=form
    )
    for serial in (0, 1, 0x7FFFFF00):
        command, unsigned = sent(frame, serial), sent(plain, serial)
        assert account.key.has_signed(command)
        del command.ext_fields["AccessKey"], command.ext_fields["Signature"]
        assert command == unsigned


def test_a_body_that_looks_like_a_place_to_fill_is_left_alone() -> None:
    body = b"1111111111111" + f"{PREFIX}{0:08X}".encode()
    frame = SendFrame(0, MessageQueue("T", "a", 0), body, group="G", id_prefix=PREFIX)
    assert sent(frame, 5).body_bytes() == body


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1), st.sampled_from(list(SerializeType)))
def test_responses_are_found_however_they_are_cut(cuts: list[int], form: SerializeType) -> None:
    data = b"".join(response(slot, form=form) for slot in range(5))
    reader = ResponseReader()
    slots: list[int] = []
    position = index = 0
    while position < len(data):
        end = position + cuts[index % len(cuts)]
        slots += reader.slots(data[position:end])
        position, index = end, index + 1
    assert slots == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("form", list(SerializeType))
def test_refusals_are_counted_by_code(form: SerializeType) -> None:
    reader = ResponseReader()
    data = response(0, ResponseCode.SYSTEM_BUSY, form) + response(1, form=form)
    assert reader.slots(data) == [0, 1]
    assert dict(reader.refusals) == {ResponseCode.SYSTEM_BUSY: 1}


def test_headers_in_another_order_are_read_as_well() -> None:
    header = b'{"flag":1,"opaque":100000003,"code":0}'
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    reader = ResponseReader()
    assert reader.slots(frame) == [3]
    assert not reader.refusals


def test_a_request_of_the_broker_is_not_an_answer() -> None:
    push = encode(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, flag=2))
    assert ResponseReader().slots(push) == []


def test_a_length_that_lies_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        ResponseReader().slots(b"\x7f\xff\xff\xff")
