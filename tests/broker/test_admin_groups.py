from __future__ import annotations

import pytest
from support.handlers.consuming import ConsumeSide, producer_heartbeat, request
from support.handlers.sending import WALL_MS

from trioha.config import BrokerConfig, BrokerRole
from trioha.wire import fastjson
from trioha.wire.bodies import (
    SubscriptionGroupConfig,
    group_table_from_dict,
)
from trioha.wire.codes import LanguageCode, RequestCode, ResponseCode
from trioha.wire.heartbeat import SubscriptionData
from trioha.wire.json_fields import list_of, object_of
from trioha.wire.remoting_command import ExtValue, RemotingCommand

SLAVE = BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1)


def body_of(response: RemotingCommand) -> dict[str, object]:
    assert response.code == 0, response.remark
    return dict(object_of(fastjson.loads(response.body_bytes()), "body"))


def update(group: SubscriptionGroupConfig) -> RemotingCommand:
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, fastjson.dumps(group.to_dict()))


# The groups.


def test_group_is_created_and_changed() -> None:
    side = ConsumeSide()
    for retry_max_times in (3, 4):
        group = SubscriptionGroupConfig("g", retry_max_times=retry_max_times)
        assert side.ask(update(group)).code == 0
        assert side.groups.get("g") == group


def test_group_body_of_5x_with_more_keys_is_taken() -> None:
    side = ConsumeSide()
    body = b'{"groupName":"g","attributes":{},"groupRetryPolicy":{"type":"X"},"retryMaxTimes":2}'
    assert side.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
    group = side.groups.get("g")
    assert group is not None
    assert group.retry_max_times == 2


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"groupName":"../g"}', b'{"groupName":"g","retryQueueNums":99999}'],
)
def test_body_that_makes_no_group_is_refused(body: bytes) -> None:
    side = ConsumeSide()
    response = side.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert side.groups.get("g") is None


@pytest.mark.parametrize(
    "command",
    [
        update(SubscriptionGroupConfig("g")),
        request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="TOOLS_CONSUMER"),
    ],
)
def test_slave_changes_no_group(command: RemotingCommand) -> None:
    side = ConsumeSide(SLAVE)
    before = dict(side.groups.groups)
    assert side.ask(command).code == ResponseCode.SYSTEM_ERROR
    assert side.groups.groups == before


@pytest.mark.parametrize(
    ("field", "left"), [({}, 5), ({"removeOffset": "true"}, -1), ({"cleanOffset": "true"}, -1)]
)
def test_group_is_deleted_with_its_progress_if_asked(field: dict[str, ExtValue], left: int) -> None:
    side = ConsumeSide()
    side.groups.put(SubscriptionGroupConfig("g"), WALL_MS)
    side.offsets.commit("g", "T", 0, 5)
    command = RemotingCommand(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", **field})
    assert side.ask(command).code == 0
    assert side.groups.get("g") is None
    assert side.offsets.query("g", "T", 0) == left


def test_slaves_get_the_whole_table() -> None:
    side = ConsumeSide()
    body = body_of(side.ask(request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)))
    version, table = group_table_from_dict(body)
    assert (version, table) == (side.groups.data_version, side.groups.groups)


@pytest.mark.parametrize(
    ("config", "group", "there_after"),
    [
        (BrokerConfig(), "TOOLS_CONSUMER", True),
        (BrokerConfig(), "new", True),
        (BrokerConfig(), "bad name!", False),
        (BrokerConfig(auto_create_subscription_group=False), "new", False),
        (SLAVE, "new", False),
    ],
)
def test_group_config_for_5x_tools_and_proxies(
    config: BrokerConfig, group: str, there_after: bool
) -> None:
    """The group is created by the question, as at RocketMQ 5, but never by a slave."""
    side = ConsumeSide(config)
    response = side.ask(request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group))
    if there_after:
        assert body_of(response)["groupName"] == group
    else:
        assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert (group in side.groups.groups) == there_after


# Connected clients.


def test_consumer_connections() -> None:
    side = ConsumeSide()
    side.beat(language=LanguageCode.CPP, version=333)
    body = body_of(side.ask(request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")))
    assert body == {
        "connectionSet": [
            {
                "clientAddr": "127.0.0.1:5555",
                "clientId": "1.2.3.4@1",
                "language": "CPP",
                "version": 333,
            }
        ],
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {"T": SubscriptionData("T", sub_version=5).to_dict()},
    }


def test_consumers_offline_are_206() -> None:
    response = ConsumeSide().ask(
        request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
    )
    assert response.code == ResponseCode.CONSUMER_NOT_ONLINE


def test_producer_connections() -> None:
    side = ConsumeSide()
    command = request(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")
    assert side.ask(command).code == ResponseCode.SYSTEM_ERROR
    side.ask(producer_heartbeat())
    (connection,) = list_of(body_of(side.ask(command))["connectionSet"], "connectionSet")
    assert object_of(connection, "connection")["clientId"] == "1.2.3.4@1"


def test_every_producer_and_when_it_was_last_heard_of() -> None:
    side = ConsumeSide()
    side.ask(producer_heartbeat("pg", "1.2.3.4@1"), now_ms=1_000)
    side.ask(producer_heartbeat("other", "1.2.3.4@1"), now_ms=3_000)
    body = body_of(side.ask(request(RequestCode.GET_ALL_PRODUCER_INFO), now_ms=5_000))
    data = object_of(body["data"], "data")
    assert set(data) == {"pg", "other"}
    assert data["pg"] == [
        {
            "clientId": "1.2.3.4@1",
            "language": "JAVA",
            "lastUpdateTimestamp": WALL_MS + 1_000,
            "remoteIP": side.channel.peer,
            "version": 409,
        }
    ]
