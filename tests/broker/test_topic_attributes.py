"""Attributes of topics: what a request changes, and what is rejected."""

from __future__ import annotations

import pytest

from trioha.broker.topic_attributes import altered
from trioha.errors import CommandError


def test_changes_are_taken_one_by_one_and_the_rest_stays() -> None:
    attributes = altered({}, "+message.type=FIFO,+reserve.time=100", is_new=True)
    assert attributes == {"message.type": "FIFO", "reserve.time": "100"}
    assert altered(attributes, "", is_new=False) == attributes
    changed = altered(attributes, "-reserve.time,+message.type=DELAY", is_new=False)
    assert changed == {"message.type": "DELAY"}
    assert attributes["message.type"] == "FIFO"


def test_what_says_how_it_is_anyway_is_kept() -> None:
    changes = "+queue.type=SimpleCQ,+cleanup.policy=DELETE"
    attributes = altered({}, changes, is_new=True)
    assert attributes == {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}
    assert altered(attributes, changes, is_new=False) == attributes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("message.type=FIFO", "neither"),
        ("+message.type", "neither"),
        ("+message.type=", "neither"),
        ("-message.type=FIFO", "neither"),
        ("+", "neither"),
        ("+=FIFO", "neither"),
        ("+message.type=SIDEWAYS", "FIFO, MIXED"),
        ("+message.typ=FIFO", "unknown attribute 'message.typ'"),
        ("+message.type=FIFO,+message.type=DELAY", "named twice"),
        ("-reserve.time", "does not have it"),
        ("+reserve.time=-2", "a number"),
        ("+reserve.time=soon", "a number"),
        ("+reserve.time=--1", "a number"),
        ("+reserve.time=" + "9" * 5000, "a number"),
        ("+queue.type=BatchCQ", "not supported"),
        ("+cleanup.policy=COMPACTION", "not supported"),
    ],
)
def test_what_is_wrong_is_said(changes: str, words: str) -> None:
    with pytest.raises(CommandError) as caught:
        altered({"message.type": "NORMAL"}, changes, is_new=False)
    assert words in str(caught.value.remark)


def test_some_are_fixed_once_the_topic_exists() -> None:
    for current, changes in (
        ({}, "+queue.type=SimpleCQ"),
        ({"queue.type": "SimpleCQ"}, "-queue.type"),
    ):
        with pytest.raises(CommandError, match="cannot be changed once"):
            altered(current, changes, is_new=False)
