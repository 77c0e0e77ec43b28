from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import RemoteProtocolError
from trioha.wire.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)

NAMES = st.text("abcXYZ%_-@", max_size=12)
SUBSCRIPTIONS = st.builds(
    SubscriptionData,
    NAMES,
    NAMES,
    st.frozensets(NAMES, max_size=3),
    st.frozensets(st.integers(-(2**31), 2**31 - 1), max_size=3),
    st.integers(0, 2**62),
    st.sampled_from(["TAG", "SQL92"]),
    st.booleans(),
)
HEARTBEATS = st.builds(
    HeartbeatData,
    NAMES,
    st.lists(st.builds(ProducerData, NAMES), max_size=2).map(tuple),
    st.lists(
        st.builds(
            ConsumerData,
            NAMES,
            st.sampled_from(ConsumeType),
            st.sampled_from(MessageModel),
            st.sampled_from(ConsumeFromWhere),
            st.booleans(),
            st.lists(SUBSCRIPTIONS, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)

JAVA = (
    b'{"clientID":"1.2.3.4@123","producerDataSet":[{"groupName":"pg"}],"consumerDataSet":'
    b'[{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
    b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","unitMode":false,"subscriptionDataSet":'
    b'[{"classFilterMode":false,"topic":"T","subString":"TagA || TagB","tagsSet":["TagA"],'
    b'"codeSet":[2598919],"subVersion":1700000000000,"expressionType":"TAG"}]}]}'
)
# Ordinals, a version as text, codes as text, no sets and no expression type.
CPP = (
    b'{"clientID":"1.2.3.4@123","producerDataSet":[{"groupName":"pg"}],"consumerDataSet":'
    b'[{"groupName":"g","consumeType":1,"messageModel":1,"consumeFromWhere":0,'
    b'"subscriptionDataSet":[{"topic":"T","subString":"TagA || TagB","tagsSet":["TagA"],'
    b'"codeSet":["2598919"],"subVersion":"1700000000000"}]}]}\n'
)


@pytest.mark.parametrize("body", [JAVA, CPP])
def test_java_and_cpp_clients_say_the_same(body: bytes) -> None:
    heartbeat = HeartbeatData.decode(body)
    assert heartbeat == HeartbeatData(
        "1.2.3.4@123",
        (ProducerData("pg"),),
        (
            ConsumerData(
                "g",
                ConsumeType.CONSUME_PASSIVELY,
                MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                False,
                (
                    SubscriptionData(
                        "T",
                        "TagA || TagB",
                        frozenset({"TagA"}),
                        frozenset({2598919}),
                        1700000000000,
                        "TAG",
                    ),
                ),
            ),
        ),
    )


@given(HEARTBEATS)
def test_heartbeats_survive_the_round_trip(heartbeat: HeartbeatData) -> None:
    assert HeartbeatData.decode(heartbeat.encode()) == heartbeat
    json.loads(heartbeat.encode())


def test_absent_sets_are_empty() -> None:
    assert HeartbeatData.decode(b'{"clientID":"c"}') == HeartbeatData("c")
    assert HeartbeatData.decode(b'{"clientID":"c","consumerDataSet":null}') == HeartbeatData("c")


def test_enums_of_later_versions_do_no_harm() -> None:
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_POP"},'
    body += b'{"groupName":"h","consumeType":"CONSUME_SOMEHOW","messageModel":99}]}'
    pop, other = HeartbeatData.decode(body).consumers
    assert pop.consume_type is ConsumeType.CONSUME_POP
    assert (other.consume_type, other.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"clientID":[]}',
        b'{"producerDataSet":{}}',
        b'{"producerDataSet":[5]}',
        b'{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":["x"]}]}]}',
        b'{"consumerDataSet":[{"subscriptionDataSet":[{"tagsSet":[1]}]}]}',
        b'{"consumerDataSet":[{"subscriptionDataSet":[{"subVersion":1e300}]}]}',
    ],
)
def test_heartbeats_of_the_wrong_shape_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        HeartbeatData.decode(body)


@pytest.mark.parametrize(
    "body",
    [
        '{"clientID":"a","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[%s]}]}',
        '{"clientID":"a","consumerDataSet":[%s]}',
        '{"clientID":"a","producerDataSet":[%s]}',
    ],
)
def test_a_heartbeat_is_counted_before_anything_is_made_of_it(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (SubscriptionData, ConsumerData, ProducerData):
        monkeypatch.setattr(kind, "from_dict", None)
    with pytest.raises(RemoteProtocolError, match="at most"):
        HeartbeatData.decode((body % ",".join(["{}"] * 80_000)).encode())


def test_what_is_no_strict_json_may_not_be_large() -> None:
    body = b"{'clientID':'a','producerDataSet':[%b]}"
    assert HeartbeatData.decode(body % b"").client_id == "a"
    with pytest.raises(RemoteProtocolError, match="no strict JSON"):
        HeartbeatData.decode(body % b"{},".join([b""] * 30_000))
