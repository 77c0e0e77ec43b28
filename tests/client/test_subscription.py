"""Tags: what the broker is told, and what is compared here."""

from __future__ import annotations

import pytest
from support.fakes.client_messages import received

from trioha.client.subscription import Subscription


@pytest.mark.parametrize("expression", ["*", "A || *", "", "  "])
def test_everything(expression: str) -> None:
    subscription = Subscription("T", expression)
    assert not subscription.tags
    assert subscription.matches(received(properties=b"TAGS\x01A"))
    assert subscription.matches(received())
    assert subscription.data().sub_string == "*"


def test_tags_are_trimmed_and_hashed_like_java() -> None:
    data = Subscription("T", " TagA||TagB ", 7).data()
    assert data.tags_set == {"TagA", "TagB"}
    assert 2598919 in data.code_set
    assert data.sub_version == 7


def test_a_tag_of_the_same_hash_does_not_match() -> None:
    # "Aa" and "BB" have the same Java hash, so the broker lets both pass.
    subscription = Subscription("T", "Aa")
    assert subscription.matches(received(properties=b"TAGS\x01Aa"))
    assert not subscription.matches(received(properties=b"TAGS\x01BB"))


def test_a_message_without_tag_matches_no_tag() -> None:
    assert not Subscription("T", "A").matches(received())
