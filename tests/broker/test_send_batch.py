"""Batches of more messages than one turn stores."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from support.handlers.sending import ProduceSide, at, send_v2

from trioha.broker import send_batch
from trioha.broker.send_batch import BatchProgress
from trioha.config import BrokerConfig, BrokerRole
from trioha.wire.batch import BatchElement, encode_batch
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand

COUNT = 10
SLICE = 4


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_batch, "SLICE_MESSAGES", SLICE)
    monkeypatch.setattr(send_batch, "CHECKED_MESSAGES", SLICE)
    monkeypatch.setattr(send_batch, "_SMALL_BYTES", SLICE * 22)


def body_of(*others: bytes, count: int = COUNT) -> bytes:
    elements = [BatchElement(0, b"%d" % number, b"") for number in range(count)]
    return encode_batch(elements + [BatchElement(0, b"x", other) for other in others])


def batch(body: bytes, sys_flag: str = "0") -> RemotingCommand:
    return send_v2(body=body, properties="", m="true", f=sys_flag)


def send(
    side: ProduceSide, request: RemotingCommand, between: Callable[[int], None] | None = None
) -> RemotingCommand:
    """Handle a request turn by turn; `between` is called with the number of each turn."""
    channel = side.channel
    for turn in range(100):
        response = side.sender.send(channel, request, at())
        if response is not None:
            assert not channel.unfinished
            return response
        if not channel.unfinished:
            assert channel.sent, "neither answered nor going on"
            return channel.sent.pop()
        assert channel.unfinished.pop() is request
        if between is not None:
            between(turn)
    raise AssertionError("it never ends")


def stored(side: ProduceSide) -> list[bytes]:
    return [bytes(message.body) for message, _ in side.store.messages]


NUMBERS = [b"%d" % number for number in range(COUNT)]


def test_all_of_it_is_stored_in_order_and_answered_once() -> None:
    side = ProduceSide()
    side.send(send_v2())
    turns: list[int] = []
    response = send(side, batch(body_of()), turns.append)
    assert len(turns) > COUNT // SLICE
    assert response.code == 0
    assert stored(side)[1:] == NUMBERS
    ids = response.ext_str("msgId").split(",")
    assert [int(one[16:], 16) for one in ids] == [
        result.phy_offset for _, result in side.store.messages
    ][1:]
    assert response.ext_fields["queueOffset"] == "1"


def test_a_slice_ends_sooner_when_its_properties_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_batch, "SLICE_MESSAGES", COUNT)
    monkeypatch.setattr(send_batch, "SLICE_PROPERTIES_BYTES", 100)
    side = ProduceSide()
    counts: list[int] = []
    own = b"A\x01" + b"b" * 38
    response = send(side, batch(body_of(*[own] * 5)), lambda _: counts.append(len(stored(side))))
    assert response.code == 0
    assert stored(side) == [*NUMBERS, *[b"x"] * 5]
    assert max(later - earlier for earlier, later in pairwise([*counts, 15])) < 15


def test_nothing_is_stored_before_all_lengths_are_right() -> None:
    side = ProduceSide()
    response = send(side, batch(body_of()[:-1]))
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert stored(side) == []


def test_a_later_slice_that_is_illegal_says_what_is_stored() -> None:
    side = ProduceSide()
    response = send(side, batch(body_of(b"DELAY\x013")))
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert "first 8 messages of the batch are stored, then: the message is" in str(response.remark)
    assert stored(side) == NUMBERS[:8]


def test_a_slice_that_the_store_does_not_take_says_what_is_stored() -> None:
    side = ProduceSide()

    def pause(_: int) -> None:
        if len(stored(side)) == SLICE:
            side.pipeline.role = BrokerRole.SLAVE

    response = send(side, batch(body_of()), pause)
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert str(response.remark).startswith("the first 4 messages of the batch are stored, then: ")
    assert stored(side) == NUMBERS[:4]


def test_messages_stored_in_an_earlier_role_do_not_count() -> None:
    """The log may have been cut meanwhile: an acknowledged batch has all its messages behind it."""
    side = ProduceSide()
    was_cut = False

    def change_role(_: int) -> None:
        nonlocal was_cut
        if len(stored(side)) == SLICE and not was_cut:
            was_cut = True
            side.pipeline.roles_taken += 2

    response = send(side, batch(body_of()), change_role)
    assert was_cut
    assert response.code == 0
    assert stored(side) == NUMBERS[:SLICE] + NUMBERS
    assert len(response.ext_str("msgId").split(",")) == COUNT
    assert response.ext_fields["queueOffset"] == str(SLICE)


def test_a_batch_that_is_parked_begins_anew() -> None:
    side = ProduceSide()
    request = batch(body_of())

    def park(_: int) -> None:
        if len(stored(side)) == SLICE and not parked:
            parked.append(request.detach())

    parked: list[int] = []
    assert send(side, request, park).code == 0
    assert parked
    assert stored(side)[SLICE:] == NUMBERS


def test_it_waits_for_a_slave_that_has_all_of_it() -> None:
    side = ProduceSide(BrokerConfig(broker_role=BrokerRole.SYNC_MASTER))

    def acknowledge(_: int) -> None:
        side.replicas.push2slave_max_offset = side.store.max_phy_offset
        side.pipeline.release_acknowledged(0)

    request = batch(body_of())
    while side.sender.send(side.channel, request, at()) is None and side.channel.unfinished:
        side.channel.unfinished.clear()
        assert not side.channel.sent
        acknowledge(0)
    assert not side.channel.sent
    acknowledge(0)
    (response,) = side.channel.sent
    assert response.code == 0


def test_a_compressed_batch_goes_on_inflated() -> None:
    side = ProduceSide()
    response = send(side, batch(zlib.compress(body_of()), "1"))
    assert response.code == 0
    assert stored(side) == NUMBERS
    assert side.store.messages[-1][0].sys_flag == 0


def test_what_it_keeps_is_counted() -> None:
    side = ProduceSide()
    request = batch(body_of())
    assert side.sender.send(side.channel, request, at()) is None
    assert isinstance(request.progress, BatchProgress)
    assert request.progress.size_bytes >= len(request.body)
