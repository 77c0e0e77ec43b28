from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.broker.metadata_ops import (
    AccessPut,
    DelaySet,
    GroupGone,
    GroupPut,
    LocalOffsetsSet,
    MetadataOp,
    OffsetsSet,
    ProgressGone,
    QueueEnds,
    QueuesGone,
    Snapshot,
    TopicGone,
    TopicPut,
    decode_ops,
    encode_offsets,
    encode_ops,
)
from trioha.errors import RemoteProtocolError
from trioha.wire.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig

ANY_OP: list[MetadataOp] = [
    TopicPut(TopicConfig("T", 4, 8, 6, "MULTI_TAG", 1, True), DataVersion(1700, 3)),
    TopicPut(TopicConfig("F", attributes=(("message.type", "FIFO"),)), DataVersion(1700, 3)),
    TopicGone("T", DataVersion(1700, 4)),
    QueuesGone("%RETRY%g"),
    GroupPut(SubscriptionGroupConfig("g", retry_max_times=-1), DataVersion(-1, 3)),
    GroupGone("g", DataVersion(0, 0)),
    OffsetsSet({"T@g": {0: 5, 65_535: (1 << 63) - 1}}),
    LocalOffsetsSet({"%RETRY%g@g": {0: 0}}),
    ProgressGone("g"),
    DelaySet({1: 5, 18: 7}, 4096),
    QueueEnds({"T": {0: 5, 3: 1 << 40}}, {"Old": 77}),
    AccessPut("users", '{"users":[]}'),
    Snapshot(
        DataVersion(1, 2),
        {"T": TopicConfig("T")},
        DataVersion(3, 4),
        {"g": SubscriptionGroupConfig("g")},
        {"T@g": {1: 1}},
        DelaySet({}, 0),
    ),
]


def test_every_op_is_read_as_it_was_written() -> None:
    assert decode_ops(encode_ops(ANY_OP)) == ANY_OP
    assert {type(op) for op in ANY_OP} == set(MetadataOp.__args__)


def test_a_batch_of_commits_has_one_encoding() -> None:
    offsets = {"T@g": {0: 5}}
    assert encode_offsets(offsets) == encode_ops([OffsetsSet(offsets)])


def test_a_body_cut_short_anywhere_is_refused() -> None:
    body = encode_ops(ANY_OP)
    for end in range(len(body)):
        with pytest.raises(RemoteProtocolError, match="metadata cannot be understood"):
            decode_ops(body[:end])


@given(st.binary(max_size=200))
def test_noise_is_refused_with_one_error(noise: bytes) -> None:
    reason = ""
    try:
        decode_ops(noise)
    except RemoteProtocolError as error:
        reason = str(error)
    assert len(reason) < 250


def test_a_table_whose_topics_all_have_odd_names_is_refused() -> None:
    """Hypothesis found the byte that makes "\\" of "T": what was read was an empty table."""
    snapshot = Snapshot(
        *(DataVersion(1, 2), {"\\": TopicConfig("\\")}, DataVersion(3, 4), {}, {}, DelaySet({}, 0))
    )
    with pytest.raises(RemoteProtocolError, match="no topics"):
        decode_ops(encode_ops([snapshot]))


@given(st.data())
def test_one_changed_byte_gives_another_body_or_the_one_error(data: st.DataObject) -> None:
    body = bytearray(encode_ops(ANY_OP))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        ops = decode_ops(body)
    except RemoteProtocolError:
        return
    assert decode_ops(encode_ops(ops)) == ops, "what is taken can be told on"


VERSION = (1, 1)


@pytest.mark.parametrize(
    "op",
    [
        [],
        [0],
        [99, "x"],
        ["6", {}],
        [6],
        [6, []],
        [6, {"T": {0: 1}}],
        [6, {"T@g": {0: -1}}],
        [6, {"T@g": {0: 1 << 63}}],
        [6, {"T@g": {65_536: 1}}],
        [6, {"T@g": {True: 1}}],
        [6, {"T@g": {0: 1.0}}],
        [6, {"../T@g": {0: 1}}],
        [6, {b"T@g": {0: 1}}],
        [6, {}, 1],
        [1, ["../T", 1, 1, 6, "SINGLE_TAG", 0, False], VERSION],
        [1, ["T", 1, 1, 6, "SINGLE_TAG", 0], VERSION],
        [1, ["T", 1, 1, 6, "SINGLE_TAG", 0, 1], VERSION],
        [1, ["T", "1", 1, 6, "SINGLE_TAG", 0, False], VERSION],
        [1, ["T", 1, 1, 6, "SINGLE_TAG", 0, False], (1,)],
        [2, "", VERSION],
        [3, "a/b"],
        [9, {1: -1}, 0],
        [9, {1: 1}, -1],
        [10, VERSION, [], VERSION, [], {}, [{}, 0]],
    ],
)
def test_what_no_broker_writes_is_refused(op: list[object]) -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be understood"):
        decode_ops(msgpack.packb([1, op]))


@pytest.mark.parametrize("body", [b"", b"\xc0", msgpack.packb([2]), msgpack.packb({}), b"\x91" * 9])
def test_what_is_no_body_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be understood"):
        decode_ops(body)


def test_an_odd_name_in_a_table_keeps_no_other_away() -> None:
    """Tables are read from files that RocketMQ wrote, with names that no request would get in."""
    whole = ANY_OP[-1]
    assert isinstance(whole, Snapshot)
    odd = Snapshot(
        whole.topic_version,
        {"a/b": TopicConfig("a/b"), **whole.topics},
        whole.group_version,
        {"..": SubscriptionGroupConfig(".."), **whole.groups},
        whole.offsets,
        whole.delay,
    )
    assert decode_ops(encode_ops([odd])) == [whole]
