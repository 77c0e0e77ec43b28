"""Registrations that are read a few topics at a time."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import RemoteProtocolError
from trioha.wire import fastjson, registration
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.registration import OBJECTS_MAX, RegistrationReader
from trioha.wire.route import RegisterBrokerBody

TOPICS = {f"topic-{number}": TopicConfig(f"topic-{number}", number, 8) for number in range(30)}
BODY = RegisterBrokerBody(DataVersion(2, 1), TOPICS)


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "SMALL_BYTES", 1)


def read(data: bytes, *, compressed: bool = False, version: int = 409) -> RegisterBrokerBody:
    reader = RegistrationReader(data, compressed=compressed, version=version)
    topics = {topic.topic_name: topic for topic in reader.topics}
    return RegisterBrokerBody(reader.data_version, topics)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.usefixtures("all_large")
def test_a_large_one_says_what_a_small_one_says(compressed: bool) -> None:
    assert read(BODY.encode(compressed=compressed), compressed=compressed) == BODY


@pytest.mark.usefixtures("all_large")
def test_what_5x_adds_is_passed_over() -> None:
    told = json.loads(BODY.encode())
    wrapper = told["topicConfigSerializeWrapper"]
    for topic in wrapper["topicConfigTable"].values():
        topic["attributes"] = {"+message.type": "FIFO"}
    wrapper |= {"topicQueueMappingDetailMap": {}, "topicQueueMappingInfoMap": {"a": [1]}}
    wrapper["dataVersion"]["stateVersion"] = 0
    assert read(json.dumps(told).encode()) == BODY


@pytest.mark.parametrize(
    "data",
    [
        b"[1]",
        b'{"topicConfigSerializeWrapper":[]}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"six"}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":1e99}}}}',
        b"{topicConfigSerializeWrapper:{}}",
        b'{"topicConfigSerializeWrapper":{"dataVersion":"' + bytes(5000) + b'"}}',
        b'{"a":' + b"[" * 100_000,
        b'{"a":[' + b"{}," * OBJECTS_MAX + b"{}]}",
    ],
)
@pytest.mark.usefixtures("all_large")
def test_a_large_one_that_no_broker_writes_is_rejected(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read(data)


def test_a_large_one_of_a_very_old_broker_is_rejected() -> None:
    with pytest.raises(RemoteProtocolError, match=r"before 3\.0\.11"):
        read(bytes(300_000), version=0)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_read_or_rejected(data: bytes, compressed: bool) -> None:
    for one in (data, zlib.compress(data)):
        with suppress(RemoteProtocolError):
            read(one, compressed=compressed)


def test_no_topic_is_read_before_it_is_asked_for() -> None:
    packed = RegisterBrokerBody(DataVersion(2, 1), TOPICS)._packed()
    reader = RegistrationReader(zlib.compress(packed[:-40]), compressed=True, version=409)
    assert next(reader.topics) == TOPICS["topic-0"]
    with pytest.raises(RemoteProtocolError):
        list(reader.topics)


def test_a_small_one_may_be_in_any_dialect() -> None:
    assert read(fastjson.dumps(json.loads(BODY.encode())).replace(b'"perm"', b"perm")) == BODY
