"""Tasks and settings of nodes that may be hostile: as promised, or one error in words."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.errors import RemoteProtocolError
from trioha.services.admin.task_tree import tree_lines
from trioha.watch.node_inside import ANSWER_BYTES_MAX, NESTED_MAX, read_settings, read_tasks
from trioha.wire.remoting_command import RemotingCommand

ASKED = RemotingCommand(30004)
LEAF = {"name": "leaf", "waits_in": "", "nurseries": []}


def nested(depth: int) -> dict[str, Any]:
    task: dict[str, Any] = LEAF
    for _ in range(depth - 1):
        nursery = {"tasks": [task], "left_out": 0, "deadline_in_s": None}
        task = {"name": "x", "waits_in": "", "nurseries": [nursery]}
    return task


def answer(told: object) -> RemotingCommand:
    return ASKED.response(body=msgpack.packb(told))


def test_a_tree_comes_back_as_it_was_told() -> None:
    told = {"count": 7, "root": nested(NESTED_MAX)}
    assert read_tasks("a:1", answer(told)) == told


@pytest.mark.parametrize(
    ("root", "reason"),
    [
        (5, "is not a map but 5"),
        ({"name": "x"}, "nurseries is missing"),
        (LEAF | {"name": b"x" * 10_000}, "name is not text"),
        (LEAF | {"nurseries": {"a": 1}}, "nurseries is not a list"),
        (LEAF | {"nurseries": [{"tasks": [], "left_out": -1}]}, "left_out is not a count but -1"),
        (
            LEAF | {"nurseries": [{"tasks": [], "left_out": 0, "deadline_in_s": float("nan")}]},
            "deadline_in_s is not a number but nan",
        ),
        (LEAF | {"nurseries": [{"tasks": [], "left_out": 0}] * 10_000}, "10000 nurseries"),
        (nested(NESTED_MAX + 1), "more than 100 tasks within each other"),
    ],
)
def test_what_is_no_tree_is_told_in_one_short_line(root: object, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"^a:1: no tree of tasks: .*{reason}") as told:
        read_tasks("a:1", answer({"count": 1, "root": root}))
    assert len(str(told.value)) < 300


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, float("inf"), b"x"])
def test_a_setting_is_text_a_number_or_a_switch(value: object) -> None:
    rows = {"settings": [{"key": "k", "value": value, "origin": ""}]}
    with pytest.raises(RemoteProtocolError, match="value is not text, a number, true or false"):
        read_settings("a:1", answer(rows))


def test_an_answer_beyond_the_limit_is_not_even_decoded() -> None:
    huge = ASKED.response(body=bytes(ANSWER_BYTES_MAX + 1))
    with pytest.raises(RemoteProtocolError, match=f"at most {ANSWER_BYTES_MAX} are read"):
        read_tasks("a:1", huge)


VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
NAMES = st.sampled_from(["name", "waits_in", "nurseries", "tasks", "left_out", "root", "count"])
NAMES |= st.sampled_from(["settings", "key", "value", "origin", "doc", "deadline_in_s"])
ANYTHING = st.recursive(
    VALUES | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(ANYTHING)
def test_whatever_a_node_tells_it_is_shown_or_one_error(told: object) -> None:
    with suppress(RemoteProtocolError):
        list(tree_lines(read_tasks("a:1", answer(told))["root"]))
    with suppress(RemoteProtocolError):
        assert all(isinstance(row["key"], str) for row in read_settings("a:1", answer(told)))
