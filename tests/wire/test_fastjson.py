from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.errors import RemoteProtocolError
from trioha.wire.fastjson import DEPTH_MAX, IntKeys, ObjectKeyMap, dumps, loads

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(codec="utf-8"), max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_plain_values_survive_the_round_trip(value: object) -> None:
    data = dumps(value)
    assert loads(data) == value
    assert json.loads(data) == value


@given(VALUES)
def test_the_tolerant_parser_agrees_with_strict_json(value: object) -> None:
    # An unquoted key makes msgspec refuse, so that the whole text is ours to read.
    data = b"{0:" + json.dumps(value).encode() + b"}"
    assert loads(data) == {"0": value}


@given(st.dictionaries(st.integers(-5, 10**12), VALUES, max_size=4))
def test_int_keys_are_written_bare_and_read_as_text(table: dict[int, object]) -> None:
    data = dumps({"offsetTable": IntKeys(table)})
    assert loads(data) == {"offsetTable": {str(key): value for key, value in table.items()}}
    assert b'"0":' not in dumps(IntKeys({0: 5}))


def test_int_keys_look_as_fastjson_writes_them() -> None:
    assert dumps({"offsetTable": {"T@g": IntKeys({0: 5, 1: 7})}}) == (
        b'{"offsetTable":{"T@g":{0:5,1:7}}}'
    )


def test_object_keys_look_as_fastjson_writes_them() -> None:
    queue = {"brokerName": "b", "queueId": 0, "topic": "T"}
    body = {"offsetTable": ObjectKeyMap([(queue, {"maxOffset": 5})])}
    assert dumps(body) == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":5}}}'
    )
    assert loads(dumps(body)) == body


def test_the_special_forms_nest_in_each_other() -> None:
    inner = ObjectKeyMap([({"queueId": 1}, IntKeys({2: [IntKeys({3: "x"})]}))])
    assert dumps([inner]) == b'[{{"queueId":1}:{2:[{3:"x"}]}}]'
    assert loads(dumps([inner])) == [ObjectKeyMap([({"queueId": 1}, {"2": [{"3": "x"}]})])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1}  \r\n\t', {"a": 1}),
        ("{0:1,-1:2}", {"0": 1, "-1": 2}),
        ("{a:1,$b_1:true}", {"a": 1, "$b_1": True}),
        ("{'a':'b\\'c'}", {"a": "b'c"}),
        ('{0:"a\x01b\x02"}', {"0": "a\x01b\x02"}),
        ('"a\x01b"', "a\x01b"),
        ("[1,,2,]", [1, 2]),
        ("{0:1.5e3}", {"0": 1500.0}),
        (r'{0:"\u0001\n\/\x41"}', {"0": "\x01\n/A"}),
        (r'{0:"\ud83d\ude00"}', {"0": "\U0001f600"}),
        (r'{0:"\ud800"}', {"0": "\ufffd"}),
        ("{0:{}}", {"0": {}}),
        ("{0:[{}]}", {"0": [{}]}),
    ],
)
def test_what_java_peers_write_is_read(text: str, expected: object) -> None:
    assert loads(text.encode()) == expected
    assert loads(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{0",
        "{0:",
        "{0:1",
        "[",
        '"abc',
        '"\\',
        "{0:nan}",
        "NaN",
        "Infinity",
        "{0:1e999}",
        "{:1}",
        "{0 1}",
        "{0:1} x",
        "{0:" + "1" * 500 + "}",
        "{0:" * 10_000,
        "{" * 10_000,
        "[" * 100_000,
    ],
)
def test_what_is_no_json_at_all_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        loads(text.encode())


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        loads(b'{"a":"\xff"}')


def test_nesting_is_limited() -> None:
    assert loads("{0:" * DEPTH_MAX + "1" + "}" * DEPTH_MAX)
    with pytest.raises(RemoteProtocolError, match="nested"):
        loads("{0:" * (DEPTH_MAX + 1) + "1" + "}" * (DEPTH_MAX + 1))


@given(st.binary(max_size=60) | st.text("{}[]:,\"'\\0a1e.-u \n", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        dumps(loads(data))


def test_what_json_cannot_hold_is_our_mistake() -> None:
    with pytest.raises(TypeError):
        dumps({"a": object()})


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.text('{,5:-" \\', max_size=8),
        st.dictionaries(st.integers(-9, 9), st.text('{,5:-" \\', max_size=8), max_size=2),
        max_size=3,
    )
)
def test_quoting_bare_keys_never_changes_a_text(value: dict[str, dict[int, str]]) -> None:
    text = dumps({key: IntKeys(row) for key, row in value.items()})
    expected = {
        key: {str(number): word for number, word in row.items()} for key, row in value.items()
    }
    assert loads(text) == expected
