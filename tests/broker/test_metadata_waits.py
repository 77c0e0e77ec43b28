from __future__ import annotations

import random
from typing import Any

import attrs
import pytest
from support.handlers.sending import FakeChannel, FakeReplicas, at
from support.memory.store import MemoryStore

from trioha.broker import metadata_waits
from trioha.broker.core import BrokerCore
from trioha.broker.metadata_waits import NO_SLAVE, NOT_ON_DISK, NOT_ON_SLAVE, TOO_MANY, LateAnswer
from trioha.config import BrokerConfig, BrokerRole, FlushDiskType
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trioha.wire.names import OUTCOME_UNKNOWN
from trioha.wire.remoting_command import RemotingCommand

SYNC: dict[str, Any] = {"broker_role": BrokerRole.SYNC_MASTER, "slave_timeout": 3000}
SYNC_FLUSH: dict[str, Any] = {
    "flush_disk_type": FlushDiskType.SYNC_FLUSH,
    "sync_flush_timeout": 5000,
}


class Bench:
    """A broker whose changes go nowhere until the test says that they arrived."""

    def __init__(self, *, by_quorum: bool = False, **settings: Any) -> None:
        self.config = attrs.evolve(BrokerConfig(), broker_ip1="127.0.0.1", **settings)
        self.events = RecordedEvents()
        self.replicas = FakeReplicas(by_quorum=by_quorum)
        self.core = BrokerCore(
            self.config,
            MemoryStore(),
            self.replicas,
            self.events,
            random.Random(1),
            at(),
            lambda _: {},
        )
        self.waits = self.core.metadata_waits
        self.channel = FakeChannel()
        self.core.topics.put(TopicConfig("T", 4, 4), 1000)
        self.offset = 0

    def ask(self, code: int, fields: dict[str, str], now_ms: int = 0, flag: int = 0) -> None:
        request = RemotingCommand(code, {**fields}, flag=flag)
        response = self.core.handlers[code](self.channel, request, at(now_ms))
        if response is not None and not flag:
            self.channel.send_nowait(response)
        self.core.metadata.flush()

    def commit(self, now_ms: int = 0, flag: int = 0) -> None:
        self.offset += 1
        fields = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
        fields["commitOffset"] = str(self.offset)
        self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields, now_ms, flag)

    def ack(self, position: int | None = None) -> None:
        newest = self.core.metadata.position
        self.replicas.push2slave_max_metadata = newest if position is None else position
        self.core.on_acked(0)

    def remarks(self) -> list[str | None]:
        assert all(answer.code == ResponseCode.SUCCESS for answer in self.channel.sent)
        return [answer.remark for answer in self.channel.sent]


def test_where_nothing_is_promised_nobody_waits() -> None:
    bench = Bench()
    bench.commit()
    assert bench.remarks() == [None]


def test_a_commit_waits_for_the_ack_of_its_own_change() -> None:
    bench = Bench(**SYNC)
    bench.commit()
    bench.commit()
    assert bench.remarks() == []
    bench.ack(bench.core.metadata.position - 1)
    assert bench.remarks() == [None]
    bench.ack()
    assert bench.remarks() == [None, None]
    assert bench.waits.waiter_count == 0


def test_commits_of_one_batch_are_answered_by_one_ack() -> None:
    bench = Bench(**SYNC)
    for queue_id in range(3):
        request = RemotingCommand(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": "g", "topic": "T", "queueId": str(queue_id), "commitOffset": "1"},
        )
        handler = bench.core.handlers[request.code]
        assert handler(bench.channel, request, at()) is None
    bench.core.metadata.flush()
    bench.ack()
    assert len(bench.remarks()) == 3


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {"topic": "New", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"},
        ),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"}),
        (RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "g", "destGroup": "h", "topic": "T"}),
    ],
)
def test_whatever_changes_metadata_waits(code: int, fields: dict[str, str]) -> None:
    bench = Bench(**SYNC)
    bench.commit(flag=ONEWAY_FLAG)
    bench.core.groups.find("g", 0)
    bench.ask(code, fields)
    assert bench.remarks() == []
    bench.ack()
    assert bench.remarks() == [None]


def test_a_commit_that_changes_nothing_is_answered_when_what_it_repeats_is_safe() -> None:
    bench = Bench(**SYNC)
    bench.commit()
    bench.offset -= 1
    bench.commit()
    assert bench.remarks() == []
    bench.ack()
    assert bench.remarks() == [None, None]
    bench.offset -= 1
    bench.commit()
    assert bench.remarks() == [None] * 3


def test_nobody_waits_for_a_one_way_commit() -> None:
    bench = Bench(**SYNC)
    bench.commit(flag=ONEWAY_FLAG)
    assert (bench.waits.waiter_count, bench.remarks()) == (0, [])


def test_without_a_slave_that_takes_changes_the_answer_says_so_at_once() -> None:
    bench = Bench(**SYNC)
    bench.replicas.metadata_available = False
    bench.commit()
    bench.commit()
    assert bench.remarks() == [NO_SLAVE, NO_SLAVE]
    assert bench.waits.unsafe_count == 2
    bench.replicas.metadata_available = True
    bench.commit()
    bench.ack()
    assert bench.remarks()[2] is None
    assert bench.events.of("metadata_safe") == [
        {"safe": False, "reason": NO_SLAVE},
        {"safe": True, "reason": ""},
    ], "once when it begins, once when it ends"


def test_a_slave_that_goes_leaves_nobody_waiting() -> None:
    bench = Bench(**SYNC)
    bench.commit()
    bench.core.on_slave_lost()
    assert bench.remarks() == [], "another one may acknowledge"
    bench.replicas.metadata_available = False
    bench.core.on_slave_lost()
    assert bench.remarks() == [NO_SLAVE]


def test_a_slave_that_is_too_slow_is_waited_for_no_longer_than_slave_timeout() -> None:
    bench = Bench(**SYNC)
    bench.commit(now_ms=100)
    assert bench.core.next_wait_deadline_ms() == 3100
    bench.core.expire_waits(at(3099))
    assert bench.remarks() == []
    bench.core.expire_waits(at(3100))
    assert bench.remarks() == [NOT_ON_SLAVE]


def test_sync_flush_waits_for_the_disk() -> None:
    bench = Bench(**SYNC_FLUSH)
    bench.commit()
    assert bench.waits.has_flush_waiters
    bench.waits.on_synced(bench.core.metadata.position)
    assert bench.remarks() == [None]
    bench.commit(now_ms=10)
    bench.core.expire_waits(at(5010))
    assert bench.remarks() == [None, NOT_ON_DISK]


@pytest.mark.parametrize("disk_first", [True, False])
def test_disk_and_slave_are_both_waited_for(disk_first: bool) -> None:
    bench = Bench(**SYNC, **SYNC_FLUSH)
    bench.commit()
    for is_disk in (disk_first, not disk_first):
        assert bench.remarks() == []
        if is_disk:
            bench.waits.on_synced(bench.core.metadata.position)
        else:
            bench.ack()
    assert bench.remarks() == [None]


def test_the_slaves_word_is_told_when_both_fail() -> None:
    bench = Bench(**SYNC, **SYNC_FLUSH)
    bench.commit()
    bench.core.expire_waits(at(9999))
    assert bench.remarks() == [NOT_ON_SLAVE]


def test_who_waits_when_the_role_ends_is_answered() -> None:
    bench = Bench(**SYNC, **SYNC_FLUSH)
    bench.commit()
    bench.core.give_up_waiting()
    assert bench.remarks() == [NOT_ON_SLAVE]
    assert bench.waits.next_deadline_ms is None


def test_a_slave_answers_at_once() -> None:
    bench = Bench(**SYNC)
    bench.core.become(BrokerRole.SLAVE, 1)
    bench.commit()
    assert bench.remarks() == [None]


def test_there_is_a_limit_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_waits, "WAITERS_MAX", 1)
    bench = Bench(**SYNC)
    bench.commit()
    bench.commit()
    assert bench.remarks() == [TOO_MANY]


def answer_later(bench: Bench, flag: int = 0, *, shared: bool = True) -> LateAnswer:
    """Queue a change that a thread makes; the result answers it."""
    request = RemotingCommand(RequestCode.AUTH_DELETE_USER, flag=flag)
    return bench.waits.later(bench.channel, request, shared=shared)


DONE = RemotingCommand(RequestCode.AUTH_DELETE_USER).response()


def test_a_change_by_a_thread_waits_as_every_other_change() -> None:
    bench = Bench(**SYNC)
    answer = answer_later(bench)
    bench.core.topics.put(TopicConfig("U", 4, 4), 1000)
    assert answer(DONE, at()) is None
    bench.ack()
    assert bench.remarks() == [None]


@pytest.mark.parametrize("ends", ["pause", "resume", "step down", "step down and come back"])
@pytest.mark.parametrize("settings", [{}, SYNC, SYNC_FLUSH])
def test_a_change_that_a_switch_overtakes_has_an_unknown_outcome(
    ends: str, settings: dict[str, Any]
) -> None:
    """The target's text may be without it, and takes its place once this node follows."""
    bench = Bench(**settings)
    role = bench.config.broker_role
    answer = answer_later(bench)
    bench.core.pause()
    if ends == "resume":
        bench.core.become(role, 0)
    elif ends != "pause":
        bench.core.become(BrokerRole.SLAVE, 1)
        if ends != "step down":
            bench.core.become(role, 0)
    response = answer(RemotingCommand(RequestCode.AUTH_DELETE_USER).response(), at())
    assert response is not None
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert (response.remark or "").startswith(OUTCOME_UNKNOWN)
    assert bench.waits.waiter_count == 0


def test_a_change_that_an_election_overtakes_has_an_unknown_outcome() -> None:
    """A follower's accounts are the log's, which the change did not get into."""
    bench = Bench(**SYNC, by_quorum=True)
    answer = answer_later(bench)
    bench.core.become(BrokerRole.SLAVE, 1)
    response = answer(DONE.response(), at())
    assert response is not None
    assert response.code == ResponseCode.SYSTEM_ERROR


def test_what_no_other_broker_shares_is_done_whatever_the_role() -> None:
    bench = Bench(**SYNC)
    answer = answer_later(bench, shared=False)
    bench.core.pause()
    assert answer(DONE, at()) is DONE
    assert DONE.code == ResponseCode.SUCCESS


def test_a_refusal_stays_one_and_a_oneway_change_has_no_answer() -> None:
    bench = Bench(**SYNC)
    refusal = DONE.response(ResponseCode.NO_PERMISSION, "no")
    answer, silent = answer_later(bench), answer_later(bench, ONEWAY_FLAG)
    bench.core.pause()
    assert answer(refusal, at()) is refusal
    assert refusal.code == ResponseCode.NO_PERMISSION
    assert silent(DONE, at()) is None
    assert silent(refusal, at()) is None
    assert bench.channel.sent == []
