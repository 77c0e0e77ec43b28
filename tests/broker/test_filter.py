from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioha.broker.filter import (
    EXPRESSION_CHARS_MAX,
    check_subscription,
    header_filter,
    heartbeat_filter,
    is_tag_expression,
    tag_filter,
)
from trioha.errors import CommandError
from trioha.wire.codes import ResponseCode
from trioha.wire.java_hash import string_hash

tags = st.text(
    st.characters(exclude_characters="|*", exclude_categories=["Cs"]), min_size=1, max_size=12
).filter(lambda tag: bool(tag.strip()))


@pytest.mark.parametrize("expression", [None, "", "*", "  ", " * "])
def test_star_and_nothing_take_everything(expression: str | None) -> None:
    assert tag_filter(expression) is None


@pytest.mark.parametrize("expression", ["TagA||TagB", " TagA || TagB ", "TagA || || TagB||"])
def test_tags_are_split_and_trimmed(expression: str) -> None:
    wants = tag_filter(expression)
    assert wants is not None
    assert wants(2598919)  # "TagA".hashCode()
    assert wants(string_hash("TagB"))
    assert not wants(string_hash("TagC"))
    assert not wants(0)  # a message without tags


@pytest.mark.parametrize("expression", ["||", " || ", "|| ||"])
def test_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(CommandError) as refusal:
        tag_filter(expression)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_endless_expression_is_refused() -> None:
    with pytest.raises(CommandError) as refusal:
        tag_filter("a||" * EXPRESSION_CHARS_MAX)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_parsing_is_cached() -> None:
    assert tag_filter("cached || twice") is tag_filter("cached || twice")


def test_negative_hash_is_sign_extended_in_the_queue() -> None:
    assert string_hash("TagRefunded") < 0
    wants = tag_filter("TagRefunded")
    assert wants is not None
    assert wants(string_hash("TagRefunded"))


@settings(max_examples=100)
@given(st.lists(tags, min_size=1, max_size=6), tags)
def test_filter_takes_its_tags_and_only_their_hashes(wanted: list[str], other: str) -> None:
    wants = tag_filter(" || ".join(wanted))
    assert wants is not None
    hashes = {string_hash(tag.strip()) for tag in wanted}
    assert all(wants(code) for code in hashes)
    assert wants(string_hash(other)) == (string_hash(other) in hashes)


@pytest.mark.parametrize("expression_type", [None, "", "TAG"])
def test_tag_is_the_default_type(expression_type: str | None) -> None:
    assert is_tag_expression(expression_type)


def test_sql_is_refused_in_header_and_heartbeat() -> None:
    for build in (header_filter, heartbeat_filter):
        with pytest.raises(CommandError) as refusal:
            build("a > 1", "SQL92")
        assert refusal.value.code == ResponseCode.SYSTEM_ERROR


def test_unknown_type_is_a_parse_failure_in_the_header() -> None:
    with pytest.raises(CommandError) as refusal:
        header_filter("x", "LUA")
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_unknown_type_of_a_heartbeat_has_no_filter_data() -> None:
    with pytest.raises(CommandError) as refusal:
        heartbeat_filter("x", "LUA")
    assert refusal.value.code == ResponseCode.FILTER_DATA_NOT_EXIST


def test_client_config_check_passes_any_tag_expression() -> None:
    check_subscription("||", "TAG")
    with pytest.raises(CommandError):
        check_subscription("a > 1", "SQL92")
