from __future__ import annotations

import pytest
from support.handlers.sending import FakeChannel

from trioha.broker.parked_requests import ParkedRequests
from trioha.errors import CommandError
from trioha.remoting.channel import Channel
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand


def request(body: bytes = b"", opaque: int = 0) -> RemotingCommand:
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, body=body, opaque=opaque)


SIZE = request().detach()


def test_they_come_out_in_the_order_they_went_in_without_those_whose_client_has_gone() -> None:
    parked, gone, here = ParkedRequests(), FakeChannel(), FakeChannel()
    for opaque, channel in enumerate([here, gone, here]):
        parked.add(channel, request(opaque=opaque))
    gone.closed = True
    taken: list[tuple[Channel, int]] = []
    assert parked.take(lambda channel, command: taken.append((channel, command.opaque))) == 2
    assert taken == [(here, 0), (here, 2)]
    assert len(parked) == 0


def test_a_connection_that_ends_leaves_nothing_behind() -> None:
    budget = TrafficBudget(1 << 20)
    parked, gone, here = ParkedRequests(budget), FakeChannel(), FakeChannel()
    for opaque, channel in enumerate([gone, here, gone]):
        parked.add(channel, request(opaque=opaque))
    parked.channel_closed(gone)
    parked.channel_closed(gone)
    assert (len(parked), budget.waiting_bytes) == (1, SIZE)
    taken: list[int] = []
    parked.take(lambda channel, command: taken.append(command.opaque))
    assert (taken, budget.waiting_bytes) == ([1], 0)
    parked.channel_closed(here)
    assert budget.waiting_bytes == 0


@pytest.mark.parametrize(
    "parked", [ParkedRequests(count_max=2), ParkedRequests(bytes_max=SIZE * 5 // 2)]
)
def test_beyond_the_limit_clients_are_told_to_try_again(parked: ParkedRequests) -> None:
    channel = FakeChannel()
    parked.add(channel, request())
    parked.add(channel, request())
    with pytest.raises(CommandError) as refused:
        parked.add(channel, request())
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    parked.take(lambda channel, command: None)
    parked.add(channel, request())
