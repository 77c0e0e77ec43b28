from __future__ import annotations

import json
from typing import Any

import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at
from support.handlers.transactions import end, half, prepare, producer

from trioha.broker.transactions.listing import OpenTransactionsProcessor
from trioha.broker.transactions.queues import TransactionQueues
from trioha.config import BrokerRole
from trioha.errors import CommandError
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand


def lister(side: ProduceSide) -> OpenTransactionsProcessor:
    queues = TransactionQueues(side.store, side.offsets)
    return OpenTransactionsProcessor(side.transactions, queues, side.pipeline, side.producers)


def listed(side: ProduceSide, **fields: str) -> dict[str, Any]:
    request = RemotingCommand(RequestCode.TRIOHA_TRANSACTIONS, dict(fields))
    answer: dict[str, Any] = json.loads(lister(side).list(side.channel, request, at()).body_bytes())
    return answer


def test_open_transactions_are_shown_the_oldest_first() -> None:
    side = ProduceSide()
    producer(side)
    first = prepare(side, half("K1", more={"KEYS": "order-7"}))
    done = prepare(side, half("K2"))
    prepare(side, half("K3", group="others"))
    end(side, done)
    answer = listed(side)
    assert answer["open"] == 2
    one, other = answer["transactions"]
    assert one == {
        "group": "pg",
        "producers": 1,
        "topic": "T",
        "queueId": "1",
        "uniqueKey": "K1",
        "keys": "order-7",
        "bornTimestamp": WALL_MS,
        "checkTimes": 0,
        "nextCheckTimestamp": WALL_MS + 6_000,
        "queueOffset": 0,
        "commitLogOffset": first.phy_offset,
    }
    assert (other["group"], other["producers"]) == ("others", 0)


def test_a_group_and_a_count_choose() -> None:
    side = ProduceSide()
    for number in range(4):
        prepare(side, half(f"K{number}", group=f"g{number % 2}"))
    keys = [one["uniqueKey"] for one in listed(side, group="g1")["transactions"]]
    assert keys == ["K1", "K3"]
    assert len(listed(side, count="3")["transactions"]) == 3
    assert listed(side, count="-1")["transactions"] == []


def test_a_slave_has_no_table() -> None:
    side = ProduceSide()
    side.pipeline.role = BrokerRole.SLAVE
    with pytest.raises(CommandError):
        listed(side)
