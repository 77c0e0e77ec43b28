from __future__ import annotations

import zlib
from random import Random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.handlers.sending import (
    BORN_HOST,
    STORE_HOST,
    WALL_MS,
    FakeChannel,
    ProduceSide,
    at,
    send_v2,
)

from trioha.broker.send import SendProcessor
from trioha.config import BrokerConfig, BrokerRole, FlushDiskType
from trioha.store.interface import PutMessage
from trioha.wire.batch import BatchElement, encode_batch
from trioha.wire.bodies import SubscriptionGroupConfig, TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode, SysFlag
from trioha.wire.java_hash import string_hash
from trioha.wire.names import RESERVED_TOPICS, SCHEDULE_TOPIC
from trioha.wire.properties import decode_properties
from trioha.wire.remoting_command import ExtValue, RemotingCommand

MASTER = BrokerConfig()


def last(side: ProduceSide) -> PutMessage:
    return side.store.messages[-1][0]


def stored_properties(side: ProduceSide) -> dict[str, str]:
    return decode_properties(last(side).properties)


# The answer.


def test_send_is_stored_and_answered() -> None:
    side = ProduceSide()
    response = side.send(send_v2())
    assert (response.code, response.opaque, response.remark) == (0, 3, None)
    assert response.ext_fields == {
        "msgId": "0A00000100002A9F" + "0" * 16,
        "queueId": "1",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    message = last(side)
    assert (message.topic, message.queue_id, message.flag) == ("T", 1, 7)
    assert (message.born_timestamp, message.born_host) == (1000, BORN_HOST)
    assert message.store_host == STORE_HOST
    assert bytes(message.body) == b"hello"
    assert message.properties == b"TAGS\x01TagA\x02UNIQ_KEY\x01ABC\x02CLUSTER\x01DefaultCluster"


def test_second_send_has_the_next_queue_offset_and_another_id() -> None:
    side = ProduceSide()
    first, second = side.send(send_v2()), side.send(send_v2())
    assert second.ext_fields["queueOffset"] == "1"
    assert first.ext_fields["msgId"] != second.ext_fields["msgId"]


def test_v1_header_has_long_names() -> None:
    side = ProduceSide()
    ext: dict[str, ExtValue] = {
        "producerGroup": "pg",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 2,
        "sysFlag": 1,
        "bornTimestamp": 1000,
        "flag": 7,
        "properties": "TAGS\x01TagA",
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
    }
    response = side.send(RemotingCommand(RequestCode.SEND_MESSAGE, ext, memoryview(b"hello")))
    assert response.code == 0
    assert (last(side).queue_id, last(side).flag, last(side).sys_flag) == (2, 7, 1)


@pytest.mark.parametrize("name", ["b", "e", "f", "g", "h"])
def test_missing_field_is_named(name: str) -> None:
    request = send_v2()
    del request.ext_fields[name]
    response = ProduceSide().send(request)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert f"field {name} is missing" in (response.remark or "")
    assert response.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


@pytest.mark.parametrize("name", ["e", "f", "g", "h", "j"])
@pytest.mark.parametrize("value", ["x", "1.5", "4294967296000000000000"])
def test_field_that_is_no_number_in_range_is_refused(name: str, value: str) -> None:
    side = ProduceSide()
    request = send_v2()
    request.ext_fields[name] = value
    response = side.send(request)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert side.store.messages == []


def test_optional_fields_may_be_absent_or_null() -> None:
    side = ProduceSide()
    request = send_v2(i=None, j=None, m=None)
    del request.ext_fields["k"]
    assert side.send(request).code == 0
    assert last(side).properties == b"CLUSTER\x01DefaultCluster"


def test_oneway_send_is_stored_and_never_answered() -> None:
    side = ProduceSide(attrs.evolve(MASTER, broker_role=BrokerRole.SYNC_MASTER))
    request = send_v2(oneway=True)
    assert side.sender.send(side.channel, request, at()) is None
    assert len(side.store.messages) == 1
    assert side.pipeline.waiter_count == 0
    assert side.channel.sent == []


def test_region_and_trace_follow_the_configuration() -> None:
    config = attrs.evolve(MASTER, region_id="eu", trace_on=False)
    for topic in ("T", "bad/name"):
        ext = ProduceSide(config).send(send_v2(topic)).ext_fields
        assert (ext["MSG_REGION"], ext["TRACE_ON"]) == ("eu", "false")


def test_queue_below_zero_is_any_queue_of_the_topic() -> None:
    side = ProduceSide()
    queues = {side.send(send_v2(e="-1")).ext_fields["queueId"] for _ in range(60)}
    assert queues == {"0", "1", "2", "3"}


def test_every_refusal_carries_region_and_trace() -> None:
    response = ProduceSide().send(send_v2("bad/name"))
    assert response.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


# The order of validation (§2.1).


def test_ordered_topic_of_a_read_only_broker_is_refused_first() -> None:
    side = ProduceSide(attrs.evolve(MASTER, broker_permission=4))
    side.topics.put(TopicConfig("Ordered", 4, 4, order=True), 1)
    side.topics.put(TopicConfig("Plain", 4, 4), 1)
    assert side.send(send_v2("Ordered", e="99")).code == ResponseCode.NO_PERMISSION
    assert side.send(send_v2("Plain")).code == 0


@pytest.mark.parametrize("name", ["", "  ", "a b", "a/b", "../../etc", "x.y", "T" * 128, "t\0"])
def test_illegal_topic_names_are_refused(name: str) -> None:
    side = ProduceSide()
    assert side.send(send_v2(name)).code == ResponseCode.SYSTEM_ERROR
    assert side.topics.get(name) is None
    assert side.store.messages == []


def test_topic_of_127_characters_is_taken() -> None:
    assert ProduceSide().send(send_v2("T" * 127)).code == 0


@pytest.mark.parametrize("name", sorted(RESERVED_TOPICS))
def test_reserved_topics_are_refused(name: str) -> None:
    side = ProduceSide()
    for _ in range(2):
        assert side.send(send_v2(name, e="99")).code == ResponseCode.NO_PERMISSION


def test_unknown_topic_is_created_after_the_default_topic() -> None:
    side = ProduceSide()
    assert side.send(send_v2("New", d="2")).code == 0
    assert side.topics.get("New") == TopicConfig("New", 2, 2, 6)


def test_unknown_topic_that_cannot_be_created_does_not_exist() -> None:
    side = ProduceSide(attrs.evolve(MASTER, auto_create_topic_enable=False))
    response = side.send(send_v2("New"))
    assert response.code == ResponseCode.TOPIC_NOT_EXIST
    assert response.remark == "topic[New] not exist, apply first please!"


def test_retry_topic_that_cannot_inherit_is_created_with_one_queue() -> None:
    side = ProduceSide(attrs.evolve(MASTER, auto_create_topic_enable=False))
    assert side.send(send_v2("%RETRY%g", e="0")).code == 0
    assert side.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)


def test_unit_mode_marks_the_created_topic() -> None:
    side = ProduceSide()
    side.send(send_v2("Unit", k="true"))
    side.send(send_v2("%RETRY%g", k="true"))
    unit, retry = side.topics.get("Unit"), side.topics.get("%RETRY%g")
    assert unit is not None
    assert retry is not None
    assert (unit.topic_sys_flag, retry.topic_sys_flag) == (1, 2)


def test_queue_beyond_both_numbers_of_queues_is_refused() -> None:
    side = ProduceSide()
    side.topics.put(TopicConfig("T", read_queue_nums=4, write_queue_nums=2), 1)
    assert side.send(send_v2(e="3")).code == 0
    response = side.send(send_v2(e="4"))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "queueId[4] is illegal" in (response.remark or "")


def test_topic_without_write_queues_has_nothing_to_choose_from() -> None:
    side = ProduceSide()
    side.topics.put(TopicConfig("T", read_queue_nums=4, write_queue_nums=0), 1)
    assert side.send(send_v2(e="-1")).code == ResponseCode.SYSTEM_ERROR


def test_write_permission_of_the_topic_is_not_asked() -> None:
    side = ProduceSide()
    side.topics.put(TopicConfig("T", 4, 4, perm=4), 1)
    assert side.send(send_v2()).code == 0


def test_topic_beyond_the_limit_is_refused_in_words() -> None:
    side = ProduceSide()
    side.topics._topics_max = 0
    response = side.send(send_v2("New"))
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "its limit" in (response.remark or "")


# The message.


def test_body_over_the_limit_is_illegal() -> None:
    side = ProduceSide(attrs.evolve(MASTER, max_message_size=10))
    assert side.send(send_v2(body=b"x" * 10)).code == 0
    response = side.send(send_v2(body=b"x" * 11))
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert "maxMessageSize is 10" in (response.remark or "")


def test_properties_over_the_limit_are_illegal() -> None:
    side = ProduceSide()
    room = 32767 - len("k\x01" + "\x02CLUSTER\x01DefaultCluster")
    assert side.send(send_v2(properties="k\x01" + "v" * room)).code == 0
    response = side.send(send_v2(properties="k\x01" + "v" * (room + 1)))
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert side.send(send_v2(properties="k\x01" + "ä" * 20_000)).code == (
        ResponseCode.MESSAGE_ILLEGAL
    )


def test_tags_code_is_javas_hash_and_zero_without_tags() -> None:
    side = ProduceSide()
    side.send(send_v2(properties="TAGS\x01TagA"))
    assert last(side).tags_code == 2598919
    side.send(send_v2(properties="KEYS\x01k"))
    assert last(side).tags_code == 0


def test_index_finds_unique_id_first_then_each_key() -> None:
    side = ProduceSide()
    side.send(send_v2(properties="KEYS\x01k1  k2 \x02UNIQ_KEY\x01U"))
    assert list(last(side).keys) == [b"U", b"k1", b"k2"]
    side.send(send_v2(properties="KEYS\x01k1"))
    assert list(last(side).keys) == [b"k1"]
    side.send(send_v2(properties="UNIQ_KEY\x01U"))
    assert list(last(side).keys) == [b"U"]
    side.send(send_v2(properties=""))
    assert list(last(side).keys) == []


def test_trailing_separator_is_tolerated_and_not_stored() -> None:
    side = ProduceSide()
    side.send(send_v2(properties="TAGS\x01TagA\x02"))
    assert last(side).properties == b"TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"


def java_map(text: str) -> dict[str, str]:
    """MessageDecoder.string2messageProperties, index by index."""
    pairs: dict[str, str] = {}
    index = 0
    while index < len(text):
        end = text.find("\x02", index)
        if end < 0:
            end = len(text)
        separator = text.find("\x01", index)
        if end - index >= 3 and index < separator < end - 1:
            pairs[text[index:separator]] = text[separator + 1 : end]
        index = end + 1
    return pairs


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["WAIT", "TAGS", "KEYS", "UNIQ_KEY", "CLUSTER", "XWAIT", "\x01", "\x02"]
            ),
            st.sampled_from(["true", "false", "v", "", "ä€😀", "\x01\x02", "\x02\x02"]),
        ),
        max_size=16,
    )
)
def test_stored_properties_are_those_of_a_java_broker(parts: list[str]) -> None:
    side = ProduceSide()
    text = "".join(parts)
    assert side.send(send_v2(properties=text)).code == 0
    expected = java_map(text)
    expected.pop("WAIT", None)
    expected["CLUSTER"] = "DefaultCluster"
    stored = last(side).properties
    assert java_map(stored.decode()) == expected
    assert not stored.endswith(b"\x02")
    assert b"\x02\x02" not in stored
    assert last(side).tags_code == string_hash(expected.get("TAGS", ""))


def test_host_bits_describe_the_hosts_whatever_the_client_says() -> None:
    side = ProduceSide()
    side.send(send_v2(f=str(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6 | SysFlag.COMPRESSED)))
    assert last(side).sys_flag == SysFlag.COMPRESSED
    channel = FakeChannel(bytes(16) + BORN_HOST[4:])
    assert side.sender.send(channel, send_v2(), at()) is not None
    assert last(side).sys_flag == SysFlag.BORNHOST_V6


def test_ipv6_store_host_makes_long_ids() -> None:
    side = ProduceSide()
    host = bytes(16) + STORE_HOST[4:]
    sender = SendProcessor(
        side.config,
        side.topics,
        side.groups,
        side.pipeline,
        side.levels,
        side.transactions,
        host,
        Random(1),
    )
    response = sender.send(side.channel, send_v2(), at())
    assert response is not None
    assert len(response.ext_str("msgId")) == 56
    assert last(side).sys_flag == SysFlag.STOREHOST_V6


def test_topic_of_many_tags_marks_its_messages() -> None:
    side = ProduceSide()
    side.topics.put(TopicConfig("T", 4, 4, topic_filter_type="MULTI_TAG"), 1)
    side.send(send_v2())
    assert last(side).sys_flag == SysFlag.MULTI_TAGS


# Delay, retry and dead letters.


def test_delayed_message_goes_to_its_level() -> None:
    side = ProduceSide()
    response = side.send(send_v2(properties="DELAY\x013\x02TAGS\x01TagA"))
    assert response.ext_fields["queueId"] == "1"
    message = last(side)
    assert (message.topic, message.queue_id) == (SCHEDULE_TOPIC, 2)
    assert message.tags_code == WALL_MS + 10_000
    properties = stored_properties(side)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")


@pytest.mark.parametrize("level", ["0", "-1"])
def test_level_of_zero_or_less_is_no_delay(level: str) -> None:
    side = ProduceSide()
    side.send(send_v2(properties=f"DELAY\x01{level}"))
    assert last(side).topic == "T"


def test_level_that_is_no_number_is_illegal() -> None:
    response = ProduceSide().send(send_v2(properties="DELAY\x01soon"))
    assert response.code == ResponseCode.MESSAGE_ILLEGAL


def test_retry_below_the_limit_is_delayed_like_any_other() -> None:
    side = ProduceSide()
    side.send(send_v2("%RETRY%g", properties="DELAY\x014", e="0", j="15"))
    assert last(side).topic == SCHEDULE_TOPIC
    assert last(side).reconsume_times == 15


def test_retry_at_the_groups_limit_goes_to_dead_letters_without_delay() -> None:
    side = ProduceSide()
    response = side.send(send_v2("%RETRY%g", properties="DELAY\x014", e="0", j="16"))
    assert response.code == 0
    assert (last(side).topic, last(side).queue_id) == ("%DLQ%g", 0)
    assert "DELAY" not in stored_properties(side)
    assert side.topics.get("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1, 6)


@pytest.mark.parametrize(("version", "dead"), [(121, True), (120, False)])
def test_limit_of_the_header_counts_from_version_121(version: int, dead: bool) -> None:
    side = ProduceSide()
    request = send_v2("%RETRY%g", e="0", j="3", l="3")
    request.version = version
    side.send(request)
    assert last(side).topic == ("%DLQ%g" if dead else "%RETRY%g")


def test_limit_of_the_group_counts_without_one_in_the_header() -> None:
    side = ProduceSide()
    side.groups.put(SubscriptionGroupConfig("g", retry_max_times=2), 1)
    side.send(send_v2("%RETRY%g", e="0", j="2"))
    assert last(side).topic == "%DLQ%g"


def test_retry_of_an_unknown_group_is_refused() -> None:
    side = ProduceSide(attrs.evolve(MASTER, auto_create_subscription_group=False))
    response = side.send(send_v2("%RETRY%g", e="0"))
    assert response.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


# Transactions.


@pytest.mark.parametrize("sys_flag", ["4", "8"])
def test_a_transactional_sys_flag_alone_is_refused(sys_flag: str) -> None:
    side = ProduceSide()
    response = side.send(send_v2(properties="", f=sys_flag))
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert "transactional" in (response.remark or "")
    assert side.store.messages == []


def test_message_that_says_it_is_not_transactional_is_stored() -> None:
    side = ProduceSide()
    assert side.send(send_v2(properties="TRAN_MSG\x01false")).code == 0


def test_retry_of_a_committed_message_is_no_half_message() -> None:
    side = ProduceSide()
    request = send_v2("%RETRY%g", properties="TRAN_MSG\x01true\x02DELAY\x014", e="0", j="1", f="4")
    assert side.send(request).code == 0
    assert last(side).sys_flag == 0
    assert last(side).topic == SCHEDULE_TOPIC


# Batches.


def batch(*elements: tuple[bytes, str]) -> bytes:
    return encode_batch(
        BatchElement(index, body, properties.encode())
        for index, (body, properties) in enumerate(elements)
    )


@pytest.mark.parametrize(
    ("code", "marker"),
    [
        (RequestCode.SEND_BATCH_MESSAGE, "true"),
        (RequestCode.SEND_MESSAGE_V2, "1"),
        (RequestCode.SEND_MESSAGE_V2, True),
    ],
)
def test_batch_is_known_by_its_header_not_by_its_code(code: int, marker: ExtValue) -> None:
    side = ProduceSide()
    body = batch((b"one", "TAGS\x01TagA"), (b"two", "UNIQ_KEY\x01U2\x02"), (b"three", ""))
    request = send_v2(body=body, properties="WAIT\x01true", code=code, m=marker)
    response = side.send(request)
    assert response.code == 0
    ids = response.ext_str("msgId").split(",")
    assert [int(message_id[16:], 16) for message_id in ids] == [
        result.phy_offset for _, result in side.store.messages
    ]
    assert response.ext_fields["queueOffset"] == "0"
    messages = [message for message, _ in side.store.messages]
    assert [bytes(message.body) for message in messages] == [b"one", b"two", b"three"]
    assert [message.flag for message in messages] == [0, 1, 2]
    assert {message.queue_id for message in messages} == {1}
    assert [message.properties for message in messages] == [
        b"TAGS\x01TagA\x02CLUSTER\x01DefaultCluster",
        b"UNIQ_KEY\x01U2\x02CLUSTER\x01DefaultCluster",
        b"CLUSTER\x01DefaultCluster",
    ]
    assert [message.tags_code for message in messages] == [2598919, 0, 0]
    assert list(messages[1].keys) == [b"U2"]


@pytest.mark.parametrize("marker", ["false", "0", False, None])
def test_code_320_without_the_marker_is_one_message(marker: ExtValue) -> None:
    side = ProduceSide()
    body = batch((b"one", ""), (b"two", ""))
    side.send(send_v2(body=body, code=RequestCode.SEND_BATCH_MESSAGE, m=marker))
    assert len(side.store.messages) == 1
    assert bytes(last(side).body) == body


@pytest.mark.parametrize(
    "own",
    [b"UNIQ_KEY\x01U1\x02A\x01\xff", b"A\x01\xc3\x02UNIQ_KEY\x01U1"],
    ids=["behind", "before"],
)
def test_properties_of_a_batch_that_are_no_text_are_illegal(own: bytes) -> None:
    side = ProduceSide()
    one = batch((b"one", "UNIQ_KEY\x01U1\x02A\x01b"))
    body = one.replace(b"UNIQ_KEY\x01U1\x02A\x01b", own)
    sizes = len(own) - len(b"UNIQ_KEY\x01U1\x02A\x01b")
    body = (int.from_bytes(one[:4], "big") + sizes).to_bytes(4, "big") + body[4:]
    at = body.index(own) - 2
    body = body[:at] + len(own).to_bytes(2, "big") + body[at + 2 :]
    response = side.send(send_v2(body=body, properties="", m="true"))
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert "not UTF-8" in (response.remark or "")
    assert side.store.messages == []


def test_a_batch_that_is_compressed_as_a_whole_is_stored_message_by_message() -> None:
    """The C++ client does that from 4 KiB on; Java would store a blob that no client can read."""
    side = ProduceSide()
    body = batch((b"one" * 2000, "TAGS\x01TagA"), (b"two", ""))
    request = send_v2(body=zlib.compress(body), f=str(SysFlag.COMPRESSED), m="1")
    assert side.send(request).code == 0
    messages = [message for message, _ in side.store.messages]
    assert [bytes(message.body) for message in messages] == [b"one" * 2000, b"two"]
    assert [message.sys_flag for message in messages] == [0, 0]


@pytest.mark.parametrize(
    "body",
    [
        b"no zlib at all",
        zlib.compress(batch((b"one", "")))[:-5],
        zlib.compress(batch((bytes(8 << 20), ""))),
    ],
    ids=["garbage", "cut", "bomb"],
)
def test_a_compressed_batch_that_cannot_be_inflated_in_bounds_is_illegal(body: bytes) -> None:
    side = ProduceSide()
    response = side.send(send_v2(body=body, f=str(SysFlag.COMPRESSED), m="1"))
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert side.store.messages == []


def test_v1_batch_of_one() -> None:
    side = ProduceSide()
    ext: dict[str, ExtValue] = {
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "batch": "true",
    }
    request = RemotingCommand(RequestCode.SEND_MESSAGE, ext, memoryview(batch((b"one", ""))))
    assert "," not in side.send(request).ext_str("msgId")
    assert bytes(last(side).body) == b"one"


@pytest.mark.parametrize(
    ("body", "fields", "properties"),
    [
        (b"", {}, ""),
        (b"\0" * 30, {}, ""),
        (batch((b"one", "")) + b"x", {}, ""),
        (batch((b"one", "")), {"b": "%RETRY%g", "e": "0"}, ""),
        (batch((b"one", "")), {}, "DELAY\x013"),
        (batch((b"one", "DELAY\x013")), {}, ""),
        (batch((b"one", "")), {"f": "4"}, ""),
        (batch((b"one", "")), {}, "TRAN_MSG\x01true"),
        (batch((b"one", ""), (b"two", "TRAN_MSG\x01true")), {}, ""),
        (batch((b"one", "k\x01" + "v" * 32760)), {}, ""),
        (batch((b"x" * 1000, ""), (b"y" * 1000, "")), {}, ""),
    ],
)
def test_batch_that_cannot_be_one_is_illegal_and_nothing_of_it_is_stored(
    body: bytes, fields: dict[str, ExtValue], properties: str
) -> None:
    limit = 1500 if len(body) < 3000 else 40_000
    side = ProduceSide(attrs.evolve(MASTER, max_message_size=limit))
    request = send_v2(body=body, properties=properties, m="true")
    request.ext_fields.update(fields)
    response = side.send(request)
    assert response.code == ResponseCode.MESSAGE_ILLEGAL
    assert side.store.messages == []


# Answers that depend on the store, the disk or the slave.


def test_slave_refuses_sends_and_creates_no_topic() -> None:
    side = ProduceSide(attrs.evolve(MASTER, broker_role=BrokerRole.SLAVE, broker_id=1))
    response = side.send(send_v2("New"))
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "slave" in (response.remark or "")
    assert side.topics.get("New") is None


def test_full_disk_refuses_sends_with_its_reason() -> None:
    side = ProduceSide()
    side.store.writable = False
    response = side.send(send_v2())
    assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert response.remark == "disk full"
    side.store.writable = True
    assert side.send(send_v2()).code == 0


def test_sync_master_answers_when_the_slave_has_it() -> None:
    side = ProduceSide(attrs.evolve(MASTER, broker_role=BrokerRole.SYNC_MASTER))
    assert side.sender.send(side.channel, send_v2(), at()) is None
    assert side.channel.sent == []
    side.replicas.push2slave_max_offset = side.store.max_phy_offset
    side.pipeline.release_acknowledged(0)
    (response,) = side.channel.sent
    assert (response.code, response.opaque) == (0, 3)
    assert response.ext_fields["queueOffset"] == "0"


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (attrs.evolve(MASTER, broker_role=BrokerRole.SYNC_MASTER), 12),
        (attrs.evolve(MASTER, flush_disk_type=FlushDiskType.SYNC_FLUSH), 10),
    ],
)
def test_deadline_answers_with_the_id_of_the_stored_message(
    config: BrokerConfig, code: int
) -> None:
    side = ProduceSide(config)
    assert side.sender.send(side.channel, send_v2(), at()) is None
    side.pipeline.expire(10_000)
    (response,) = side.channel.sent
    assert response.code == code
    assert response.ext_fields["msgId"] == "0A00000100002A9F" + "0" * 16
    assert "stored, but" in (response.remark or "")


def test_absent_slave_answers_at_once_with_the_id_of_the_stored_message() -> None:
    side = ProduceSide(attrs.evolve(MASTER, broker_role=BrokerRole.SYNC_MASTER))
    side.replicas.available = False
    response = side.send(send_v2())
    assert response.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert response.ext_fields["queueOffset"] == "0"


@pytest.mark.parametrize("wait", ["false", "False", "no"])
def test_wait_other_than_true_waits_for_nothing(wait: str) -> None:
    side = ProduceSide(attrs.evolve(MASTER, broker_role=BrokerRole.SYNC_MASTER))
    side.replicas.available = False
    assert side.send(send_v2(properties=f"WAIT\x01{wait}")).code == 0
    body = batch((b"one", ""), (b"two", ""))
    assert side.send(send_v2(body=body, properties=f"WAIT\x01{wait}", m="true")).code == 0


def test_batch_waits_as_one() -> None:
    side = ProduceSide(attrs.evolve(MASTER, broker_role=BrokerRole.SYNC_MASTER))
    body = batch((b"one", ""), (b"two", ""))
    assert side.sender.send(side.channel, send_v2(body=body, m="true"), at()) is None
    assert side.pipeline.waiter_count == 1
    side.replicas.push2slave_max_offset = side.store.max_phy_offset
    side.pipeline.release_acknowledged(0)
    assert [response.code for response in side.channel.sent] == [0]


def test_handlers_are_the_three_kinds_of_send() -> None:
    assert sorted(ProduceSide().sender.handlers()) == [10, 310, 320]


def test_changed_broker_permission_counts_from_the_next_send() -> None:
    side = ProduceSide()
    side.topics.put(TopicConfig("Ordered", 4, 4, order=True), 1)
    assert side.send(send_v2("Ordered")).code == 0
    side.sender.config = attrs.evolve(MASTER, broker_permission=4)
    assert side.send(send_v2("Ordered")).code == ResponseCode.NO_PERMISSION
