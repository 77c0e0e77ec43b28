from __future__ import annotations

import json
import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import RemoteProtocolError
from trioha.wire import fastjson
from trioha.wire.bodies import DataVersion, TopicConfig, topic_table_to_dict
from trioha.wire.route import (
    ROUTE_QUEUES_MAX,
    BrokerData,
    ClusterInfo,
    QueueData,
    RegisterBrokerBody,
    TopicRouteData,
)

ROUTE = TopicRouteData(
    (BrokerData("C", "broker-a", {1: "1.2.3.5:10911", 0: "1.2.3.4:10911"}),),
    (QueueData("broker-a", 4, 4, 6),),
)

NAMES = st.text("abcXYZ%_-", min_size=1, max_size=12)
INT32 = st.integers(0, 2**31 - 1)
TOPICS = st.builds(
    TopicConfig, NAMES, INT32, INT32, st.integers(0, 15), st.sampled_from(["SINGLE_TAG"])
)
REGISTRATIONS = st.builds(
    RegisterBrokerBody,
    st.builds(DataVersion, st.integers(0, 2**62), st.integers(0, 2**62)),
    st.lists(TOPICS, max_size=4).map(lambda topics: {it.topic_name: it for it in topics}),
    st.lists(NAMES, max_size=2).map(tuple),
)


def test_a_route_for_older_clients_has_bare_broker_ids_and_no_blank() -> None:
    """Gotchas 1 and 2: Go and C++ read the text, not the JSON."""
    assert ROUTE.encode(strict=False) == (
        b'{"brokerDatas":[{"brokerAddrs":{0:"1.2.3.4:10911",1:"1.2.3.5:10911"},'
        b'"brokerName":"broker-a","cluster":"C"}],"filterServerTable":{},"queueDatas":'
        b'[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        b'"writeQueueNums":4}]}'
    )


def test_a_strict_route_is_json() -> None:
    route = json.loads(ROUTE.encode(strict=True))
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "1.2.3.4:10911", "1": "1.2.3.5:10911"}


@pytest.mark.parametrize("strict", [False, True])
def test_routes_survive_the_round_trip(strict: bool) -> None:
    assert TopicRouteData.decode(ROUTE.encode(strict)) == ROUTE
    ordered = TopicRouteData(ROUTE.broker_datas, ROUTE.queue_datas, "broker-a:4")
    assert TopicRouteData.decode(ordered.encode(strict)) == ordered


@pytest.mark.parametrize(
    "queues",
    [
        [QueueData("broker-a", 2**31 - 1, 0, 6)],
        [QueueData("broker-a", 0, ROUTE_QUEUES_MAX + 1, 6)],
        # A number below zero makes no room for another.
        [QueueData("broker-a", ROUTE_QUEUES_MAX, 1, 6), QueueData("broker-b", 1, -5, 6)],
        [QueueData("broker-a", -(2**31), -(2**31), 6), QueueData("broker-b", 2**31 - 1, 1, 6)],
    ],
)
def test_a_route_of_more_queues_than_any_cluster_has_is_refused(queues: list[QueueData]) -> None:
    with pytest.raises(RemoteProtocolError, match="queues, at most 131072 are taken"):
        TopicRouteData.decode(TopicRouteData((), queues).encode(True))


def test_the_largest_route_is_taken() -> None:
    route = TopicRouteData((), (QueueData("broker-a", ROUTE_QUEUES_MAX, 1, 6),))
    assert TopicRouteData.decode(route.encode(True)) == route


def test_the_addresses_of_a_broker_are_always_there() -> None:
    """Go panics on a route without brokerAddrs."""
    route = TopicRouteData((BrokerData("C", "b", {}),))
    assert b'"brokerAddrs":{}' in route.encode(strict=False)


def test_cluster_info_looks_as_java_writes_it() -> None:
    info = ClusterInfo({"b": BrokerData("c", "b", {0: "ip:1"})}, {"c": ("b",)})
    assert info.encode() == (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"ip:1"},"brokerName":"b","cluster":"c"}},'
        b'"clusterAddrTable":{"c":["b"]}}'
    )
    assert ClusterInfo.decode(info.encode()) == info


@given(REGISTRATIONS, st.booleans())
def test_registrations_survive_the_round_trip(body: RegisterBrokerBody, compressed: bool) -> None:
    data = body.encode(compressed=compressed)
    assert RegisterBrokerBody.decode(data, compressed=compressed, version=409) == body


def test_what_5x_appends_to_a_compressed_registration_is_ignored() -> None:
    def sized(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    packed = b"".join(
        (
            sized(b'{"counter":1,"stateVersion":0,"timestamp":2}'),
            struct.pack(">i", 1),
            sized(b'T 4 8 6 SINGLE_TAG {"a":"b c"}'),
            sized(b"[]"),
            struct.pack(">i", 1),
            sized(b"{}"),
        )
    )
    body = RegisterBrokerBody.decode(zlib.compress(packed), compressed=True, version=479)
    assert body == RegisterBrokerBody(DataVersion(2, 1), {"T": TopicConfig("T", 4, 8, 6)})


def test_very_old_brokers_send_the_topic_table_alone() -> None:
    table = topic_table_to_dict(DataVersion(2, 1), {"T": TopicConfig("T")})
    body = RegisterBrokerBody.decode(fastjson.dumps(table), compressed=False, version=36)
    assert body == RegisterBrokerBody(DataVersion(2, 1), {"T": TopicConfig("T")})


@pytest.mark.parametrize("version", [0, 409])
def test_a_registration_may_have_no_body(version: int) -> None:
    body = RegisterBrokerBody.decode(b"", compressed=False, version=version)
    assert body == RegisterBrokerBody(DataVersion(), {})


def test_a_registration_that_grows_beyond_reason_is_refused() -> None:
    bomb = zlib.compress(bytes(80 * 1024 * 1024), 1)
    with pytest.raises(RemoteProtocolError, match="too large"):
        RegisterBrokerBody.decode(bomb, compressed=True, version=409)


@pytest.mark.parametrize("cut", range(0, 100, 7))
def test_a_cut_registration_is_refused(cut: int) -> None:
    packed = RegisterBrokerBody(DataVersion(2, 1), {"T": TopicConfig("T")})._packed()
    data = zlib.compress(packed[: min(cut, len(packed) - 1)])
    with pytest.raises(RemoteProtocolError):
        RegisterBrokerBody.decode(data, compressed=True, version=409)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_a_registration_or_refused(data: bytes, packed: bool) -> None:
    for compressed in (False, True):
        with suppress(RemoteProtocolError):
            RegisterBrokerBody.decode(
                zlib.compress(data) if packed else data, compressed=compressed, version=409
            )
