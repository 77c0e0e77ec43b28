"""The fast reader agrees with the slow one, or leaves the body to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.watch import questions
from trioha.wire import fastjson, queue_tables
from trioha.wire.fastjson import ObjectKeyMap

NAMES = st.text(alphabet='abc%-_{}"\\,:é', max_size=6)
LONGS = st.integers(-(2**63), 2**63 - 1)


def queue(topic: str, queue_id: int) -> dict[str, Any]:
    return {"brokerName": "broker-a", "queueId": queue_id, "topic": topic}


def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read_group_tables", "read_topic_table"):
        monkeypatch.setattr(questions, name, lambda body: None)


ROWS = st.lists(st.tuples(NAMES, LONGS, LONGS, st.booleans()), max_size=4)


@given(st.lists(st.tuples(NAMES, st.lists(ROWS, max_size=3)), max_size=4))
def test_progress_reads_alike_both_ways(groups: list[tuple[str, Any]]) -> None:
    told = [
        {
            group: [
                {
                    "consumeTps": 0.0,
                    "offsetTable": ObjectKeyMap(
                        (
                            queue(topic, number % 7),
                            {"brokerOffset": end, "consumerOffset": number, "lastTimestamp": 5}
                            | ({"minOffset": 3, "nextTimestamp": end} if ranges else {}),
                        )
                        for topic, number, end, ranges in rows
                    ),
                }
                for rows in parts
            ]
        }
        for group, parts in groups
    ]
    body = fastjson.dumps({"brokerAddr": "b:1", "consumeStatsList": told, "totalDiff": 1})
    fast = questions._read_progress(body)
    with pytest.MonkeyPatch.context() as patch:
        slowly(patch)
        assert fast == questions._read_progress(body)


@given(ROWS)
def test_topic_stats_read_alike_both_ways(rows: list[tuple[str, int, int, bool]]) -> None:
    table = ObjectKeyMap(
        (queue(topic, number % 9), {"minOffset": number, "maxOffset": end})
        for topic, number, end, _ in rows
    )
    body = fastjson.dumps({"offsetTable": table})
    fast = questions._read_topic_stats(body)
    with pytest.MonkeyPatch.context() as patch:
        slowly(patch)
        assert fast == questions._read_topic_stats(body)


PARTS = st.lists(st.tuples(st.text("{}:,a", max_size=3), st.text("{}:a", max_size=2)), max_size=6)


@given(PARTS)
def test_a_brace_inside_of_a_text_is_noticed(parts: list[tuple[str, str]]) -> None:
    body = "".join(f'{outside}"{inside}"' for outside, inside in parts)
    has_brace = any("{" in inside or "}" in inside for _, inside in parts)
    assert queue_tables._is_plain(body.encode()) is not has_brace


def test_what_brokers_write_is_read_fast() -> None:
    """The slow parser would take thirty times as long."""
    rows = ObjectKeyMap([(queue("orders", 0), {"minOffset": 1, "maxOffset": 2})])
    assert queue_tables.read_topic_table(fastjson.dumps({"offsetTable": rows})) is not None
    empty = fastjson.dumps({"offsetTable": ObjectKeyMap()})
    assert queue_tables.read_topic_table(empty) == []
    groups = {"consumeStatsList": [{"g": [{"offsetTable": rows}]}, {"h": []}]}
    tables = queue_tables.read_group_tables(fastjson.dumps(groups))
    assert tables is not None
    assert [(group, len(found)) for group, found in tables] == [("g", 1), ("h", 0)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1",
        b'{"offsetTable":{{"queueId":"3"}:{"maxOffset":"9"}}}',
        b'{"offsetTable":{{"queueId":1}:{"maxOffset":99999999999999999999}}}',
        b'{"offsetTable":{{"queueId":1}:{"maxOffset":1}},',
    ],
)
def test_any_other_form_is_left_to_the_slow_reader(body: bytes) -> None:
    assert queue_tables.read_topic_table(body) is None
