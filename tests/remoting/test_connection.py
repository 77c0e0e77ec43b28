from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import LocalProtocolError, RemoteProtocolError
from trioha.remoting.connection import RemotingConnection
from trioha.wire.codes import FRAME_BYTES_MAX, RESPONSE_FLAG
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import RemotingCommand, encode


def drain(connection: RemotingConnection) -> list[RemotingCommand]:
    commands = []
    while (command := connection.next_command()) is not NEED_DATA:
        commands.append(command)
    return commands


def test_a_frame_is_understood_byte_by_byte() -> None:
    connection = RemotingConnection()
    frame = encode(RemotingCommand(10, {"topic": "T"}, b"hello", opaque=7))
    received: list[RemotingCommand] = []
    for index in range(len(frame)):
        assert not received
        connection.receive_data(frame[index : index + 1])
        received += drain(connection)
    assert [command.opaque for command in received] == [7]
    assert received[0].body_bytes() == b"hello"
    assert not connection.mid_frame


@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 400), min_size=1, max_size=40),
)
def test_frames_arrive_whole_and_in_order_however_they_are_cut(
    sizes: list[int], cuts: list[int]
) -> None:
    stream = b"".join(
        encode(RemotingCommand(10, {}, bytes(size), opaque=index))
        for index, size in enumerate(sizes)
    )
    connection = RemotingConnection()
    received = []
    position = 0
    for turn in range(len(stream)):
        if position >= len(stream):
            break
        piece = stream[position : position + cuts[turn % len(cuts)]]
        position += len(piece)
        connection.receive_data(piece)
        received += drain(connection)
    assert [command.opaque for command in received] == list(range(len(sizes)))
    assert [len(command.body_bytes()) for command in received] == sizes


@pytest.mark.parametrize("total", [0, 3, FRAME_BYTES_MAX - 3, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_lying_length_is_refused_before_anything_is_kept(total: int) -> None:
    connection = RemotingConnection()
    connection.receive_data(struct.pack(">I", total) + b"xxxx")
    with pytest.raises(RemoteProtocolError, match="frame length"):
        connection.next_command()
    assert connection.statistics().unfinished_bytes == 0


def test_a_header_longer_than_its_frame_is_refused() -> None:
    connection = RemotingConnection()
    connection.receive_data(struct.pack(">II", 8, 400) + b"{}{}")
    with pytest.raises(RemoteProtocolError, match="lengths lie"):
        connection.next_command()


def test_a_tls_hello_is_named_as_such() -> None:
    connection = RemotingConnection()
    connection.receive_data(bytes.fromhex("160301020001000103"))
    with pytest.raises(RemoteProtocolError, match="TLS"):
        connection.next_command()


def test_responses_find_their_requests_and_late_ones_are_dropped() -> None:
    connection = RemotingConnection()
    answers: list[RemotingCommand | None] = []
    first, second = RemotingCommand(34), RemotingCommand(34)
    connection.expect_response(first, answers.append)
    connection.expect_response(second, answers.append)
    assert first.opaque != second.opaque
    connection.forget(first.opaque)
    connection.response_received(RemotingCommand(0, opaque=first.opaque, flag=RESPONSE_FLAG))
    assert answers == []
    connection.response_received(RemotingCommand(0, opaque=second.opaque, flag=RESPONSE_FLAG))
    assert len(answers) == 1
    assert connection.statistics().requests_pending == 0


def test_when_the_connection_ends_everybody_who_waits_is_told() -> None:
    connection = RemotingConnection()
    answers: list[RemotingCommand | None] = []
    connection.expect_response(RemotingCommand(34), answers.append)
    connection.fail_pending()
    connection.fail_pending()
    assert answers == [None]


def test_the_table_of_requests_is_bounded() -> None:
    connection = RemotingConnection(pending_max=2)
    for _ in range(2):
        connection.expect_response(RemotingCommand(34), lambda _: None)
    with pytest.raises(LocalProtocolError, match="already wait"):
        connection.expect_response(RemotingCommand(34), lambda _: None)
