from __future__ import annotations

import pytest
from support.handlers.sending import FakeChannel

from trioha.broker.parked_requests import CHANGES, SENDS, ParkedRequests
from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Instant
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

NOW = Instant(0, 0)


def request(body: bytes = b"", opaque: int = 0) -> RemotingCommand:
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, body=body, opaque=opaque)


def test_they_come_out_in_the_order_they_went_in_without_those_whose_client_has_gone() -> None:
    parked, gone, here = ParkedRequests(), FakeChannel(), FakeChannel()
    for opaque, channel in enumerate([here, gone, here]):
        parked.park(channel, request(opaque=opaque), NOW)
    gone.closed = True
    taken: list[tuple[Channel, int]] = []
    assert parked.take(lambda channel, command: taken.append((channel, command.opaque))) == 2
    assert taken == [(here, 0), (here, 2)]
    assert len(parked) == 0


@pytest.mark.parametrize("parked", [ParkedRequests(count_max=2), ParkedRequests(bytes_max=2100)])
def test_beyond_the_limit_clients_are_told_to_try_again(parked: ParkedRequests) -> None:
    channel = FakeChannel()
    parked.park(channel, request(), NOW)
    parked.park(channel, request(b"x" * 50), NOW)
    with pytest.raises(CommandError) as refused:
        parked.park(channel, request(b"x" * 60), NOW)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    parked.take(lambda channel, command: None)
    parked.park(channel, request(), NOW)


def test_everything_that_stores_a_message_is_a_change() -> None:
    assert set(SENDS) <= set(CHANGES)
    assert len(set(CHANGES)) == len(CHANGES)
