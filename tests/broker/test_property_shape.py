from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.handlers.sending import ProduceSide, send_v2

from trioha.broker.property_shape import PropertyShapes
from trioha.broker.send import SendProcessor
from trioha.errors import RemoteProtocolError
from trioha.wire.batch import BatchElement, encode_batch
from trioha.wire.java_hash import string_hash
from trioha.wire.properties import decode_properties, encode_properties

NAMES = st.sampled_from(["UNIQ_KEY", "XUNIQ_KEY", "WAIT", "TAGS", "KEYS", "CLUSTER", "A", ""])
VALUES = st.sampled_from(["", "true", "False", "x", "a b", "7F00" * 8, "é", "UNIQ_KEY\x01y"])
TEXTS = st.lists(st.tuples(NAMES, VALUES), max_size=5).map(
    lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs)
)


def keys_of(values: dict[str, str]) -> list[bytes]:
    words = [word for word in values.get("KEYS", "").split(" ") if word]
    unique = [values["UNIQ_KEY"]] if "UNIQ_KEY" in values else []
    return [word.encode() for word in unique + words]


@settings(deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), ending=st.sampled_from(["", "\x02"]))
@example(texts=["UNIQ_KEY\x01a\x02WAIT\x01true", "UNIQ_KEY\x01b\x02WAIT\x01true"], ending="")
def test_a_known_shape_is_stored_as_if_it_were_parsed(texts: list[str], ending: str) -> None:
    side = ProduceSide()
    for text in texts:
        side.send(send_v2(properties=text + ending))
        values = decode_properties(text + ending)
        values.pop("WAIT", None)
        values["CLUSTER"] = "DefaultCluster"
        stored, _ = side.store.messages[-1]
        assert stored.properties == encode_properties(values)
        assert list(stored.keys) == keys_of(values)
        assert stored.tags_code == string_hash(values.get("TAGS", ""))


@settings(deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), shared=st.sampled_from(["", "TAGS\x01T"]))
@example(texts=["UNIQ_KEY\x01a\x02WAIT\x01true", "UNIQ_KEY\x01b\x02"], shared="")
def test_a_batch_is_stored_as_if_it_were_parsed(texts: list[str], shared: str) -> None:
    side = ProduceSide()
    body = encode_batch(BatchElement(0, b"", text.encode()) for text in texts)
    side.send(send_v2(body=body, properties=shared, m="true"))
    added = decode_properties(shared) | {"CLUSTER": "DefaultCluster"}
    for text, (stored, _) in zip(texts, side.store.messages, strict=True):
        separator = "\x02" if text and not text.endswith("\x02") else ""
        assert stored.properties == (text + separator).encode() + encode_properties(added)
        values = decode_properties(text) | added
        assert list(stored.keys) == keys_of(values)
        assert stored.tags_code == string_hash(values.get("TAGS", ""))


@pytest.mark.parametrize("special", ["DELAY\x011", "TRAN_MSG\x01true"])
def test_what_goes_another_way_is_not_plain(special: str) -> None:
    shapes = PropertyShapes("c")
    for _ in range(2):
        assert not shapes.learn(f"{special}\x02UNIQ_KEY\x01".encode(), b"").is_plain


def test_wait_is_part_of_the_shape() -> None:
    shapes = PropertyShapes("c")
    assert shapes.learn(b"UNIQ_KEY\x01", b"").wait
    assert not shapes.learn(b"UNIQ_KEY\x01", b"\x02WAIT\x01false").wait


def test_shapes_are_bounded_in_number_and_size() -> None:
    shapes = PropertyShapes("c")
    for number in range(3000):
        shapes.learn(b"UNIQ_KEY\x01", b"\x02A\x01%d" % number)
    assert 0 < len(shapes.known) <= 1024
    shapes.known.clear()
    shapes.learn(b"UNIQ_KEY\x01", b"\x02A\x01" + b"x" * 600)
    assert shapes.known == {}


def test_a_producer_is_learned_once() -> None:
    side = ProduceSide()
    sender: SendProcessor = side.sender
    for number in range(5):
        side.send(send_v2(properties=f"UNIQ_KEY\x01{number}\x02WAIT\x01true"))
    assert len(sender._shapes.known) == 1


def test_a_shape_that_is_no_text_is_refused() -> None:
    shapes = PropertyShapes("C")
    with pytest.raises(RemoteProtocolError, match="not UTF-8"):
        shapes.learn(b"A\x01\xff\x02UNIQ_KEY\x01", b"")
    assert not shapes.known
