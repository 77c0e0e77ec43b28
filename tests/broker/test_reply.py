from __future__ import annotations

import attrs
import pytest
from support.handlers.sending import STORE_HOST, WALL_MS, FakeChannel, ProduceSide, at, send_v2

from trioha.broker.clients import ClientInfo
from trioha.broker.reply import ReplyProcessor
from trioha.remoting.channel import Channel
from trioha.wire.codes import LanguageCode, RequestCode, ResponseCode
from trioha.wire.properties import decode_properties
from trioha.wire.remoting_command import RemotingCommand

TOPIC = "DefaultCluster_REPLY_TOPIC"


@attrs.define
class FakeProducers:
    """Connected producers, and how often their groups were asked for."""

    table: dict[str, list[tuple[Channel, ClientInfo]]] = attrs.Factory(dict)
    looks: int = 0

    @property
    def groups(self) -> list[str]:
        self.looks += 1
        return list(self.table)

    def members(self, group: str) -> list[tuple[Channel, ClientInfo]]:
        return self.table[group]


class Bench:
    def __init__(self) -> None:
        self.side = ProduceSide()
        self.requester = FakeChannel()
        client = ClientInfo("1.2.3.4@77", LanguageCode.JAVA, 409)
        self.producers = FakeProducers({"other": [], "pg": [(self.requester, client)]})
        self.processor = ReplyProcessor(
            self.side.sender, self.side.pipeline, self.producers, STORE_HOST
        )

    def reply(
        self, properties: str = "REPLY_TO_CLIENT\x011.2.3.4@77\x02CORRELATION_ID\x01c1"
    ) -> RemotingCommand | None:
        request = send_v2(
            TOPIC, properties=properties, e="0", code=RequestCode.SEND_REPLY_MESSAGE_V2
        )
        return self.processor.reply(self.side.channel, request, at())


def test_reply_is_pushed_to_the_requester_and_stored() -> None:
    bench = Bench()
    assert bench.reply() is None
    ((push, deadline_ms, _),) = bench.requester.asked
    assert push.code == 326
    assert deadline_ms == 10_000
    assert bytes(push.body_bytes()) == b"hello"
    properties = decode_properties(push.ext_str("properties"))
    assert properties == {
        "REPLY_TO_CLIENT": "1.2.3.4@77",
        "CORRELATION_ID": "c1",
        "PUSH_REPLY_TIME": str(WALL_MS),
    }
    del push.ext_fields["properties"]
    assert push.ext_fields == {
        "producerGroup": "pg",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 1000,
        "flag": 7,
        "reconsumeTimes": 0,
        "unitMode": False,
        "bornHost": "127.0.0.1:5555",
        "storeHost": "10.0.0.1:10911",
        "storeTimestamp": WALL_MS,
    }
    ((stored, _),) = bench.side.store.messages
    assert stored.topic == TOPIC
    # RocketMQ adds CLUSTER to messages, and neither to replies.
    assert decode_properties(stored.properties).keys() == {"REPLY_TO_CLIENT", "CORRELATION_ID"}


def test_answer_comes_when_the_requester_has_taken_it() -> None:
    bench = Bench()
    bench.reply()
    assert bench.side.channel.sent == []
    push, _, on_response = bench.requester.asked[0]
    on_response(push.response())
    (answer,) = bench.side.channel.sent
    assert (answer.code, answer.opaque) == (0, 3)
    assert answer.ext_fields["msgId"] == "0A00000100002A9F" + "0" * 16


@pytest.mark.parametrize("code", [None, 1])
def test_requester_that_does_not_take_it_is_a_system_error(code: int | None) -> None:
    bench = Bench()
    bench.reply()
    push, _, on_response = bench.requester.asked[0]
    on_response(None if code is None else push.response(code))
    (answer,) = bench.side.channel.sent
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "1.2.3.4@77" in (answer.remark or "")


@pytest.mark.parametrize("properties", ["", "REPLY_TO_CLIENT\x01nobody@1"])
def test_reply_to_nobody_is_a_system_error(properties: str) -> None:
    bench = Bench()
    answer = bench.reply(properties)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"


def test_requester_is_looked_for_once_until_it_goes() -> None:
    bench = Bench()
    bench.reply()
    bench.reply()
    assert bench.producers.looks == 1
    bench.requester.closed = True
    answer = bench.reply()
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_full_disk_does_not_keep_the_requester_from_its_reply() -> None:
    bench = Bench()
    bench.side.store.writable = False
    bench.reply()
    push, _, on_response = bench.requester.asked[0]
    on_response(push.response())
    (answer,) = bench.side.channel.sent
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "0")


def test_illegal_topic_is_refused() -> None:
    bench = Bench()
    request = send_v2("a/b", code=RequestCode.SEND_REPLY_MESSAGE_V2)
    answer = bench.processor.reply(bench.side.channel, request, at())
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_handlers_are_both_kinds_of_reply() -> None:
    assert sorted(Bench().processor.handlers()) == [324, 325]
