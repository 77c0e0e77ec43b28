"""Answers of a DLEDGER group's leader to clients: SUCCESS, a refusal, or "outcome unknown"."""

from __future__ import annotations

import attrs
import pytest
from support.handlers.sending import STORE_HOST, FakeChannel, FakeReplicas, ProduceSide, at, send_v2
from support.memory.store import MemoryStore
from support.stores.small import message

from trioha.broker.clients import ClientInfo, ProducerManager
from trioha.broker.put_message import UNCONFIRMED, PutPipeline
from trioha.broker.reply import ReplyProcessor
from trioha.config import BrokerConfig, BrokerRole, FlushDiskType
from trioha.wire.codes import LanguageCode, RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

LEADER = BrokerConfig(broker_role=BrokerRole.SYNC_MASTER)


class Bench:
    def __init__(self, config: BrokerConfig = LEADER) -> None:
        self.store = MemoryStore()
        self.replicas = FakeReplicas(by_quorum=True)
        self.pipeline = PutPipeline(self.store, config, self.replicas)
        self.channel = FakeChannel()

    def put(self, *, wait: bool = True) -> None:
        outcome = self.pipeline.put(message(), wait=wait, instant=at())
        assert outcome.must_wait
        self.pipeline.when_safe(outcome, at(), self.channel, RemotingCommand(ResponseCode.SUCCESS))

    def commit(self) -> None:
        self.replicas.push2slave_max_offset = self.store.max_phy_offset
        self.pipeline.release_acknowledged(0)

    def answers(self) -> list[tuple[int, str | None]]:
        return [(answer.code, answer.remark) for answer in self.channel.sent]


@pytest.mark.parametrize("wait", [True, False])
def test_everybody_waits_for_the_commit(wait: bool) -> None:
    bench = Bench()
    bench.put(wait=wait)
    assert bench.answers() == []
    bench.commit()
    assert bench.answers() == [(ResponseCode.SUCCESS, None)]


def test_the_disk_of_this_machine_is_not_waited_for_beside() -> None:
    bench = Bench(attrs.evolve(LEADER, flush_disk_type=FlushDiskType.SYNC_FLUSH))
    bench.put()
    assert not bench.pipeline.has_flush_waiters
    bench.commit()
    assert bench.answers() == [(ResponseCode.SUCCESS, None)]


def test_no_commit_in_time_is_an_unknown_outcome() -> None:
    bench = Bench()
    bench.put()
    bench.pipeline.expire(LEADER.slave_timeout)
    assert bench.answers() == [(ResponseCode.SYSTEM_ERROR, UNCONFIRMED)]


def test_who_ceases_to_lead_cannot_tell() -> None:
    bench = Bench()
    bench.put()
    bench.pipeline.role = BrokerRole.SLAVE
    bench.pipeline.give_up()
    assert bench.answers() == [(ResponseCode.SYSTEM_ERROR, UNCONFIRMED)]


def test_a_follower_refuses_before_anything_is_stored() -> None:
    bench = Bench(BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1))
    outcome = bench.pipeline.put(message(), wait=True, instant=at())
    assert outcome.code is ResponseCode.SERVICE_NOT_AVAILABLE
    assert outcome.remark is not None
    assert outcome.remark.startswith("this broker is a follower")
    assert bench.store.max_phy_offset == 0


def commit(side: ProduceSide) -> list[int]:
    """Commit everything; return the codes that were told since the last time."""
    side.replicas.push2slave_max_offset = side.store.max_phy_offset
    side.pipeline.release_acknowledged(0)
    codes = [answer.code for answer in side.channel.sent]
    side.channel.sent.clear()
    return codes


def test_wait_false_of_a_client_does_not_count() -> None:
    side = ProduceSide(LEADER, by_quorum=True)
    request = send_v2(properties="WAIT\x01false")
    assert side.sender.send(side.channel, request, at()) is None
    assert commit(side) == [ResponseCode.SUCCESS]


def test_a_message_sent_back_is_answered_when_its_copy_is_committed() -> None:
    side = ProduceSide(LEADER, by_quorum=True)
    side.sender.send(side.channel, send_v2(), at())
    assert commit(side) == [ResponseCode.SUCCESS]
    request = RemotingCommand(
        RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": "0", "group": "g", "delayLevel": "0"}
    )
    assert side.back.send_back(side.channel, request, at()) is None
    assert side.channel.sent == []
    assert commit(side) == [ResponseCode.SUCCESS]


def test_a_reply_is_answered_when_it_was_taken_and_is_committed() -> None:
    side = ProduceSide(LEADER, by_quorum=True)
    requester = FakeChannel()
    client = ClientInfo("1.2.3.4@77", LanguageCode.JAVA, 409)
    producers = ProducerManager(LEADER)
    producers.register("pg", requester, client, 0)
    replies = ReplyProcessor(side.sender, side.pipeline, producers, STORE_HOST)
    request = send_v2(
        "DefaultCluster_REPLY_TOPIC",
        properties="REPLY_TO_CLIENT\x011.2.3.4@77\x02CORRELATION_ID\x01c1",
        e="0",
        code=RequestCode.SEND_REPLY_MESSAGE_V2,
    )
    assert replies.reply(side.channel, request, at()) is None
    push, _, on_response = requester.asked[0]
    on_response(push.response())
    assert side.channel.sent == []
    assert commit(side) == [ResponseCode.SUCCESS]
