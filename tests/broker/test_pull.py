from __future__ import annotations

import attrs
import pytest
from support.handlers.consuming import COMMIT, SUBSCRIPTION, SUSPEND, ConsumeSide, pull
from support.handlers.sending import WALL_MS, FakeChannel, at

from trioha.broker import pull as pull_module
from trioha.broker.cold_reads import LOOKS_MAX, ColdReads
from trioha.broker.parking import Limits
from trioha.config import BrokerConfig, BrokerRole
from trioha.store.interface import GetResult, GetStatus
from trioha.wire.bodies import SubscriptionGroupConfig, TopicConfig
from trioha.wire.codes import FRAME_BYTES_MAX, ONEWAY_FLAG, LanguageCode, RequestCode, ResponseCode
from trioha.wire.heartbeat import MessageModel, SubscriptionData
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import RemotingCommand, encode_buffers

SLAVE = BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1)
FOUR_OFFSETS = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}


def finding(
    side: ConsumeSide,
    status: GetStatus,
    *,
    next_offset: int = 7,
    slow: bool = False,
) -> None:
    """Make the store return this status whatever is asked."""
    result = GetResult(status, next_offset, 3, 9, suggest_pulling_from_slave=slow)
    side.store.get_message = lambda *_: result  # type: ignore[method-assign]


# Messages that are found.


def test_messages_are_answered_with_the_stores_own_views() -> None:
    side = ConsumeSide()
    side.put("TagA")
    side.put("TagB")
    response = side.ask(pull(0))
    assert (response.code, response.remark, response.opaque) == (0, "FOUND", 9)
    assert response.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "2",
        "minOffset": "0",
        "maxOffset": "2",
    }
    assert isinstance(response.body, list)
    assert all(isinstance(view, memoryview) for view in response.body)
    assert [record.queue_offset for record in decode_records(response.body_bytes())] == [0, 1]


def test_lite_pull_is_a_pull() -> None:
    side = ConsumeSide()
    side.put()
    assert side.ask(pull(0, code=RequestCode.LITE_PULL_MESSAGE)).code == 0


def test_max_msg_nums_limits_the_batch_and_zero_means_one() -> None:
    side = ConsumeSide()
    for _ in range(5):
        side.put()
    assert side.ask(pull(0, maxMsgNums=2)).ext_fields["nextBeginOffset"] == "2"
    assert side.ask(pull(0, maxMsgNums=0)).ext_fields["nextBeginOffset"] == "1"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (GetStatus.FOUND, ResponseCode.SUCCESS),
        (GetStatus.NO_MATCHED_MESSAGE, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetStatus.MESSAGE_WAS_REMOVING, ResponseCode.PULL_RETRY_IMMEDIATELY),
        (GetStatus.OFFSET_FOUND_NULL, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.OFFSET_OVERFLOW_ONE, ResponseCode.PULL_NOT_FOUND),
        (GetStatus.OFFSET_OVERFLOW_BADLY, ResponseCode.PULL_OFFSET_MOVED),
        (GetStatus.OFFSET_TOO_SMALL, ResponseCode.PULL_OFFSET_MOVED),
    ],
)
def test_every_finding_has_its_code_and_the_four_offsets(
    status: GetStatus, code: ResponseCode
) -> None:
    side = ConsumeSide()
    finding(side, status)
    response = side.ask(pull(5))
    assert (response.code, response.remark) == (code, status.name)
    assert response.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "7",
        "minOffset": "3",
        "maxOffset": "9",
    }


def test_every_status_of_the_store_is_mapped() -> None:
    assert set(pull_module._CODES) == set(GetStatus) - {GetStatus.FOUND}


def test_empty_queue_at_offset_zero_has_nothing_yet() -> None:
    response = ConsumeSide().ask(pull(0))
    assert response.code == ResponseCode.PULL_NOT_FOUND
    assert response.ext_fields["nextBeginOffset"] == "0"


def test_empty_queue_at_another_offset_moves_the_client_to_zero() -> None:
    response = ConsumeSide().ask(pull(5))
    assert response.code == ResponseCode.PULL_OFFSET_MOVED
    assert response.ext_fields["nextBeginOffset"] == "0"


def test_offset_at_the_end_is_never_moved() -> None:
    side = ConsumeSide()
    side.put()
    response = side.ask(pull(1))
    assert response.code == ResponseCode.PULL_NOT_FOUND
    assert set(response.ext_fields) == FOUR_OFFSETS


def test_offset_beyond_the_end_is_moved_to_the_maximum() -> None:
    side = ConsumeSide()
    side.put()
    response = side.ask(pull(50))
    assert response.code == ResponseCode.PULL_OFFSET_MOVED
    assert response.ext_fields["nextBeginOffset"] == "1"


def test_offset_below_the_first_is_moved_to_the_minimum() -> None:
    side = ConsumeSide()
    for _ in range(3):
        side.put()
    side.store.queue_minimum["T", 0] = 2
    response = side.ask(pull(0))
    assert response.code == ResponseCode.PULL_OFFSET_MOVED
    assert response.ext_fields["nextBeginOffset"] == "2"


def test_selective_consumer_gets_on_although_nothing_matched() -> None:
    side = ConsumeSide()
    for _ in range(3):
        side.put("TagB")
    response = side.ask(pull(0, subscription="TagA"))
    assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert response.ext_fields["nextBeginOffset"] == "3"


def test_answer_larger_than_a_frame_is_cut_between_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side = ConsumeSide()
    size = len(side.store.records[side.put()])
    side.put()
    side.put()
    # The store hands out neighbours as one view.
    merged = memoryview(bytes(side.store.log))
    result = GetResult(GetStatus.FOUND, 3, 0, 3, [merged], 3, len(merged))
    side.store.get_message = lambda *_: result  # type: ignore[method-assign]
    monkeypatch.setattr(pull_module, "BODY_BYTES_MAX", 2 * size + 1)
    response = side.ask(pull(0))
    assert response.ext_fields["nextBeginOffset"] == "2"
    assert [record.queue_offset for record in decode_records(response.body_bytes())] == [0, 1]


def test_answer_is_cut_between_views_too(monkeypatch: pytest.MonkeyPatch) -> None:
    side = ConsumeSide()
    size = len(side.store.records[side.put()])
    side.put()
    monkeypatch.setattr(pull_module, "BODY_BYTES_MAX", size)
    response = side.ask(pull(0))
    assert response.ext_fields["nextBeginOffset"] == "1"
    assert len(response.body_bytes()) == size


def test_record_that_no_frame_can_carry_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    side = ConsumeSide()
    side.put()
    monkeypatch.setattr(pull_module, "BODY_BYTES_MAX", 10)
    response = side.ask(pull(0))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "more than a frame" in (response.remark or "")


def test_largest_body_fits_a_frame() -> None:
    body = memoryview(bytes(pull_module.BODY_BYTES_MAX))
    response = RemotingCommand(0, dict.fromkeys(FOUR_OFFSETS, str(2**63 - 1)), [body])
    assert sum(map(len, encode_buffers(response))) <= FRAME_BYTES_MAX


# Checks, in their order: each request below also violates everything that is checked later.


def all_wrong(side: ConsumeSide) -> RemotingCommand:
    side.groups.put(SubscriptionGroupConfig("g", consume_enable=False), WALL_MS)
    return pull(0, flags=0, topic="Unknown", queueId=99)


def test_unreadable_broker_is_checked_first() -> None:
    side = ConsumeSide(BrokerConfig(broker_permission=2))
    response = side.ask(all_wrong(side))
    assert response.code == ResponseCode.NO_PERMISSION
    assert "broker" in (response.remark or "")


def test_unknown_group_comes_second() -> None:
    side = ConsumeSide(BrokerConfig(auto_create_subscription_group=False))
    response = side.ask(pull(0, flags=0, topic="Unknown", queueId=99))
    assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_group_comes_into_being_with_its_first_pull() -> None:
    side = ConsumeSide()
    side.ask(pull(0))
    assert side.groups.get("g") is not None


def test_group_that_may_not_consume_comes_third() -> None:
    side = ConsumeSide()
    response = side.ask(all_wrong(side))
    assert response.code == ResponseCode.NO_PERMISSION
    assert "group" in (response.remark or "")


def test_unknown_topic_comes_fourth() -> None:
    response = ConsumeSide().ask(pull(0, flags=0, topic="Unknown", queueId=99))
    assert response.code == ResponseCode.TOPIC_NOT_EXIST


def test_unreadable_topic_comes_fifth() -> None:
    side = ConsumeSide()
    side.topics.put(TopicConfig("W", 4, 4, perm=2), WALL_MS)
    response = side.ask(pull(0, flags=0, topic="W", queueId=99))
    assert response.code == ResponseCode.NO_PERMISSION
    assert "topic" in (response.remark or "")


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_queue_out_of_range_comes_sixth(queue_id: int) -> None:
    response = ConsumeSide().ask(pull(0, flags=0, queueId=queue_id))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "queueId" in (response.remark or "")


def test_read_queue_nums_bound_the_queue_not_write_queue_nums() -> None:
    side = ConsumeSide()
    side.topics.put(TopicConfig("T", 2, 4), WALL_MS)
    assert side.ask(pull(0, queueId=1)).code == ResponseCode.PULL_NOT_FOUND
    assert side.ask(pull(0, queueId=2)).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("subscription", "expression_type", "code"),
    [
        ("||", "TAG", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("a > 1", "SQL92", ResponseCode.SYSTEM_ERROR),
        ("x", "LUA", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
def test_bad_subscription_in_the_header(
    subscription: str, expression_type: str, code: ResponseCode
) -> None:
    response = ConsumeSide().ask(pull(0, subscription=subscription, expressionType=expression_type))
    assert response.code == code


def test_subscription_in_the_header_needs_no_heartbeat_and_may_lack_its_fields() -> None:
    request = pull(0)
    for name in ("subscription", "expressionType", "subVersion"):
        del request.ext_fields[name]
    assert ConsumeSide().ask(request).code == ResponseCode.PULL_NOT_FOUND


def test_pull_before_the_first_heartbeat_is_told_to_wait_for_it() -> None:
    assert ConsumeSide().ask(pull(0, flags=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


def test_broadcasting_group_may_be_forbidden() -> None:
    side = ConsumeSide()
    side.groups.put(SubscriptionGroupConfig("g", consume_broadcast_enable=False), WALL_MS)
    side.beat(model=MessageModel.BROADCASTING)
    assert side.ask(pull(0, flags=0)).code == ResponseCode.NO_PERMISSION
    side.beat(model=MessageModel.CLUSTERING)
    assert side.ask(pull(0, flags=0)).code == ResponseCode.PULL_NOT_FOUND


def test_topic_the_group_is_not_subscribed_to() -> None:
    side = ConsumeSide()
    side.beat(subscriptions=[SubscriptionData("Other")])
    assert side.ask(pull(0, flags=0)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


def test_subscription_older_than_the_clients_is_not_latest() -> None:
    side = ConsumeSide()
    side.beat(subscriptions=[SubscriptionData("T", "TagA", sub_version=4)])
    assert side.ask(pull(0, flags=0)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    side.beat(subscriptions=[SubscriptionData("T", "TagA", sub_version=5)])
    assert side.ask(pull(0, flags=0)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize(
    ("expression_type", "code"),
    [("SQL92", ResponseCode.SYSTEM_ERROR), ("LUA", ResponseCode.FILTER_DATA_NOT_EXIST)],
)
def test_expression_of_a_heartbeat_we_have_no_filter_for(
    expression_type: str, code: ResponseCode
) -> None:
    side = ConsumeSide()
    side.beat(
        subscriptions=[
            SubscriptionData("T", "a > 1", sub_version=5, expression_type=expression_type)
        ]
    )
    assert side.ask(pull(0, flags=0)).code == code


def test_push_consumer_is_filtered_by_its_heartbeats_subscription() -> None:
    side = ConsumeSide()
    side.beat(subscriptions=[SubscriptionData("T", "TagA", sub_version=5)])
    for tags in ("TagA", "TagB", "TagA"):
        side.put(tags)
    response = side.ask(pull(0, flags=0, subscription=""))
    records = decode_records(response.body_bytes())
    assert [record.queue_offset for record in records] == [0, 2]


def test_class_filter_subscription_gets_everything() -> None:
    side = ConsumeSide()
    side.beat(
        subscriptions=[SubscriptionData("T", "some.Class", sub_version=5, class_filter_mode=True)]
    )
    side.put("TagA")
    assert side.ask(pull(0, flags=0)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("field", ["consumerGroup", "topic", "queueId", "queueOffset", "sysFlag"])
def test_missing_field_is_an_error_that_names_it(field: str) -> None:
    request = pull(0)
    del request.ext_fields[field]
    response = ConsumeSide().ask(request)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert field in (response.remark or "")


# SQL92.

SQL_CONFIG = BrokerConfig(enable_property_filter=True)


def sql(expression: str, topic: str = "T", sub_version: int = 5) -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=sub_version, expression_type="SQL92")


def offsets_of(response: RemotingCommand) -> list[int]:
    return [record.queue_offset for record in decode_records(response.body_bytes())]


def test_a_sql_filter_in_the_header_takes_messages_by_their_properties() -> None:
    side = ConsumeSide(SQL_CONFIG)
    for number in range(6):
        side.put("TagA", properties={"n": str(number)})
    response = side.ask(pull(0, subscription="n BETWEEN 2 AND 3", expressionType="SQL92"))
    assert (offsets_of(response), response.ext_fields["nextBeginOffset"]) == ([2, 3], "6")
    response = side.ask(pull(0, subscription="n > 9", expressionType="SQL92"))
    assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert response.ext_fields["nextBeginOffset"] == "6"
    response = side.ask(pull(0, subscription="n >", expressionType="SQL92"))
    assert response.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_a_sql_filter_of_a_heartbeat_may_change() -> None:
    side = ConsumeSide(SQL_CONFIG)
    side.beat(subscriptions=[sql("n = 1")])
    for number in range(3):
        side.put(properties={"n": str(number)})
    assert offsets_of(side.ask(pull(0, flags=0))) == [1]
    assert side.ask(pull(0, flags=0, subVersion="6")).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    side.beat(subscriptions=[sql("n <> 1", sub_version=6)])
    assert offsets_of(side.ask(pull(0, flags=0, subVersion="6"))) == [0, 2]
    side.beat(subscriptions=[sql("n <>", sub_version=7)])
    response = side.ask(pull(0, flags=0, subVersion="7"))
    assert response.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "character 5" in (response.remark or "")


def test_any_message_wakes_a_pull_that_a_sql_filter_parked() -> None:
    side = ConsumeSide(SQL_CONFIG)
    side.beat(subscriptions=[sql("n = 1")])
    for number, code in (("0", ResponseCode.PULL_RETRY_IMMEDIATELY), ("1", ResponseCode.SUCCESS)):
        offset = side.store.max_offset_in_queue("T", 0)
        assert side.handle(pull(offset, flags=SUSPEND)) is None
        side.put("TagA", properties={"n": number})
        side.pulls.answer_due(at(0))
        assert side.channel.sent[-1].code == code


@pytest.mark.parametrize("filters_retries", [False, True])
def test_retried_messages_are_filtered_if_that_is_asked_for(filters_retries: bool) -> None:
    side = ConsumeSide(attrs.evolve(SQL_CONFIG, filter_support_retry=filters_retries))
    retry = SubscriptionData("%RETRY%g", "*", sub_version=5)
    side.beat(subscriptions=[sql("n = 1"), retry])
    for number in range(3):
        side.put(topic="%RETRY%g", properties={"n": str(number), "RETRY_TOPIC": "T"})
    side.put(topic="%RETRY%g", properties={"RETRY_TOPIC": "another"})
    response = side.ask(pull(0, flags=0, topic="%RETRY%g"))
    assert offsets_of(response) == ([1, 3] if filters_retries else [0, 1, 2, 3])


# Long polling.


def parked_side(config: BrokerConfig | None = None, **fields: str) -> ConsumeSide:
    side = ConsumeSide(config)
    request = pull(0, flags=SUBSCRIPTION | SUSPEND)
    request.ext_fields.update(fields)
    assert side.handle(request) is None
    return side


def test_pull_without_suspend_bit_is_answered_at_once() -> None:
    side = ConsumeSide()
    assert side.ask(pull(0)).code == ResponseCode.PULL_NOT_FOUND
    assert len(side.hold) == 0


@pytest.mark.parametrize(
    "status",
    [
        GetStatus.NO_MATCHED_MESSAGE,
        GetStatus.MESSAGE_WAS_REMOVING,
        GetStatus.OFFSET_OVERFLOW_BADLY,
        GetStatus.OFFSET_TOO_SMALL,
    ],
)
def test_only_code_19_is_parked(status: GetStatus) -> None:
    side = ConsumeSide()
    finding(side, status)
    assert side.handle(pull(5, flags=SUBSCRIPTION | SUSPEND)) is not None


def test_message_wakes_the_parked_pull() -> None:
    side = parked_side()
    side.put("TagA")
    side.pulls.answer_due(at(1))
    (response,) = side.channel.sent
    assert (response.code, response.opaque) == (0, 9)
    assert [record.queue_offset for record in decode_records(response.body_bytes())] == [0]


def test_message_of_another_tag_does_not_wake_and_the_deadline_moves_the_client_on() -> None:
    side = parked_side(subscription="TagA")
    side.put("TagB")
    side.pulls.answer_due(at(1))
    assert side.channel.sent == []
    side.pulls.answer_due(at(15_000))
    (response,) = side.channel.sent
    assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert response.ext_fields["nextBeginOffset"] == "1"


def test_deadline_answers_with_19_and_does_not_park_again() -> None:
    side = parked_side()
    assert side.hold.next_deadline_ms == 15_000
    side.pulls.answer_due(at(14_999))
    assert side.channel.sent == []
    side.pulls.answer_due(at(15_000))
    (response,) = side.channel.sent
    assert response.code == ResponseCode.PULL_NOT_FOUND
    assert set(response.ext_fields) == FOUR_OFFSETS
    assert len(side.hold) == 0


def test_parked_pull_is_answered_once() -> None:
    side = parked_side()
    side.put()
    side.put()
    side.pulls.answer_due(at(15_000))
    side.pulls.answer_due(at(30_000))
    assert len(side.channel.sent) == 1


def test_short_polling_holds_for_its_own_time() -> None:
    side = parked_side(BrokerConfig(long_polling_enable=False, short_polling_time_mills=1_000))
    assert side.hold.next_deadline_ms == 1_000


@pytest.mark.parametrize(
    ("asked", "held_ms"), [("-5", 0), ("99999999999", pull_module.SUSPEND_MS_MAX)]
)
def test_patience_is_kept_within_bounds(asked: str, held_ms: int) -> None:
    assert parked_side(suspendTimeoutMillis=asked).hold.next_deadline_ms == held_ms


def test_parked_pull_is_refused_if_the_topic_went_meanwhile() -> None:
    side = parked_side()
    side.topics.delete("T", WALL_MS)
    side.pulls.answer_due(at(15_000))
    assert [response.code for response in side.channel.sent] == [ResponseCode.TOPIC_NOT_EXIST]


def test_closed_channel_is_not_answered() -> None:
    side = parked_side()
    side.hold.channel_closed(side.channel)
    side.put()
    side.pulls.answer_due(at(15_000))
    assert side.channel.sent == []


def test_full_hold_answers_at_once() -> None:
    side = ConsumeSide()
    side.hold._parked_max = 0
    response = side.ask(pull(0, flags=SUBSCRIPTION | SUSPEND))
    assert response.code == ResponseCode.PULL_NOT_FOUND


def test_oneway_pull_is_not_parked() -> None:
    side = ConsumeSide()
    request = pull(0, flags=SUBSCRIPTION | SUSPEND)
    request.flag = ONEWAY_FLAG
    side.handle(request)
    assert len(side.hold) == 0


def test_parked_request_does_not_keep_the_read_buffer() -> None:
    side = ConsumeSide()
    request = pull(0, flags=SUBSCRIPTION | SUSPEND)
    read = bytearray(65_536)
    request.body = memoryview(read)[65_536:]
    side.handle(request)
    read.append(0)  # Python forbids that as long as there is a view of it.


def test_slave_wakes_its_parked_pulls_when_a_message_is_dispatched() -> None:
    side = parked_side(SLAVE)
    side.put()
    assert side.hold.has_due
    side.pulls.answer_due(at(1))
    assert [response.code for response in side.channel.sent] == [0]


# Progress on a pull.


def test_commit_bit_commits_on_a_master() -> None:
    side = ConsumeSide()
    side.put()
    side.ask(pull(0, flags=SUBSCRIPTION | COMMIT, commitOffset=1))
    assert side.offsets.query("g", "T", 0) == 1


def test_without_the_bit_nothing_is_committed() -> None:
    side = ConsumeSide()
    side.ask(pull(0, commitOffset=1))
    assert side.offsets.query("g", "T", 0) == -1


def test_parked_pull_commits_when_it_is_parked_and_not_again() -> None:
    side = ConsumeSide()
    side.handle(pull(0, flags=SUBSCRIPTION | SUSPEND | COMMIT, commitOffset=4))
    assert side.offsets.query("g", "T", 0) == 4
    side.offsets.commit("g", "T", 0, 6)  # the consumer's own commit while it waits
    side.put()
    side.pulls.answer_due(at(1))
    assert side.offsets.query("g", "T", 0) == 6


def test_refused_pull_commits_nothing() -> None:
    side = ConsumeSide()
    side.ask(pull(0, flags=COMMIT, commitOffset=4))  # no heartbeat: 24
    assert side.offsets.query("g", "T", 0) == -1


def test_slave_commits_nothing_on_a_pull() -> None:
    side = ConsumeSide(SLAVE)
    side.ask(pull(0, flags=SUBSCRIPTION | COMMIT, commitOffset=4))
    assert side.offsets.query("g", "T", 0) == -1


# Slaves.


@pytest.mark.parametrize(
    "status",
    [
        GetStatus.OFFSET_TOO_SMALL,
        GetStatus.OFFSET_OVERFLOW_BADLY,
        GetStatus.NO_MESSAGE_IN_QUEUE,
    ],
)
def test_slave_does_not_move_a_client_but_sends_it_to_the_groups_broker(
    status: GetStatus,
) -> None:
    side = ConsumeSide(SLAVE)
    side.groups.put(SubscriptionGroupConfig("g", broker_id=2), WALL_MS)
    finding(side, status)
    response = side.ask(pull(5))
    assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert response.ext_fields["nextBeginOffset"] == "5"
    assert response.ext_fields["suggestWhichBrokerId"] == "2"


def test_slave_that_checks_offsets_moves_the_client() -> None:
    side = ConsumeSide(attrs.evolve(SLAVE, offset_check_in_slave=True))
    finding(side, GetStatus.OFFSET_OVERFLOW_BADLY)
    response = side.ask(pull(5))
    assert response.code == ResponseCode.PULL_OFFSET_MOVED
    assert response.ext_fields["nextBeginOffset"] == "7"


def test_slave_serves_what_it_has_even_if_slave_read_is_off() -> None:
    side = ConsumeSide(SLAVE)
    side.put()
    assert side.ask(pull(0)).code == ResponseCode.SUCCESS


def test_slave_advances_over_what_the_filter_refused() -> None:
    side = ConsumeSide(SLAVE)
    side.put("TagB")
    response = side.ask(pull(0, subscription="TagA"))
    assert response.ext_fields["nextBeginOffset"] == "1"


# The broker that a client should ask next.


@pytest.mark.parametrize(
    ("slave_read_enable", "slow", "suggested"),
    [(False, False, "0"), (False, True, "0"), (True, False, "3"), (True, True, "4")],
)
@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SLAVE])
def test_slow_consumers_go_to_the_slave_if_it_may_be_read(
    role: BrokerRole, slave_read_enable: bool, slow: bool, suggested: str
) -> None:
    side = ConsumeSide(BrokerConfig(broker_role=role, slave_read_enable=slave_read_enable))
    side.groups.put(
        SubscriptionGroupConfig("g", broker_id=3, which_broker_when_consume_slowly=4), WALL_MS
    )
    finding(side, GetStatus.FOUND, slow=slow)
    assert side.ask(pull(5)).ext_fields["suggestWhichBrokerId"] == suggested


def test_settings_by_default_bring_a_consumer_that_caught_up_back_to_the_master() -> None:
    side = ConsumeSide(BrokerConfig(slave_read_enable=True))
    finding(side, GetStatus.FOUND, slow=True)
    assert side.ask(pull(5)).ext_fields["suggestWhichBrokerId"] == "1"
    finding(side, GetStatus.FOUND, slow=False)
    assert side.ask(pull(5)).ext_fields["suggestWhichBrokerId"] == "0"


def test_two_clients_wait_for_one_queue() -> None:
    side = ConsumeSide()
    one, other = FakeChannel(), FakeChannel()
    for channel in (one, other):
        assert side.handle(pull(0, flags=SUBSCRIPTION | SUSPEND), channel) is None
    side.put()
    side.pulls.answer_due(at(1))
    assert [len(one.sent), len(other.sent)] == [1, 1]


# A C++ client that has plenty is held up.


def cpp_pull(
    offset: int, committed: int, flags: int = SUBSCRIPTION | COMMIT | SUSPEND
) -> RemotingCommand:
    request = pull(offset, flags=flags, commitOffset=str(committed))
    request.language = LanguageCode.CPP
    return request


def long_side() -> ConsumeSide:
    """Return a side whose store finds messages, whatever is asked."""
    side = ConsumeSide()
    side.store.max_offset_in_queue = lambda *_: 5000  # type: ignore[method-assign]
    finding(side, GetStatus.FOUND)
    return side


@pytest.mark.parametrize(("cached", "pace_ms"), [(528, 1), (768, 16), (1024, 32), (4000, 32)])
def test_the_more_a_cpp_client_has_the_longer_it_waits(cached: int, pace_ms: int) -> None:
    side = long_side()
    assert side.handle(cpp_pull(4500, 4500 - cached)) is None
    assert side.hold.next_deadline_ms == pace_ms
    side.hold.on_dispatch("T", 0, 5001, [0])
    assert not side.hold.has_due
    side.pulls.answer_due(at(pace_ms))
    (answer,) = side.channel.sent
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (0, "7")
    assert side.offsets.query("g", "T", 0) == 4500 - cached


def test_a_cpp_client_that_has_little_is_answered_at_once() -> None:
    side = long_side()
    assert side.ask(cpp_pull(4500, 4000)).code == 0
    assert side.ask(cpp_pull(4500, 0, SUBSCRIPTION | SUSPEND)).code == 0
    assert side.ask(cpp_pull(4500, 1, SUBSCRIPTION | COMMIT)).code == 0
    assert side.ask(pull(4500, flags=SUBSCRIPTION | COMMIT | SUSPEND)).code == 0


def test_a_cpp_client_that_has_everything_waits_for_a_message() -> None:
    side = long_side()
    finding(side, GetStatus.OFFSET_OVERFLOW_ONE)
    assert side.handle(cpp_pull(5000, 1)) is None
    assert side.hold.next_deadline_ms == 15_000


def test_parked_pulls_keep_what_they_need_and_not_what_came_along() -> None:
    side = parked_side()
    side.put()
    side.pulls.answer_due(at(1))
    for _ in range(300):
        junk = pull(1, flags=SUBSCRIPTION | SUSPEND, subscription="*", junk="x" * 250_000)
        junk.remark = "y" * 250_000
        assert side.handle(junk) is None
    parked = [one for queue in side.hold.by_queue.values() for one in queue]
    assert len(parked) == 300
    assert not any("junk" in one.request.ext_fields or one.request.remark for one in parked)
    assert sum(one.request.detach() for one in parked) < 1 << 20


def test_pulls_with_large_subscriptions_are_parked_as_long_as_there_is_room() -> None:
    side = ConsumeSide()
    subscription = "||".join(f"tag{number}" for number in range(6_000))
    answers = [
        side.handle(pull(0, flags=SUBSCRIPTION | SUSPEND, subscription=subscription))
        for _ in range(300)
    ]
    assert answers[0] is None
    assert answers[-1] is not None
    assert answers[-1].code == ResponseCode.PULL_NOT_FOUND


# Messages that are on disk only.


class ColdSide(ConsumeSide):
    """The store has to read from disk for so many looks."""

    def __init__(self, looks: int, config: BrokerConfig | None = None) -> None:
        super().__init__(config)
        self.put()
        self.store.on_disk["T", 0] = looks

    def read(self, now_ms: int) -> int:
        """Read what waits for the disk; return how many pulls that were."""
        reads = self.pulls.cold.take(now_ms, 0)
        self.pulls.cold.were_read(reads)
        self.pulls.cold.answer_due(at(now_ms))
        return len(reads)


def test_a_pull_of_messages_on_disk_is_answered_once_they_were_read() -> None:
    side = ColdSide(looks=2)
    assert side.handle(pull(0, flags=SUBSCRIPTION | COMMIT, commitOffset=7)) is None
    assert (side.read(1), side.channel.sent) == (1, [])
    assert side.offsets.query("g", "T", 0) == 7
    side.offsets.commit("g", "T", 0, 9)
    assert side.read(2) == 1
    (answer,) = side.channel.sent
    assert (answer.code, answer.opaque, answer.ext_fields["nextBeginOffset"]) == (0, 9, "1")
    assert side.offsets.query("g", "T", 0) == 9, "its commit counts once"
    assert side.read(3) == 0


def test_a_consumer_whose_pulls_wait_for_the_masters_disk_goes_to_the_slave() -> None:
    side = ColdSide(looks=1, config=BrokerConfig(slave_read_enable=True))
    assert side.handle(pull(0)) is None
    assert side.read(1) == 1
    suggested = [side.channel.sent[0].ext_fields["suggestWhichBrokerId"]]
    other_group = pull(0)
    other_group.ext_fields["consumerGroup"] = "another"
    for request, now_ms in ((pull(0), 2), (other_group, 2), (pull(0), 10_000), (pull(0), 10_001)):
        answer = side.pulls.pull(side.channel, request, at(now_ms))
        assert answer is not None
        suggested.append(answer.ext_fields["suggestWhichBrokerId"])
    assert suggested == ["1", "1", "0", "1", "0"]


@pytest.mark.parametrize(("is_old", "suggested"), [(True, "1"), (False, "0")])
def test_a_slave_keeps_a_consumer_until_it_reads_what_is_in_memory_everywhere(
    is_old: bool, suggested: str
) -> None:
    side = ConsumeSide(attrs.evolve(SLAVE, slave_read_enable=True))
    result = GetResult(GetStatus.FOUND, 7, 3, 9, is_old=is_old)
    side.store.get_message = lambda *_: result  # type: ignore[method-assign]
    assert side.ask(pull(5)).ext_fields["suggestWhichBrokerId"] == suggested


def test_a_master_does_not_send_a_consumer_away_whose_old_messages_are_in_memory() -> None:
    side = ConsumeSide(BrokerConfig(slave_read_enable=True))
    result = GetResult(GetStatus.FOUND, 7, 3, 9, is_old=True)
    side.store.get_message = lambda *_: result  # type: ignore[method-assign]
    assert side.ask(pull(5)).ext_fields["suggestWhichBrokerId"] == "0"


def test_a_consumer_that_reads_from_disk_stays_where_slaves_are_not_read() -> None:
    side = ColdSide(looks=1)
    assert side.handle(pull(0)) is None
    assert side.read(1) == 1
    assert side.channel.sent[0].ext_fields["suggestWhichBrokerId"] == "0"


def test_a_pull_that_waits_too_long_for_the_disk_keeps_its_offset() -> None:
    side = ColdSide(looks=99)
    assert side.handle(pull(0, flags=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=15_000)) is None
    assert side.pulls.cold.next_deadline_ms == 15_000
    assert side.read(14_000) == 1  # and it is still on disk
    assert side.pulls.cold.next_deadline_ms == 15_000
    side.pulls.cold.answer_due(at(15_000))
    (answer,) = side.channel.sent
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NOT_IN_MEMORY")
    assert answer.ext_fields["nextBeginOffset"] == "0"
    assert set(answer.ext_fields) == FOUR_OFFSETS


def test_a_pull_without_patience_waits_three_seconds_for_the_disk() -> None:
    side = ColdSide(looks=1)
    assert side.handle(pull(0)) is None
    assert side.pulls.cold.next_deadline_ms == 3000


def test_a_pull_gets_on_although_memory_keeps_nothing() -> None:
    side = ColdSide(looks=99)
    assert side.handle(pull(0)) is None
    while not side.channel.sent:
        assert side.read(1) == 1
    assert side.store.on_disk["T", 0] == 99 - LOOKS_MAX
    assert side.channel.sent[0].code == 0


def test_the_disk_is_read_at_once_where_the_operator_says_so() -> None:
    side = ColdSide(looks=99, config=BrokerConfig(cold_data_flow_control_enable=False))
    assert side.ask(pull(0)).code == 0
    assert side.store.on_disk["T", 0] == 99


def test_a_pull_that_finds_no_room_to_wait_for_the_disk_is_told_to_ask_again() -> None:
    side = ColdSide(looks=1)
    side.pulls.cold = ColdReads(side.config, limits=Limits(parked_max=0))
    response = side.ask(pull(0, flags=SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=15_000))
    assert (response.code, response.ext_fields["nextBeginOffset"]) == (19, "0")


def test_a_oneway_pull_does_not_wait_for_the_disk() -> None:
    side = ColdSide(looks=1)
    request = pull(0)
    request.flag |= ONEWAY_FLAG
    side.handle(request)
    assert len(side.pulls.cold) == 0
