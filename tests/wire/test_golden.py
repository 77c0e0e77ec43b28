"""Frames, bodies and replication streams recorded from real peers decode, and encode back.

`tests/interop/capture_golden.py` made the files: Java 4.9.8 nodes with C++, Node.js, Java and Go
clients and mqadmin. Where a peer reads our bytes with a parser of its own, equality is demanded to
the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from support.stores.records import encode_record, split_batch

from trioha.store.interface import PutMessage
from trioha.wire import fastjson
from trioha.wire.batch import encode_batch
from trioha.wire.bodies import (
    LockBatchBody,
    consumer_offset_table_from_dict,
    consumer_offset_table_to_dict,
    decode_consumer_list,
    decode_locked_queues,
    decode_topic_list,
    delay_offset_table_from_dict,
    delay_offset_table_to_dict,
    encode_consumer_list,
    encode_locked_queues,
    encode_topic_list,
    group_table_from_dict,
    group_table_to_dict,
    topic_table_from_dict,
    topic_table_to_dict,
)
from trioha.wire.codes import VERSION_V4_9_4, ResponseCode, SerializeType
from trioha.wire.ha_frames import REPORT, TRANSFER_HEADER
from trioha.wire.heartbeat import ConsumerData, HeartbeatData
from trioha.wire.message_id import decode_message_id
from trioha.wire.properties import decode_properties, encode_properties
from trioha.wire.record import Record, decode_records
from trioha.wire.remoting_command import ExtValue, RemotingCommand, decode_frame, encode
from trioha.wire.route import ClusterInfo, RegisterBrokerBody, TopicRouteData

GOLDEN = Path(__file__).with_name("golden")


def names(pattern: str) -> list[str]:
    """The recorded files that match, as test ids."""
    found = sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.glob(pattern))
    assert found, f"nothing recorded matches {pattern}"
    return found


def recorded(name: str) -> RemotingCommand:
    return decode_frame((GOLDEN / name).read_bytes())


def request_of(response: str) -> RemotingCommand:
    return recorded(response.replace(".response.", ".request."))


def stringified(fields: dict[str, ExtValue]) -> dict[str, str]:
    """The fields as they leave us: every value a string, Java's null left out."""
    command = RemotingCommand(0, fields)
    return {name: command.ext_str(name) for name, value in fields.items() if value is not None}


def header_and_body(command: RemotingCommand) -> tuple[object, ...]:
    """Return everything but the ext fields."""
    return (
        command.code,
        command.body_bytes(),
        command.opaque,
        command.flag,
        command.remark,
        command.version,
        command.language,
        command.serialize_type,
    )


@pytest.mark.parametrize("name", names("*/*.re*.bin"))
def test_a_recorded_frame_comes_back_from_decode_and_encode(name: str) -> None:
    command = recorded(name)
    again = decode_frame(encode(command))
    assert stringified(again.ext_fields) == stringified(command.ext_fields)
    assert header_and_body(again) == header_and_body(command)
    assert command.is_response == name.endswith(".response.bin")


BINARY_HEADERS = [
    name for name in names("*/*.re*.bin") if recorded(name).serialize_type == SerializeType.ROCKETMQ
]


def test_frames_with_binary_headers_were_recorded() -> None:
    assert len(BINARY_HEADERS) >= 30


@pytest.mark.parametrize("name", BINARY_HEADERS)
def test_a_frame_with_a_binary_header_is_written_to_the_byte_as_java_writes_it(name: str) -> None:
    assert encode(recorded(name)) == (GOLDEN / name).read_bytes()


@pytest.mark.parametrize("name", names("*/105-*TOPIC.response.bin"))
def test_a_route_is_written_to_the_byte_as_java_writes_it(name: str) -> None:
    body = recorded(name).body_bytes()
    strict = request_of(name).version >= VERSION_V4_9_4
    assert (b'{0:"' in body) is not strict
    assert TopicRouteData.decode(body).encode(strict) == body


def test_cluster_information_is_written_to_the_byte_as_java_writes_it() -> None:
    body = recorded("mqadmin/106-GET_BROKER_CLUSTER_INFO.response.bin").body_bytes()
    assert ClusterInfo.decode(body).encode() == body


TABLES: dict[str, Callable[[object], object]] = {
    "21-GET_ALL_TOPIC_CONFIG": lambda value: topic_table_to_dict(*topic_table_from_dict(value)),
    "43-GET_ALL_CONSUMER_OFFSET": lambda value: consumer_offset_table_to_dict(
        consumer_offset_table_from_dict(value)
    ),
    "45-GET_ALL_DELAY_OFFSET": lambda value: delay_offset_table_to_dict(
        delay_offset_table_from_dict(value)
    ),
    "201-GET_ALL_SUBSCRIPTIONGROUP_CONFIG": lambda value: group_table_to_dict(
        *group_table_from_dict(value)
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_for_slaves_is_written_to_the_byte_as_java_writes_it(name: str) -> None:
    body = recorded(f"java-slave/{name}.response.bin").body_bytes()
    assert fastjson.dumps(TABLES[name](fastjson.loads(body))) == body


@pytest.mark.parametrize("name", names("java-broker/103-*.request.bin"))
def test_a_registration_is_written_to_the_byte_as_java_writes_it(name: str) -> None:
    command = recorded(name)
    body = command.body_bytes()
    decoded = RegisterBrokerBody.decode(body, compressed=False, version=command.version)
    assert "SELF_TEST_TOPIC" in decoded.topics or len(decoded.topics) == 1
    assert decoded.encode() == body


def test_lists_and_locks_are_written_to_the_byte_as_java_writes_them() -> None:
    consumers = recorded("java/38-GET_CONSUMER_LIST_BY_GROUP.response.bin").body_bytes()
    assert encode_consumer_list(decode_consumer_list(consumers)) == consumers
    topics = recorded("mqadmin/206-GET_ALL_TOPIC_LIST_FROM_NAMESERVER.response.bin").body_bytes()
    assert encode_topic_list(decode_topic_list(topics)) == topics
    locked = recorded("java/41-LOCK_BATCH_MQ.response.bin").body_bytes()
    assert encode_locked_queues(decode_locked_queues(locked)) == locked


@pytest.mark.parametrize("name", names("*/4[12]-*.request.bin"))
def test_a_lock_request_names_its_client_and_queues(name: str) -> None:
    body = LockBatchBody.decode(recorded(name).body_bytes())
    assert body.client_id
    assert body.consumer_group.endswith("-group-ordered")
    assert body.queues
    assert LockBatchBody.decode(body.encode()) == body


@pytest.mark.parametrize("name", names("*/34-HEART_BEAT.request.bin"))
def test_a_heartbeat_of_every_client_means_the_same_after_a_round_trip(name: str) -> None:
    heartbeat = HeartbeatData.decode(recorded(name).body_bytes())
    assert heartbeat.client_id
    assert heartbeat.consumers or heartbeat.producers
    assert HeartbeatData.decode(heartbeat.encode()) == heartbeat


@pytest.mark.parametrize("name", ["cpp", "js"])
def test_a_heartbeat_with_tags_names_them_whatever_its_enums_look_like(name: str) -> None:
    heartbeat = HeartbeatData.decode(recorded(f"{name}/34-HEART_BEAT.request.bin").body_bytes())
    consumer: ConsumerData = heartbeat.consumers[0]
    (subscription,) = [one for one in consumer.subscriptions if not one.topic.startswith("%")]
    assert consumer.consume_type.name == "CONSUME_PASSIVELY"
    assert consumer.message_model.name == "CLUSTERING"
    assert set(subscription.tags_set) == {"TagA", "TagB"}


@pytest.mark.parametrize("name", names("*/*0-SEND_*.request.bin"))
def test_the_properties_of_a_send_mean_the_same_after_a_round_trip(name: str) -> None:
    command = recorded(name)
    text = command.ext_str("i" if command.code != 10 else "properties", "")
    properties = decode_properties(text)
    assert decode_properties(encode_properties(properties)) == properties
    assert not encode_properties(properties).endswith(b"\x02")


@pytest.mark.parametrize("name", names("*/*-batch.request.bin"))
def test_a_batch_is_split_into_its_elements_and_joined_again(name: str) -> None:
    body = recorded(name).body_bytes()
    elements = split_batch(body)
    assert [bytes(element.body) for element in elements] == [b"first", b"second", b"third"]
    assert all(decode_properties(element.properties)["TAGS"] == "TagB" for element in elements)
    assert encode_batch(elements) == body


def message_of(record: Record) -> PutMessage:
    """Return the message whose put wrote this record."""
    return PutMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        body=record.body,
        properties=record.raw_properties,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def encode_again(records: Iterable[Record]) -> bytes:
    return b"".join(
        encode_record(message_of(one), one.queue_offset, one.phy_offset, one.store_timestamp)
        for one in records
    )


@pytest.mark.parametrize(
    "name", [*names("*/11-PULL_MESSAGE.response.bin"), "mqadmin/12-QUERY_MESSAGE.response.bin"]
)
def test_pulled_records_are_encoded_to_the_byte_as_java_stored_them(name: str) -> None:
    body = recorded(name).body_bytes()
    records = decode_records(body)
    assert records
    assert encode_again(records) == body


REFUSED_PULLS = names("*/11-PULL_MESSAGE-25.response.bin")


@pytest.mark.parametrize(
    "name", [name for name in names("*/11-PULL_MESSAGE*.response.bin") if name not in REFUSED_PULLS]
)
def test_a_pull_answer_carries_all_four_offsets(name: str) -> None:
    command = recorded(name)
    assert command.code in (0, 19, 20)
    fields = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
    assert all(command.ext_int(field) >= 0 for field in fields)


@pytest.mark.parametrize("name", REFUSED_PULLS)
def test_a_pull_that_the_broker_could_not_judge_carries_no_offset(name: str) -> None:
    command = recorded(name)
    assert command.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert not command.ext_fields


@pytest.mark.parametrize("name", names("*/*0-SEND_*.response.bin"))
def test_a_send_answer_names_the_place_of_every_record(name: str) -> None:
    command = recorded(name)
    assert command.code == ResponseCode.SUCCESS
    assert command.ext_int("queueOffset") >= 0
    places = [decode_message_id(one) for one in command.ext_str("msgId").split(",")]
    # A batch under the code of a single send is answered with one id.
    assert len(places) == (3 if "SEND_BATCH" in name else 1)
    assert all(host == "127.0.0.1" and port > 0 for host, port, _ in places)
    offsets = [offset for _, _, offset in places]
    assert offsets == sorted(set(offsets))
    assert offsets[0] >= 0


def test_the_masters_stream_is_gapless_and_made_of_records() -> None:
    stream = (GOLDEN / "ha" / "master-to-slave.bin").read_bytes()
    position = 0
    payload = b""
    begin = expected = None
    while position < len(stream):
        offset, size = TRANSFER_HEADER.unpack_from(stream, position)
        position += TRANSFER_HEADER.size
        begin = offset if begin is None else begin
        assert expected in (None, offset)
        payload += stream[position : position + size]
        position += size
        expected = offset + size
    records = decode_records(payload)
    assert [record.phy_offset for record in records[:1]] == [begin]
    assert encode_again(records) == payload


def test_a_slave_reports_where_it_is_and_never_goes_back() -> None:
    stream = (GOLDEN / "ha" / "slave-to-master.bin").read_bytes()
    reports = [offset for (offset,) in REPORT.iter_unpack(stream)]
    # An empty slave says so first, and a Java slave says it twice before the first frame.
    assert reports[0] == 0
    assert reports == sorted(reports)


def test_a_heartbeat_of_the_master_is_a_header_without_a_payload() -> None:
    frame = (GOLDEN / "ha" / "heartbeat.bin").read_bytes()
    offset, size = TRANSFER_HEADER.unpack(frame)
    assert offset > 0
    assert size == 0
