from __future__ import annotations

import pytest
from support.handlers.consuming import ConsumeSide, heartbeat, producer_heartbeat, request
from support.handlers.sending import WALL_MS, FakeChannel

from trioha.broker import clients as clients_module
from trioha.config import BrokerConfig
from trioha.wire.bodies import SubscriptionGroupConfig, decode_consumer_list
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from trioha.wire.remoting_command import RemotingCommand

T5 = SubscriptionData("T", "TagA", sub_version=5)


def notices(channel: FakeChannel) -> list[RemotingCommand]:
    return [
        command
        for command in channel.sent
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    ]


def consumer_list(side: ConsumeSide, group: str = "g") -> tuple[str, ...]:
    response = side.ask(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group))
    assert response.code == 0, response.remark
    return decode_consumer_list(response.body_bytes())


# Rebalancing.


def test_two_consumers_share_and_one_takes_over_when_the_other_goes() -> None:
    side = ConsumeSide()
    first, second = FakeChannel(), FakeChannel()
    side.beat(first, client_id="a@1")
    assert len(notices(first)) == 1
    side.beat(second, client_id="b@2")
    # Both are told, the newcomer too, and find each other in the list.
    assert [len(notices(first)), len(notices(second))] == [2, 1]
    assert consumer_list(side) == ("a@1", "b@2")
    side.consumers.channel_closed(first)
    assert [len(notices(first)), len(notices(second))] == [2, 2]
    assert consumer_list(side) == ("b@2",)


def test_notice_is_oneway_and_names_the_group() -> None:
    side = ConsumeSide()
    side.beat()
    (notice,) = notices(side.channel)
    assert notice.ext_fields == {"consumerGroup": "g"}
    assert notice.flag == ONEWAY_FLAG


def test_list_already_holds_the_newcomer_when_the_notice_goes_out() -> None:
    side = ConsumeSide()
    seen: list[list[str]] = []

    class AskingChannel(FakeChannel):
        def send_nowait(self, command: RemotingCommand) -> None:
            seen.append(side.consumers.client_ids("g"))

    side.beat(AskingChannel(), client_id="a@1")
    side.beat(AskingChannel(), client_id="b@2")
    assert seen == [["a@1"], ["a@1", "b@2"], ["a@1", "b@2"]]


def test_heartbeat_without_news_notifies_nobody() -> None:
    side = ConsumeSide()
    for now_ms in (0, 30_000, 60_000):
        side.beat(now_ms=now_ms)
    assert len(notices(side.channel)) == 1


def test_unregistering_tells_those_who_stay() -> None:
    side = ConsumeSide()
    other = FakeChannel()
    side.beat(client_id="a@1")
    side.beat(other, client_id="b@2")
    goodbye = request(RequestCode.UNREGISTER_CLIENT, clientID="a@1", consumerGroup="g")
    assert side.ask(goodbye).code == 0
    assert len(notices(other)) == 2
    assert consumer_list(side) == ("b@2",)
    assert side.ask(goodbye).code == 0  # twice does no harm
    assert len(notices(other)) == 2


def test_group_ends_with_its_last_member() -> None:
    side = ConsumeSide()
    side.beat()
    side.consumers.channel_closed(side.channel)
    assert side.consumers.find("g") is None
    assert side.consumers.groups == []
    response = side.ask(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="g"))
    assert response.code == ResponseCode.SYSTEM_ERROR


def test_client_on_two_connections_is_listed_once() -> None:
    side = ConsumeSide()
    side.beat(FakeChannel(), client_id="a@1")
    side.beat(FakeChannel(), client_id="a@1")
    assert consumer_list(side) == ("a@1",)


def test_newest_connection_of_a_client_is_asked() -> None:
    side = ConsumeSide()
    old, new = FakeChannel(), FakeChannel()
    side.beat(old, client_id="a@1")
    side.beat(new, client_id="a@1")
    found = side.consumers.find_client("g", "a@1")
    assert found is not None
    assert found[0] is new
    assert side.consumers.find_client("g", "nobody") is None


def test_one_connection_serves_many_groups() -> None:
    side = ConsumeSide()
    side.beat(group="g")
    side.beat(group="h")
    assert side.consumers.groups == ["g", "h"]
    side.consumers.channel_closed(side.channel)
    assert side.consumers.groups == []


@pytest.mark.parametrize("switch", ["broker", "group"])
def test_notices_can_be_switched_off(switch: str) -> None:
    side = ConsumeSide(BrokerConfig(notify_consumer_ids_changed_enable=switch != "broker"))
    if switch == "group":
        side.groups.put(
            SubscriptionGroupConfig("g", notify_consumer_ids_changed_enable=False), WALL_MS
        )
    side.beat()
    side.consumers.channel_closed(side.channel)
    assert notices(side.channel) == []


# Subscriptions.


def subscriptions(side: ConsumeSide) -> dict[str, str]:
    group = side.consumers.find("g")
    assert group is not None
    return {topic: data.sub_string for topic, data in group.subscriptions.items()}


def test_new_topic_is_added_and_told() -> None:
    side = ConsumeSide()
    side.beat(subscriptions=[T5])
    side.beat(subscriptions=[T5, SubscriptionData("%RETRY%g")])
    assert subscriptions(side) == {"T": "TagA", "%RETRY%g": "*"}
    assert len(notices(side.channel)) == 2


def test_topic_no_longer_listed_is_dropped_and_told() -> None:
    side = ConsumeSide()
    side.beat(subscriptions=[T5, SubscriptionData("U")])
    side.beat(subscriptions=[T5])
    assert subscriptions(side) == {"T": "TagA"}
    assert len(notices(side.channel)) == 2


@pytest.mark.parametrize(("version", "kept"), [(4, "TagA"), (5, "TagA"), (6, "TagB")])
def test_only_a_newer_subscription_replaces_and_that_is_not_told(version: int, kept: str) -> None:
    side = ConsumeSide()
    side.beat(subscriptions=[T5])
    side.beat(subscriptions=[SubscriptionData("T", "TagB", sub_version=version)])
    assert subscriptions(side) == {"T": kept}
    assert len(notices(side.channel)) == 1


def test_groups_subscribed_to_a_topic() -> None:
    side = ConsumeSide()
    side.beat(group="g")
    side.beat(group="h", subscriptions=[SubscriptionData("U")])
    assert side.consumers.groups_subscribed_to("T") == ["g"]


# Expiry.


def test_silent_consumer_is_gone_after_its_timeout_to_the_millisecond() -> None:
    side = ConsumeSide(BrokerConfig(client_channel_expired_timeout=120_000))
    silent, alive = FakeChannel(), FakeChannel()
    side.beat(silent, client_id="a@1", now_ms=0)
    side.beat(alive, client_id="b@2", now_ms=10)
    assert side.consumers.next_deadline_ms == 120_000
    side.consumers.expire(119_999)
    assert [silent.closed, alive.closed] == [False, False]
    side.consumers.expire(120_000)
    assert [silent.closed, alive.closed] == [True, False]
    assert consumer_list(side) == ("b@2",)
    assert len(notices(alive)) == 2
    assert side.consumers.next_deadline_ms == 120_010


def test_heartbeat_puts_the_deadline_off() -> None:
    side = ConsumeSide()
    side.beat(now_ms=0)
    side.beat(now_ms=30_000)
    side.consumers.expire(120_000)
    assert consumer_list(side) == ("1.2.3.4@1",)
    assert side.consumers.next_deadline_ms == 150_000


def test_nobody_registered_has_no_deadline() -> None:
    side = ConsumeSide()
    assert side.consumers.next_deadline_ms is None
    assert side.producers.next_deadline_ms is None


def test_closing_while_expiring_does_no_harm() -> None:
    side = ConsumeSide()

    class ClosingChannel(FakeChannel):
        def close_nowait(self, reason: str) -> None:
            side.consumers.channel_closed(self)

    channel = ClosingChannel()
    side.beat(channel, group="g")
    side.beat(channel, group="h")
    side.consumers.expire(120_000)
    assert side.consumers.groups == []


def test_silent_producer_is_gone_too() -> None:
    side = ConsumeSide()
    side.ask(producer_heartbeat())
    assert side.producers.next_deadline_ms == 120_000
    side.producers.expire(120_000)
    assert side.channel.closed
    assert side.producers.groups == []


def test_producers_come_and_go() -> None:
    side = ConsumeSide()
    other = FakeChannel()
    side.ask(producer_heartbeat())
    side.ask(producer_heartbeat(client_id="b@2"), other)
    assert [client.client_id for _, client in side.producers.members("pg")] == ["1.2.3.4@1", "b@2"]
    side.ask(request(RequestCode.UNREGISTER_CLIENT, clientID="b@2", producerGroup="pg"), other)
    side.producers.channel_closed(side.channel)
    assert side.producers.members("pg") == []
    assert side.producers.groups == []


# Limits.


def test_one_connection_registers_a_bounded_number_of_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients_module, "GROUPS_PER_CHANNEL_MAX", 2)
    side = ConsumeSide()
    side.beat(group="a")
    side.beat(group="b")
    assert side.beat(group="c").code == ResponseCode.SYSTEM_ERROR
    assert side.beat(group="b").code == 0  # a renewal needs no room
    data = HeartbeatData("x", producers=[ProducerData(name) for name in ("p", "q", "r")])
    assert side.ask(heartbeat(data)).code == ResponseCode.SYSTEM_ERROR
    assert side.producers.groups == []


def test_one_group_subscribes_to_a_bounded_number_of_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients_module, "SUBSCRIPTIONS_PER_GROUP_MAX", 1)
    side = ConsumeSide()
    response = side.beat(subscriptions=[T5, SubscriptionData("U")])
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert side.consumers.groups == []


def test_one_channel_is_not_counted_for_another() -> None:
    side = ConsumeSide()
    consumer = ConsumerData("g", subscriptions=[T5])
    side.consumers.check_room(side.channel, [consumer] * 2_000)


def test_all_connections_together_register_a_bounded_number_of_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients_module, "REGISTRATIONS_MAX", 2)
    side = ConsumeSide()
    for channel in (FakeChannel(), FakeChannel()):
        side.beat(channel=channel)
    assert side.beat(channel=FakeChannel()).code == ResponseCode.SYSTEM_BUSY
    assert side.beat(channel=channel).code == 0


def test_subscriptions_take_a_bounded_amount_of_memory_which_leaving_groups_give_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = SubscriptionData("T", "||".join(f"tag{number}" for number in range(5_000)))
    monkeypatch.setattr(clients_module, "SUBSCRIPTION_BYTES_MAX", 150_000)
    side = ConsumeSide()
    channels = [FakeChannel() for _ in range(4)]
    codes = [
        side.beat(group=f"g{number}", channel=channel, subscriptions=[large]).code
        for number, channel in enumerate(channels)
    ]
    assert codes == [0, 0, 0, ResponseCode.SYSTEM_BUSY]
    assert side.beat(group="g0", channel=channels[0], subscriptions=[large]).code == 0
    side.consumers.channel_closed(channels[1])
    assert side.beat(group="g3", channel=channels[3], subscriptions=[large]).code == 0
