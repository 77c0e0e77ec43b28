from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import CommandError
from trioha.wire.codes import ResponseCode
from trioha.wire.names import (
    RESERVED_TOPICS,
    SYSTEM_TOPICS,
    check_group,
    check_topic,
    dlq_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
    retry_topic,
)

LEGAL = "%|abcxyzABCXYZ0189_-"


@pytest.mark.parametrize("name", ["T", "%RETRY%my-group", "a|b", "x" * 127])
def test_legal_topics_pass(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "  ",
        "x" * 128,
        "a.b",
        "../../etc/passwd",
        "..",
        "a/b",
        "a\\b",
        "a\0b",
        "a\n",
        "ä",
        "a b",
    ],
)
def test_illegal_topics_are_refused_as_system_errors(name: str) -> None:
    with pytest.raises(CommandError) as refusal:
        check_topic(name)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR


def test_groups_may_be_longer_than_topics() -> None:
    check_group("g" * 255)
    with pytest.raises(CommandError, match="max length 255"):
        check_group("g" * 256)


@given(st.text(max_size=12))
def test_only_the_allowed_characters_pass(name: str) -> None:
    legal = bool(name) and all(c.isascii() and (c.isalnum() or c in "%|_-") for c in name)
    try:
        check_topic(name)
    except CommandError:
        assert not legal
    else:
        assert legal


def test_retry_and_dead_letter_topics_carry_the_group() -> None:
    assert retry_topic("g") == "%RETRY%g"
    assert dlq_topic("g") == "%DLQ%g"
    assert is_retry_topic("%RETRY%g")
    assert not is_retry_topic("%DLQ%g")
    assert is_dlq_topic("%DLQ%g")


def test_system_topics_are_known() -> None:
    assert RESERVED_TOPICS < SYSTEM_TOPICS
    assert is_system_topic("TBW102")
    assert is_system_topic("rmq_sys_whatever")
    assert not is_system_topic("T")
