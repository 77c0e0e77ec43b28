"""The entry of a user's policies that decides, and the contents of the file of users."""

from __future__ import annotations

import json
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import ConfigError
from trioha.security.auth_file import (
    AuthBook,
    auth_rules_of,
    changed_text,
    parse_auth_file,
    policies_of,
    text_of,
)
from trioha.security.policies import (
    Action,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceKind,
    User,
    UserStatus,
    UserType,
    decision_of,
)

HERE, ELSEWHERE = ip_address("10.1.2.3"), ip_address("192.168.0.1")
PUB = frozenset({Action.PUB})
ORDERS = Resource(ResourceKind.TOPIC, "orders")


def entry(text: str, decision: str = "Allow", actions: str = "Pub", *ips: str) -> PolicyEntry:
    resource = Resource.parse(text)
    assert resource is not None
    found = frozenset(Action(word) for word in actions.split())
    return PolicyEntry(resource, found, Decision(decision), ips)


def decided(*entries: PolicyEntry, default: tuple[PolicyEntry, ...] = ()) -> Decision | None:
    policies = {PolicyType.CUSTOM: entries, PolicyType.DEFAULT: default}
    return decision_of(policies, ORDERS, PUB, HERE)


@pytest.mark.parametrize(
    ("closer", "farther"),
    [
        ("Topic:orders", "Topic:ord*"),
        ("Topic:order*", "Topic:ord*"),
        ("Topic:o*", "Topic:*"),
        ("Topic:*", "*"),
        ("Topic:orders", "*"),
    ],
)
def test_the_closest_resource_decides_in_either_order(closer: str, farther: str) -> None:
    for one, other in (("Allow", "Deny"), ("Deny", "Allow")):
        pair = entry(closer, one), entry(farther, other)
        assert decided(*pair) == decided(*pair[::-1]) == Decision(one)


@pytest.mark.parametrize(
    "other", ["Topic:order", "Topic:ordersx", "Group:orders", "Cluster:*", "Topic:x*"]
)
def test_other_resources_say_nothing(other: str) -> None:
    assert decided(entry(other)) is None


def test_default_policies_are_asked_when_no_custom_entry_matches() -> None:
    assert decided(default=(entry("Topic:orders"),)) is Decision.ALLOW
    assert decided(entry("*", "Deny"), default=(entry("Topic:orders"),)) is Decision.DENY
    assert decided(entry("*", "Deny", "Sub"), default=(entry("Topic:orders"),)) is Decision.ALLOW


def test_actions_and_addresses_must_match() -> None:
    assert decided(entry("*", "Allow", "Sub Get")) is None
    assert decided(entry("*", "Allow", "All")) is Decision.ALLOW
    near = entry("*", "Allow", "Pub", "10.0.0.0/8", "::1")
    assert decided(near) is Decision.ALLOW
    assert decision_of({PolicyType.CUSTOM: [near]}, ORDERS, PUB, ELSEWHERE) is None
    assert decision_of({PolicyType.CUSTOM: [near]}, ORDERS, PUB, None) is None


@pytest.mark.parametrize("text", ["", ":", "Topic", "Topic:", "Foo:x", "**"])
def test_what_is_no_resource_is_none(text: str) -> None:
    assert Resource.parse(text) is None


@given(st.text())
def test_a_resource_is_read_back_as_it_is_written(text: str) -> None:
    resource = Resource.parse(text) or Resource.parse(f"topic:{text}")
    if resource is not None:
        assert Resource.parse(str(resource)) == resource


def shop(**changes: Any) -> str:
    user = {"username": "shop", "password": "p", **changes}
    return json.dumps({"users": [user]})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not readable as JSON"),
        ("[]", "users must be a list, within an object"),
        ('{"users": [{}]}', "a user without username"),
        (shop(password=" "), "has no password"),
        (shop(userType="Boss"), "userType is Super or Normal"),
        (shop(userStatus="gone"), "userStatus is enable or disable"),
        ('{"acls": [{"subject": "shop"}]}', "a subject is User:NAME"),
        ('{"acls": [{"subject": "User:shop"}]}', "User:shop: The policies is empty."),
    ],
)
def test_a_broken_file_names_itself_and_the_cure(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"^/x/auth\.json: ") as refusal:
        parse_auth_file("/x/auth.json", text)
    assert says in str(refusal.value)


def test_policies_of_nobody_are_refused() -> None:
    policies = policies_of(
        {"policies": [{"entries": [{"resource": "*", "actions": ["All"], "decision": "Allow"}]}]}
    )
    with pytest.raises(ConfigError, match="no such user"):
        parse_auth_file("f", text_of(AuthBook("f").put_policies("gone", policies)))


def test_users_and_policies_come_back_from_their_text() -> None:
    book = (
        AuthBook("f")
        .put_user(User("a", "secret-a", UserType.SUPER))
        .put_user(User("b", "secret-b", UserType.NORMAL, UserStatus.DISABLE))
        .put_policies("b", {PolicyType.CUSTOM: [entry("Topic:t", "Deny", "Pub Sub", "10.0.0.0/8")]})
        .put_policies("b", {PolicyType.DEFAULT: [entry("*", "Allow", "Get")]})
    )
    assert parse_auth_file("f", text_of(book)) == book
    assert parse_auth_file("f", "") == AuthBook("f")
    assert "secret" not in repr(book)


def test_entries_of_a_resource_are_replaced_and_the_last_one_takes_the_policies_along() -> None:
    book = AuthBook("f").put_user(User("b", "p"))
    first, second = entry("Topic:t"), entry("Topic:t", "Deny")
    book = book.put_policies("b", {PolicyType.CUSTOM: [first, entry("Topic:u")]})
    book = book.put_policies("b", {PolicyType.CUSTOM: [second]})
    assert book.acls["b"] == {PolicyType.CUSTOM: [second, entry("Topic:u")]}
    book = book.without_policies("b", PolicyType.CUSTOM, Resource.parse("Topic:t"))
    assert book.acls["b"] == {PolicyType.CUSTOM: [entry("Topic:u")]}
    book = book.without_policies("b", PolicyType.CUSTOM, Resource.parse("Topic:u"))
    assert not book.acls
    book = book.put_policies("b", {PolicyType.CUSTOM: [first]})
    assert book.without_user("b") == AuthBook("f")


def test_a_change_is_made_to_the_text() -> None:
    text = changed_text(lambda book: book.put_user(User("a", "p", UserType.SUPER)))("f", "")
    rules = auth_rules_of([parse_auth_file("f", text)])
    credentials = rules.first_admin()
    assert credentials is not None
    assert (credentials.access_key, credentials.secret_key) == ("a", "p")
    assert auth_rules_of([]).first_admin() is None


def test_a_disabled_super_user_signs_for_no_node() -> None:
    user = User("a", "p", UserType.SUPER, UserStatus.DISABLE)
    assert auth_rules_of([AuthBook("f").put_user(user)]).first_admin() is None
