"""Sends as commands."""

from __future__ import annotations

import pytest
from support.stores.records import split_batch

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_batch_command, send_command
from trioha.errors import TriohaError
from trioha.wire.codes import RequestCode
from trioha.wire.properties import decode_properties

QUEUE = MessageQueue("T", "a", 3)


def test_everything_a_message_says_is_in_its_properties() -> None:
    message = Message(
        "T", b"x", "A", ("k1", "k2"), delay_level=3, wait_store_ok=False, properties={"user": "1"}
    )
    command = send_command("G", message, "ID", QUEUE, 99)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    assert decode_properties(command.ext_str("i")) == {
        "UNIQ_KEY": "ID",
        "user": "1",
        "KEYS": "k1 k2",
        "TAGS": "A",
        "DELAY": "3",
        "WAIT": "false",
    }
    names = [command.ext_str(name) for name in "abcdegm"]
    assert names == ["G", "T", "TBW102", "4", "3", "99", "false"]


def test_one_key_may_be_given_as_text() -> None:
    assert Message("T", b"", keys="k").keys == ("k",)


def test_a_batch_carries_each_messages_own_properties() -> None:
    messages = [Message("T", b"a", "A", flag=5), Message("T", b"b")]
    command = send_batch_command("G", messages, ["1", "2"], QUEUE, 99)
    assert (command.code, command.ext_str("m")) == (RequestCode.SEND_BATCH_MESSAGE, "true")
    first, second = split_batch(command.body_bytes())
    assert (bytes(first.body), first.flag, bytes(second.body)) == (b"a", 5, b"b")
    assert decode_properties(bytes(first.properties)) == {"UNIQ_KEY": "1", "TAGS": "A"}


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x02c\x01d"}])
def test_a_property_cannot_smuggle_another(properties: dict[str, str]) -> None:
    with pytest.raises(TriohaError, match="separate properties"):
        send_command("G", Message("T", b"", properties=properties), "ID", QUEUE, 0)
