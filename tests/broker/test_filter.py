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
    retry_filter,
    tag_filter,
)
from trioha.errors import CommandError
from trioha.store.interface import RecordFilter
from trioha.wire.codes import ResponseCode
from trioha.wire.heartbeat import SubscriptionData
from trioha.wire.java_hash import string_hash
from trioha.wire.properties import encode_properties

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
            build("a > 1", "SQL92", has_sql92=False)
        assert refusal.value.code == ResponseCode.SYSTEM_ERROR


def test_unknown_type_is_a_parse_failure_in_the_header() -> None:
    with pytest.raises(CommandError) as refusal:
        header_filter("x", "LUA", has_sql92=True)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_unknown_type_of_a_heartbeat_has_no_filter_data() -> None:
    with pytest.raises(CommandError) as refusal:
        heartbeat_filter("x", "LUA", has_sql92=True)
    assert refusal.value.code == ResponseCode.FILTER_DATA_NOT_EXIST


def test_client_config_check_passes_any_tag_expression() -> None:
    check_subscription("||", "TAG", has_sql92=False)
    with pytest.raises(CommandError):
        check_subscription("a > 1", "SQL92", has_sql92=False)


def test_sql_that_is_switched_on_filters_records() -> None:
    for build in (header_filter, heartbeat_filter):
        wants = build("a > 1 AND TAGS = 'x'", "SQL92", has_sql92=True)
        assert isinstance(wants, RecordFilter)
        assert wants.wants(encode_properties({"TAGS": "x", "a": "2"}))
        assert not wants.wants(encode_properties({"TAGS": "x", "a": "1"}))
        assert not wants.wants(b"")
        assert not wants.wants(b"a\x01\xff\x02\x01\x02TAGS\x01x")
        assert wants.cost == 7


def test_wrong_sql_names_its_place() -> None:
    with pytest.raises(CommandError, match="'a >': character 4: expected a property") as refusal:
        check_subscription("a >", "SQL92", has_sql92=True)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    with pytest.raises(CommandError, match=r"filter data is not exist: .* character 4") as refusal:
        heartbeat_filter("a >", "SQL92", has_sql92=True)
    assert refusal.value.code == ResponseCode.FILTER_DATA_NOT_EXIST


@pytest.mark.parametrize("expression", ["", "(" * 1_000_000, "a=1 OR " * 150_000])
def test_hostile_sql_is_a_parse_failure(expression: str) -> None:
    with pytest.raises(CommandError) as refusal:
        header_filter(expression, "SQL92", has_sql92=True)
    assert refusal.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert len(refusal.value.remark) < 300


def test_retried_messages_are_asked_about_by_their_first_topic() -> None:
    def of(topic: str, expression: str, expression_type: str = "SQL92") -> SubscriptionData:
        return SubscriptionData(topic, expression, expression_type=expression_type)

    assert retry_filter({"T": of("T", "x", "TAG")}) is None
    assert retry_filter({"T": of("T", "a >")}) is None
    subscriptions = [of("T", "a > 1"), of("U", "a >"), of("V", "x", "TAG")]
    wants = retry_filter({subscription.topic: subscription for subscription in subscriptions})
    assert wants is not None
    assert wants.wants(encode_properties({"RETRY_TOPIC": "T", "a": "2"}))
    assert not wants.wants(encode_properties({"RETRY_TOPIC": "T", "a": "1"}))
    assert wants.wants(encode_properties({"RETRY_TOPIC": "U", "a": "1"}))
    assert wants.wants(encode_properties({"RETRY_TOPIC": "V", "a": "1"}))
    assert wants.wants(b"")
