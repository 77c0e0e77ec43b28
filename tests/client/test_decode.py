"""Records become messages."""

from __future__ import annotations

import zlib

import pytest
from support.fakes.client_messages import QUEUE, received, record

from trioha.client.decode import received_messages
from trioha.client.message import MessageQueue
from trioha.errors import RemoteProtocolError
from trioha.wire.codes import SysFlag

_LZ4 = 1 << 8


def test_what_the_sender_gave_is_there() -> None:
    message = received(b"hi", b"TAGS\x01A\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ABC\x02user\x011")
    assert (message.body, message.tags, message.keys) == (b"hi", "A", ("k1", "k2"))
    assert message.msg_id == "ABC"
    assert message.properties["user"] == "1"


def test_without_a_unique_key_the_offset_id_is_the_id() -> None:
    message = received(queue_offset=7)
    assert message.msg_id == message.offset_msg_id == "7F00000100002A9F0000000000001B58"


def test_a_redelivered_message_shows_its_original_topic() -> None:
    message = received(properties=b"RETRY_TOPIC\x01T", topic="%RETRY%G")
    assert message.topic == "T"


def test_only_the_retry_topic_is_renamed() -> None:
    assert received(properties=b"RETRY_TOPIC\x01X").topic == "T"


def test_zlib_bodies_are_inflated() -> None:
    message = received(zlib.compress(b"long" * 100), sys_flag=SysFlag.COMPRESSED)
    assert message.body == b"long" * 100
    assert not message.is_compressed


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [
        (b"not zlib", SysFlag.COMPRESSED),
        (zlib.compress(b"x" * 100)[:-6], SysFlag.COMPRESSED),
        (b"lz4 says", SysFlag.COMPRESSED | _LZ4),
    ],
)
def test_a_body_that_cannot_be_inflated_is_handed_over_as_stored(
    body: bytes, sys_flag: int
) -> None:
    message = received(body, sys_flag=sys_flag)
    assert message.body == body
    assert message.is_compressed


def test_a_bomb_is_not_inflated() -> None:
    bomb = zlib.compress(bytes(65 << 20), 9)
    assert received(bomb, sys_flag=SysFlag.COMPRESSED).is_compressed


def test_a_queried_message_names_its_own_queue() -> None:
    assert received(queue=None).queue == MessageQueue("T", "", 0)


def test_several_records_come_in_order() -> None:
    data = record(b"a", queue_offset=0) + record(b"b", queue_offset=1)
    assert [message.body for message in received_messages(data, QUEUE)] == [b"a", b"b"]


def test_anything_but_whole_records_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        received_messages(record()[:-1], QUEUE)
