from __future__ import annotations

import pytest
from support.handlers.consuming import ConsumeSide, request
from support.handlers.sending import WALL_MS

from trioha.broker import query as query_module
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.heartbeat import SubscriptionData
from trioha.wire.java_hash import string_hash
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import ExtValue, RemotingCommand


def of_queue(code: RequestCode, **fields: ExtValue) -> RemotingCommand:
    return RemotingCommand(code, {"topic": "T", "queueId": "0", **fields})


def by_key(**fields: ExtValue) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.QUERY_MESSAGE,
        {
            "topic": "T",
            "key": "key",
            "maxNum": "64",
            "beginTimestamp": "0",
            "endTimestamp": str(2**62),
            **fields,
        },
    )


def three_messages() -> ConsumeSide:
    side = ConsumeSide()
    for second in range(3):
        side.put("TagA", wall_ms=WALL_MS + second * 1_000)
    return side


def test_ends_of_a_queue() -> None:
    side = three_messages()
    side.store.queue_minimum["T", 0] = 1
    assert side.ask(of_queue(RequestCode.GET_MAX_OFFSET)).ext_fields == {"offset": "3"}
    assert side.ask(of_queue(RequestCode.GET_MIN_OFFSET)).ext_fields == {"offset": "1"}


@pytest.mark.parametrize("code", [RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET])
def test_ends_of_an_unknown_queue_are_zero(code: RequestCode) -> None:
    response = ConsumeSide().ask(of_queue(code, topic="Unknown", queueId="77"))
    assert (response.code, response.ext_fields) == (0, {"offset": "0"})


def test_offset_by_time_is_the_stores() -> None:
    side = three_messages()
    request = of_queue(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=WALL_MS + 1_000)
    assert side.ask(request).ext_fields == {"offset": "1"}


def test_earliest_store_time() -> None:
    side = three_messages()
    side.store.queue_minimum["T", 0] = 1
    response = side.ask(of_queue(RequestCode.GET_EARLIEST_MSG_STORETIME))
    assert response.ext_fields == {"timestamp": str(WALL_MS + 1_000)}
    response = side.ask(of_queue(RequestCode.GET_EARLIEST_MSG_STORETIME, queueId=3))
    assert response.ext_fields == {"timestamp": "-1"}


def test_message_by_its_physical_offset() -> None:
    side = ConsumeSide()
    side.put()
    phy_offset = side.put("TagA")
    response = side.ask(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=phy_offset))
    assert response.code == 0
    (record,) = decode_records(response.body_bytes())
    assert record.phy_offset == phy_offset


def test_no_message_at_that_offset() -> None:
    response = ConsumeSide().ask(request(RequestCode.VIEW_MESSAGE_BY_ID, offset=5))
    assert response.code == ResponseCode.SYSTEM_ERROR


def test_messages_by_key_newest_first() -> None:
    side = three_messages()
    response = side.ask(by_key())
    assert response.code == 0
    assert [record.queue_offset for record in decode_records(response.body_bytes())] == [2, 1, 0]
    assert response.ext_fields["indexLastUpdateTimestamp"] == str(WALL_MS + 2_000)
    assert int(str(response.ext_fields["indexLastUpdatePhyoffset"])) > 0


def test_unknown_key_is_not_found_but_says_how_far_the_index_is() -> None:
    response = three_messages().ask(by_key(key="nothing"))
    assert response.code == ResponseCode.QUERY_NOT_FOUND
    assert response.ext_fields["indexLastUpdateTimestamp"] == str(WALL_MS + 2_000)


@pytest.mark.parametrize(
    ("fields", "asked_for"),
    [
        ({"maxNum": "5"}, 5),
        ({"maxNum": "1000"}, 64),
        ({"maxNum": "-1"}, 0),
        ({"maxNum": "5", "_UNIQUE_KEY_QUERY": "true"}, 32),
    ],
)
def test_number_of_messages_is_bounded(fields: dict[str, ExtValue], asked_for: int) -> None:
    side = ConsumeSide()
    asked: list[int] = []

    def query_message(
        topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> tuple[list[memoryview], int, int]:
        asked.append(count_max)
        return [], 0, 0

    side.store.query_message = query_message  # type: ignore[method-assign]
    side.ask(by_key(**fields))
    assert asked == [asked_for]


def test_messages_beyond_a_frame_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    side = three_messages()
    size = len(side.store.records[0])
    monkeypatch.setattr(query_module, "BODY_BYTES_MAX", 2 * size)
    assert len(decode_records(side.ask(by_key()).body_bytes())) == 2


def queue_entries(side: ConsumeSide, **fields: ExtValue) -> dict[str, object]:
    response = side.ask(
        of_queue(RequestCode.QUERY_CONSUME_QUEUE, **{"index": "0", "count": "10", **fields})
    )
    assert response.code == 0, response.remark
    body = fastjson.loads(response.body_bytes())
    assert isinstance(body, dict)
    return body


def test_consume_queue_entries_as_they_are() -> None:
    side = three_messages()
    body = queue_entries(side, index="1", count="1")
    phy_offset, size, _ = side.store.entries["T", 0][1]
    assert body == {
        "maxQueueIndex": 3,
        "minQueueIndex": 0,
        "queueData": [
            {
                "eval": True,
                "physicOffset": phy_offset,
                "physicSize": size,
                "tagsCode": string_hash("TagA"),
            }
        ],
    }


def test_consume_queue_as_a_group_sees_it() -> None:
    side = three_messages()
    side.put("TagB")
    side.beat(subscriptions=[SubscriptionData("T", "TagB", sub_version=5)])
    body = queue_entries(side, consumerGroup="g")
    assert isinstance(body["queueData"], list)
    assert [entry["eval"] for entry in body["queueData"]] == [False, False, False, True]
    assert isinstance(body["subscriptionData"], dict)
    assert body["subscriptionData"]["subString"] == "TagB"


def test_consume_queue_that_is_not_there() -> None:
    response = ConsumeSide().ask(of_queue(RequestCode.QUERY_CONSUME_QUEUE, index=0, count=1))
    assert response.code == ResponseCode.SYSTEM_ERROR
