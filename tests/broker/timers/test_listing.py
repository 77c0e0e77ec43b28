"""Answers of a master to slaves of RocketMQ 5 about its timer messages."""

from __future__ import annotations

import json

import attrs
import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at
from support.handlers.timers import run_until, timer

from trioha.broker.timers.listing import PendingTimersProcessor
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.timers import TimerCheckpoint


def ask(side: ProduceSide, code: RequestCode, now_ms: int = 0) -> bytes:
    handler = PendingTimersProcessor(side.timers, side.pipeline).handlers()[code]
    response = handler(side.channel, RemotingCommand(code), at(now_ms))
    assert response is not None
    assert response.code == 0
    return response.body_bytes()


def test_a_slave_learns_where_a_new_master_begins() -> None:
    side = ProduceSide()
    first = TimerCheckpoint.decode(ask(side, RequestCode.GET_TIMER_CHECK_POINT, 3_456))
    assert first == TimerCheckpoint(WALL_MS + 3_000, 0), "nothing was ever stored"
    for key, delay_ms in (("a", 1_000), ("b", 9_000)):
        timer(side, key, TIMER_DELAY_MS=delay_ms)
    run_until(side, 5_000)
    body = ask(side, RequestCode.GET_TIMER_CHECK_POINT, 5_000)
    assert TimerCheckpoint.decode(body) == TimerCheckpoint(WALL_MS + 5_000, 1)


def test_a_master_that_still_counts_names_no_place() -> None:
    side = ProduceSide()
    side.timers.forget()
    with pytest.raises(CommandError, match="The checkpoint is null") as refused:
        ask(side, RequestCode.GET_TIMER_CHECK_POINT)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


def test_counts_by_topic_are_left_out() -> None:
    told = json.loads(ask(ProduceSide(), RequestCode.GET_TIMER_METRICS))
    assert told["timingCount"] == {}
    assert set(told["dataVersion"]) == {"counter", "timestamp", "stateVersion"}


@pytest.mark.parametrize(
    "code",
    [RequestCode.TRIOHA_TIMERS, RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS],
)
def test_a_slave_tells_nothing(code: RequestCode) -> None:
    side = ProduceSide(attrs.evolve(BrokerConfig(), broker_role=BrokerRole.SLAVE))
    with pytest.raises(CommandError) as refused:
        ask(side, code)
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
