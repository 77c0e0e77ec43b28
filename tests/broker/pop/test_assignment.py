from __future__ import annotations

import json
from typing import Any

import pytest
from support.handlers.popping import GROUP, TOPIC, PopSide
from support.handlers.sending import FakeChannel, at

from trioha.broker.clients import ClientInfo
from trioha.broker.pop.allocation import allocate_for_pop, averagely, by_circle
from trioha.wire.bodies import MessageQueue
from trioha.wire.codes import LanguageCode, RequestCode, ResponseCode
from trioha.wire.heartbeat import ConsumerData
from trioha.wire.route import QueueData, TopicRouteData

QUEUES = [MessageQueue("T", name, i) for name in ("a", "b") for i in range(4)]


def join(side: PopSide, *client_ids: str) -> None:
    for client_id in client_ids:
        side.core.consumers.register(
            ConsumerData(GROUP), FakeChannel(), ClientInfo(client_id, LanguageCode.JAVA, 409), 0
        )


def query(side: PopSide, client_id: str = "c1", **more: object) -> dict[str, Any]:
    body = {"topic": TOPIC, "consumerGroup": GROUP, "clientId": client_id, "strategyName": "AVG"}
    response = side.ask(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps({**body, **more}).encode())
    assert response is not None
    assert response.code == 0
    found: dict[str, Any] = json.loads(response.body_bytes())
    return found


def queue_ids(answer: dict[str, Any]) -> list[int]:
    return [one["messageQueue"]["queueId"] for one in answer["messageQueueAssignments"]]


def set_mode(side: PopSide, **more: object) -> int:
    body = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0, **more}
    response = side.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(body).encode())
    assert response is not None
    return response.code


def test_members_share_the_queues_and_pull_them_unless_they_were_told_otherwise() -> None:
    side = PopSide()
    assert query(side) == {}
    join(side, "c2", "c1")
    answers = [query(side, client_id) for client_id in ("c1", "c2", "stranger")]
    assert [queue_ids(answer) for answer in answers] == [[0, 1], [2, 3], []]
    assert {one["mode"] for one in answers[0]["messageQueueAssignments"]} == {"PULL"}
    assert queue_ids(query(side, messageModel="BROADCASTING")) == [0, 1, 2, 3]
    assert query(side, strategyName="odd") == {}
    assert query(side, topic="unknown") == {}


def test_in_pop_mode_each_member_takes_from_every_queue() -> None:
    side = PopSide()
    join(side, "c1", "c2")
    side.core.groups.find(GROUP, at().wall_ms)
    assert set_mode(side) == 0
    for client_id in ("c1", "c2"):
        (one,) = query(side, client_id)["messageQueueAssignments"]
        assert one == {
            "messageQueue": {"brokerName": "broker-a", "queueId": -1, "topic": TOPIC},
            "mode": "POP",
        }


def test_a_client_that_is_no_member_yet_pops_where_all_members_take_from_every_queue() -> None:
    """A broker that has restarted knows no member until its next heartbeat."""
    side = PopSide()
    join(side, "c1", "c2", "c3")
    side.core.groups.find(GROUP, at().wall_ms)
    assert set_mode(side) == 0
    assert queue_ids(query(side, "stranger")) == [-1]
    assert set_mode(side, popShareQueueNum=1) == 0
    assert queue_ids(query(side, "stranger")) == []


def test_a_request_mode_survives_a_change_of_masters() -> None:
    side = PopSide()
    side.core.groups.find(GROUP, at().wall_ms)
    set_mode(side)
    side.make_safe()
    side = side.after_power_loss(side.core.offsets.encode())
    join(side, "c1")
    assert query(side)["messageQueueAssignments"][0]["mode"] == "POP"


def test_a_slave_of_rocketmq_5_gets_all_request_modes() -> None:
    side = PopSide()
    side.core.groups.find(GROUP, at().wall_ms)
    set_mode(side, popShareQueueNum=3)
    response = side.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {})
    assert response is not None
    mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 3}
    assert json.loads(response.body_bytes()) == {"messageRequestModeMap": {TOPIC: {GROUP: mode}}}


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "%RETRY%g"}, ResponseCode.NO_PERMISSION),
        ({"topic": "a/b"}, ResponseCode.SYSTEM_ERROR),
        ({"consumerGroup": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER),
        ({"popShareQueueNum": -2}, ResponseCode.INVALID_PARAMETER),
        ({"popShareQueueNum": 1 << 40}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_request_mode_that_makes_no_sense_is_refused(more: dict[str, object], code: int) -> None:
    side = PopSide()
    side.core.groups.find(GROUP, at().wall_ms)
    assert set_mode(side, **more) == code
    assert len(side.store.messages) == 0


def test_the_route_of_a_name_server_has_the_queues_of_all_brokers() -> None:
    asked: list[Any] = []
    side = PopSide(ask_route=lambda topic, on_route: asked.append(on_route))
    join(side, "c1")
    body = {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c1", "strategyName": "AVG"}
    response = side.ask(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(body).encode())
    assert response is None
    data = [QueueData("b", 2, 2, 6), QueueData("a", 1, 1, 6), QueueData("c", 4, 4, 2)]
    asked[0](TopicRouteData((), data))
    (answer,) = side.answers()
    queues = [
        (one["messageQueue"]["brokerName"], one["messageQueue"]["queueId"])
        for one in json.loads(answer.body_bytes())["messageQueueAssignments"]
    ]
    assert queues == [("a", 0), ("b", 0), ("b", 1)]


@pytest.mark.parametrize("member_count", range(1, 11))
def test_every_queue_has_one_owner(member_count: int) -> None:
    for allocate in (averagely, by_circle):
        shares = [allocate(QUEUES, member_count, i) for i in range(member_count)]
        assert sorted(QUEUES.index(queue) for share in shares for queue in share) == list(range(8))


def test_members_in_pop_mode_share_with_their_neighbours() -> None:
    shares = [allocate_for_pop(averagely, QUEUES, 4, i, 1) for i in range(4)]
    assert [[QUEUES.index(queue) for queue in share] for share in shares] == [
        [0, 1, 2, 3],
        [2, 3, 4, 5],
        [4, 5, 6, 7],
        [6, 7, 0, 1],
    ]
    assert [queue.queue_id for queue in allocate_for_pop(averagely, QUEUES, 4, 0, 3)] == [-1, -1]
    assert allocate_for_pop(averagely, QUEUES, 10, 9, 2) == [QUEUES[1]]
