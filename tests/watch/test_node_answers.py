"""Answers of one node: read, refused in words, or not to be read at all."""

from __future__ import annotations

import msgpack
import pytest

from trioha.errors import CommandError, RemoteProtocolError
from trioha.watch.node_answers import journal_request, read_journal, read_map
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

ASKED = RemotingCommand(30002)


def test_a_piece_of_a_journal_is_events_in_order() -> None:
    body = {"events": [[7, 1000, "role", {"role": "SLAVE"}]], "next": 8, "end": 9}
    piece = read_journal("a:1", ASKED.response(body=msgpack.packb(body)))
    (event,) = piece.events
    assert (event.sequence, event.name, event.fields) == (7, "role", {"role": "SLAVE"})
    assert (piece.next_sequence, piece.end_sequence) == (8, 9)


def test_a_follower_asks_from_a_number_or_for_the_last_ones() -> None:
    fields = journal_request(from_sequence=3, names=["role", "fenced"], wait_s=1.5).ext_fields
    assert fields == {"from": 3, "names": "role,fenced", "waitMs": 1500}
    assert journal_request(last=5).ext_fields == {"last": 5, "names": "", "waitMs": 0}


def test_a_node_of_another_make_is_told_as_such() -> None:
    refusal = ASKED.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 30002 not…")
    with pytest.raises(CommandError, match="a:1 does not know this question: it is not a trioha"):
        read_map("a:1", refusal)
    with pytest.raises(CommandError, match="keeps no journal"):
        read_map("a:1", ASKED.response(ResponseCode.SYSTEM_ERROR, "this node keeps no journal"))


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", msgpack.packb([1]), msgpack.packb({"events": 1, "next": 1, "end": 1}),
     msgpack.packb({"events": [[1, 2]], "next": 1, "end": 1}), msgpack.packb({"events": []})],
)  # fmt: skip
def test_what_is_no_answer_is_told_and_never_raises_anything_else(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"^a:1: "):
        read_journal("a:1", ASKED.response(body=body))
