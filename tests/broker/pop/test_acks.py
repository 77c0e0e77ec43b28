from __future__ import annotations

import base64
import json

import pytest
from support.handlers.popping import GROUP, TOPIC, Popped, PopSide, bodies_of

from trioha.config import BrokerRole
from trioha.wire.codes import RequestCode, ResponseCode


def ack_of(
    messages: list[Popped], *, long: bool = False, as_list: bool = False
) -> dict[str, object]:
    """Return one element of a batch, as Java's client or proxy writes it."""
    handle = messages[0].handle.split(" ")
    start = int(handle[0])
    bits = sum(1 << (message.record.queue_offset - start) for message in messages)
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    values: dict[str, object] = {
        "c": GROUP,
        "t": TOPIC,
        "r": handle[4],
        "so": start,
        "q": int(handle[6]),
        "rq": int(handle[3]),
        "pt": int(handle[1]),
        "it": int(handle[2]),
        "b": list(data) if as_list else base64.b64encode(data).decode(),
    }
    names = dict(c="consumerGroup", t="topic", r="retry", so="startOffset", q="queueId")
    names |= dict(rq="reviveQueueId", pt="popTime", it="invisibleTime", b="bitSet")
    return {names[name]: value for name, value in values.items()} if long else values


def send(side: PopSide, *acks: object) -> int:
    body = json.dumps({"brokerName": "broker-a", "acks": acks}).encode()
    response = side.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
    assert response is not None
    return response.code


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("as_list", [False, True])
def test_a_batch_acknowledges_messages_of_several_queues(long: bool, as_list: bool) -> None:
    side = PopSide(queues=2)
    for i in range(8):
        side.put(str(i), i % 2)
    messages = side.pop()
    zero = [message for message in messages if message.record.queue_id == 0]
    one = [message for message in messages if message.record.queue_id == 1]
    acks = [ack_of(part, long=long, as_list=as_list) for part in (zero[1:], one[:2])]
    assert send(side, *acks) == 0
    side.wait(60_000)
    assert sorted(bodies_of(side.pop())) == ["0", "5", "7"]
    assert len(side.bodies("rmq_sys_REVIVE_LOG_DefaultCluster")) > 4


def test_a_batch_reaches_messages_of_the_retry_topic_and_ordered_ones() -> None:
    side = PopSide(queues=1)
    side.put("a")
    side.pop()
    side.wait(60_000)
    assert send(side, ack_of(side.pop())) == 0
    side.put("b")
    side.put("c")
    assert send(side, ack_of(side.pop(order="true"))) == 0
    side.wait(120_000)
    assert side.pop() == []


def test_one_good_handle_in_a_batch_is_a_success_and_none_is_not() -> None:
    side = PopSide(queues=1)
    for body in "ab":
        side.put(body)
    (a,) = side.pop(maxMsgNums=1)
    (b,) = side.pop(maxMsgNums=1)
    stale = ack_of([b]) | {"pt": 5}
    count = len(side.store.messages)
    assert send(side, stale) == ResponseCode.NO_MESSAGE
    assert send(side, ack_of([a]) | {"t": "unknown"}) == ResponseCode.TOPIC_NOT_EXIST
    assert send(side, ack_of([a]) | {"q": 9}) == ResponseCode.MESSAGE_ILLEGAL
    assert send(side) == ResponseCode.NO_MESSAGE
    assert len(side.store.messages) == count
    assert send(side, stale, ack_of([a])) == 0
    side.wait(60_000)
    assert bodies_of(side.pop()) == ["b"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"acks":[]}'])
def test_a_batch_without_messages_is_answered_with_no_message(body: bytes) -> None:
    response = PopSide().ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
    assert response is not None
    assert response.code == ResponseCode.NO_MESSAGE


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b'{"acks":5}', b'{"acks":[5]}', b'{"acks":[{"b":5}]}'),
        *(b'{"acks":[{"b":"?"}]}', b'{"acks":[{"r":"7","b":"AQ=="}]}'),
        b'{"acks":[{"b":"' + base64.b64encode(b"\xff" * 5) + b'"}]}',
        b'{"acks":[{"b":"' + base64.b64encode(b"\0" * 9_000 + b"\1") + b'"}]}',
        b'{"acks":[' + b"{}," * 1_024 + b"{}]}",
        b'{"acks":[{"so":1e99,"b":"AQ=="}]}',
        b"[" * 100_000,
    ],
)
def test_a_batch_that_is_none_is_refused_and_nothing_is_stored(body: bytes) -> None:
    side = PopSide(queues=1)
    response = side.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
    assert response is not None
    assert response.code != 0
    assert len(side.store.messages) == 0


def test_an_ack_that_no_slave_has_is_a_success_that_says_so() -> None:
    """Clients take any other code for a failure."""
    side = PopSide()
    side.put("a")
    (message,) = side.pop()
    side.core.pipeline.role = BrokerRole.SYNC_MASTER
    side.replicas.available = False
    response = side.ask(RequestCode.ACK_MESSAGE, side.naming(message))
    assert response is not None
    assert response.code == 0
    assert response.remark is not None
    assert "slave" in response.remark
    side.core.pipeline.role = BrokerRole.ASYNC_MASTER
    side.wait(60_000)
    assert not side.pop(), "it counts"
