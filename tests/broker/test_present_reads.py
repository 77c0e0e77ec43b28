"""A master that may have been replaced answers no question before a slave has spoken."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.handlers.sending import FakeChannel, FakeReplicas, at
from support.memory.store import MemoryStore

from trioha.broker.core import BrokerCore
from trioha.broker.present_reads import PresentReads
from trioha.broker.set_modes import START_OFFSETS
from trioha.config import BrokerConfig, BrokerRole
from trioha.remoting.channel import Channel
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

TIMEOUT_MS = 3000
KEY = {"consumerGroup": "g", "topic": "T", "queueId": "0"}


class Bench:
    """A master whose slaves acknowledge when the test says so."""

    def __init__(self, **settings: Any) -> None:
        self.replicas = FakeReplicas()
        events = RecordedEvents()
        self.bodies: list[tuple[int, bytes]] = []
        self.core = BrokerCore(
            BrokerConfig(broker_role=BrokerRole.SYNC_MASTER, broker_ip1="127.0.0.1", **settings),
            MemoryStore(),
            self.replicas,
            events,
            random.Random(1),
            at(),
            lambda _: {},
            on_metadata_body=lambda position, body: self.bodies.append((position, body)),
        )
        self.core.topics.put(TopicConfig("T", 4, 4), 1000)
        self.core.metadata.flush()
        self.bodies.clear()
        self.channel = FakeChannel()
        self.again: list[RemotingCommand] = []
        self.needs_proof = True
        self.term = b"1"
        self.now_ms = 0
        self.reads = PresentReads(
            self.core.handlers,
            self.core.metadata,
            self.core.metadata_waits,
            self.replicas,
            events,
            needs_proof=lambda: self.needs_proof,
            term=lambda: self.term,
            now_ms=lambda: self.now_ms,
            timeout_ms=TIMEOUT_MS,
        )

    def commit(self, offset: int) -> None:
        self.core.offsets.commit("g", "T", 0, offset)
        self.core.metadata.flush()

    def ask(self, code: int = RequestCode.QUERY_CONSUMER_OFFSET) -> RemotingCommand | None:
        request = RemotingCommand(code, {**KEY, "timestamp": "0"})
        response = self.reads.handle(self.channel, request, at(self.now_ms))
        self.core.metadata.flush()
        return response

    def ack(self, position: int | None = None) -> None:
        newest = self.core.metadata.position
        self.replicas.push2slave_max_metadata = newest if position is None else position
        self.reads.release_acknowledged(self._ask_again)

    def offsets(self) -> list[str]:
        assert all(answer.code == ResponseCode.SUCCESS for answer in self.channel.sent)
        return [answer.ext_str("offset") for answer in self.channel.sent]

    def _ask_again(self, channel: Channel, request: RemotingCommand) -> None:
        self.again.append(request)


def test_an_answer_leaves_when_a_slave_has_acknowledged_what_was_sent_after_the_question() -> None:
    bench = Bench()
    bench.commit(7)
    before = bench.core.metadata.position
    assert bench.ask() is None
    assert [position for position, _ in bench.bodies[-1:]] == [before + 1], "slaves are told"
    bench.ack(before)
    assert not bench.channel.sent, "a slave said that before the question"
    bench.ack()
    assert bench.offsets() == ["7"]
    assert bench.reads.next_deadline_ms is None


def test_each_question_about_the_present_waits() -> None:
    bench = Bench()
    for code in START_OFFSETS:
        assert bench.ask(code) is None, RequestCode(code).name
    bench.ack()
    assert len(bench.channel.sent) == len(START_OFFSETS)


def test_an_error_is_an_answer_about_the_present_too() -> None:
    bench = Bench()
    request = RemotingCommand(
        RequestCode.QUERY_CONSUMER_OFFSET, {**KEY, "setZeroIfNotFound": "false"}
    )
    assert bench.reads.handle(bench.channel, request, at()) is None
    bench.core.metadata.flush()
    bench.ack()
    assert [answer.code for answer in bench.channel.sent] == [ResponseCode.QUERY_NOT_FOUND]


def test_a_question_without_proof_closes_the_connection_at_its_deadline() -> None:
    """Java consumers take any error for "no offset yet" and begin anew."""
    bench = Bench()
    assert bench.ask() is None
    assert bench.reads.next_deadline_ms == TIMEOUT_MS
    closed = []
    for now_ms in (TIMEOUT_MS - 1, TIMEOUT_MS):
        bench.reads.expire(now_ms)
        closed.append(bench.channel.closed)
    assert closed == [False, True]
    assert not bench.channel.sent


def test_other_questions_without_proof_are_rejected() -> None:
    bench = Bench()
    assert bench.ask(RequestCode.GET_MAX_OFFSET) is None
    bench.reads.expire(TIMEOUT_MS)
    assert [answer.code for answer in bench.channel.sent] == [ResponseCode.SERVICE_NOT_AVAILABLE]


def test_a_question_of_an_older_term_is_handled_again() -> None:
    bench = Bench()
    bench.commit(7)
    assert bench.ask() is None
    bench.term = b"2"
    bench.ack()
    assert not bench.channel.sent
    assert [one.code for one in bench.again] == [RequestCode.QUERY_CONSUMER_OFFSET]


def test_questions_go_to_the_new_master_once_it_is_known() -> None:
    bench = Bench()
    told: list[bool] = []
    assert bench.ask() is None
    bench.reads.confirm(told.append)
    bench.reads.give_back(bench._ask_again)
    assert [one.code for one in bench.again] == [RequestCode.QUERY_CONSUMER_OFFSET]
    assert told == [False]
    assert not bench.reads.waiting_count


def test_a_pull_is_corrected_only_with_proof() -> None:
    bench = Bench()
    told: list[bool] = []
    bench.reads.confirm(told.append)
    bench.core.metadata.flush()
    assert told == []
    bench.ack()
    assert told == [True]
    bench.reads.confirm(told.append)
    bench.reads.expire(TIMEOUT_MS)
    assert told == [True, False]


def test_a_set_that_needs_no_proof_is_answered_at_once() -> None:
    bench = Bench()
    bench.needs_proof = False
    bench.commit(7)
    bench.ack()
    response = bench.ask()
    assert response is not None
    assert response.ext_str("offset") == "7"
    told: list[bool] = []
    bench.reads.confirm(told.append)
    assert told == [True]
    assert len(bench.bodies) == 1, "nothing more is sent"


def test_without_proof_nobody_is_told_of_progress_that_a_failover_would_take_back() -> None:
    bench = Bench()
    bench.needs_proof = False
    bench.commit(7)
    assert bench.ask() is None
    assert bench.core.metadata_waits.has_slave_waiters, "what it waits for leaves at once"
    assert bench.ask(RequestCode.GET_MAX_OFFSET) is not None
    bench.ack()
    bench.core.on_acked(0)
    assert bench.offsets() == ["7"]


@pytest.mark.parametrize("slave", [True, False])
def test_progress_is_told_without_a_slave_and_nothing_is_called_unsafe(slave: bool) -> None:
    bench = Bench()
    bench.needs_proof = False
    bench.replicas.metadata_available = slave
    bench.commit(7)
    response = bench.ask()
    if slave:
        assert response is None
        bench.core.expire_waits(at(3000))
        (response,) = bench.channel.sent
    assert response is not None
    assert (response.ext_str("offset"), response.remark) == ("7", None)
    assert bench.core.metadata_waits.unsafe_count == 0


def test_who_has_gone_is_not_answered() -> None:
    bench = Bench()
    assert bench.ask() is None
    bench.channel.closed = True
    bench.ack()
    assert not bench.channel.sent


def test_questions_are_bounded() -> None:
    bench = Bench()
    for _ in range(10_000):
        bench.reads.confirm(lambda sure: None)
    assert bench.ask() is None
    assert bench.channel.closed
    told: list[bool] = []
    bench.reads.confirm(told.append)
    assert told == [False]


def test_questions_that_wait_keep_only_the_fields_that_they_are_asked_again_with() -> None:
    bench = Bench()
    asked = RemotingCommand(RequestCode.GET_MAX_OFFSET, {**KEY, "junk": "x" * 250_000})
    assert bench.reads.handle(bench.channel, asked, at(0)) is None
    assert asked.ext_fields == KEY
    large = RemotingCommand(RequestCode.GET_MAX_OFFSET, {**KEY, "consumerGroup": "g" * 250_000})
    assert bench.reads.handle(bench.channel, large, at(0)) is None
    assert bench.reads.waiting_count == 1
    assert [answer.code for answer in bench.channel.sent] == [ResponseCode.SERVICE_NOT_AVAILABLE]
