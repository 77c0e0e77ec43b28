"""Permissions of accounts: Permission.java and PlainPermissionManager.checkPerm of 4.9."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioha.security.account_text import AccountText
from trioha.security.accounts import Account, AclRules, perm_of
from trioha.security.addresses import parse_addresses
from trioha.security.requirement import AccountPerm, Need
from trioha.wire.record import TOPIC_BYTES_MAX

PUB, SUB = AccountPerm.PUB, AccountPerm.SUB
ACCOUNT = AccountText(
    "RocketMQ",
    "12345678",
    "",
    False,
    "DENY",
    "SUB",
    ("topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"),
    ("groupA=DENY", "groupB=PUB|SUB", "groupC=SUB"),
)
"""The first account of RocketMQ's own plain_acl.yml."""
words = st.sampled_from(["DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB", "", "pub", "ANY"])


@pytest.mark.parametrize(
    ("resource", "perm", "allowed"),
    [
        ("topicA", PUB, False),
        ("topicA", SUB, False),
        ("topicB", PUB, True),
        ("topicB", SUB, True),
        ("topicC", PUB, False),
        ("topicC", SUB, True),
        ("topicD", SUB, False),
        ("%RETRY%groupA", SUB, False),
        ("%RETRY%groupB", SUB, True),
        ("%RETRY%groupC", SUB, True),
        ("%RETRY%groupD", SUB, True),
        ("groupC", SUB, False),
        ("RMQ_SYS_TRACE_TOPIC", PUB, True),
        ("RMQ_SYS_TRACE_TOPIC", SUB, False),
    ],
)
def test_an_account_may_what_its_rules_say(resource: str, perm: int, allowed: bool) -> None:
    need = Need(resource, perm)
    assert Account(ACCOUNT).missing([need]) == (None if allowed else need)


def test_every_need_must_be_met() -> None:
    account = Account(ACCOUNT)
    assert account.missing([]) is None
    assert account.missing([Need("topicC", SUB), Need("%RETRY%groupC", SUB)]) is None
    denied = Need("%RETRY%groupA", SUB)
    assert account.missing([Need("topicC", SUB), denied]) == denied
    assert denied.words == "group:groupA"
    assert Need("topicA", SUB).words == "topic:topicA"


def test_an_admin_without_rules_may_everything_and_one_with_rules_what_they_say() -> None:
    admin = Account(AccountText("rocketmq2", "12345678", admin=True))
    assert admin.missing([Need("anything", PUB), Need("%RETRY%any", SUB)]) is None
    bound = Account(attrs.evolve(ACCOUNT, admin=True))
    assert bound.missing([Need("topicA", PUB)]) == Need("topicA", PUB)


@given(words, words, st.sampled_from([AccountPerm.PUB, AccountPerm.SUB]))
def test_a_rule_of_its_own_goes_before_the_default(default: str, rule: str, perm: int) -> None:
    account = Account(
        AccountText("account", "12345678", "", False, default, "PUB|SUB", [f"t={rule or 'DENY'}"])
    )
    may = account.missing([Need("t", perm)]) is None
    assert may == bool(perm_of(rule) & perm and not perm_of(rule) & AccountPerm.DENY)
    may_other = account.missing([Need("other", perm)]) is None
    assert may_other == bool(perm_of(default) & perm and not perm_of(default) & AccountPerm.DENY)


@pytest.mark.parametrize("text", ["", "PUB,SUB", "pub", "ANY", "WRITE", "PUB | SUB"])
def test_an_unknown_word_denies(text: str) -> None:
    assert perm_of(text) == AccountPerm.DENY


@pytest.mark.parametrize(
    "text",
    [
        attrs.evolve(ACCOUNT, access_key="sixsix"),
        attrs.evolve(ACCOUNT, secret_key="123456"),
        attrs.evolve(ACCOUNT, topic_perms=["topicA"]),
        attrs.evolve(ACCOUNT, group_perms=["a=b=c"]),
        attrs.evolve(ACCOUNT, white_remote_address="here"),
    ],
)
def test_an_account_that_java_refuses_is_refused(text: AccountText) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Account(text)


def test_of_two_accounts_with_one_access_key_the_first_counts() -> None:
    first, second = Account(ACCOUNT), Account(attrs.evolve(ACCOUNT, admin=True))
    assert AclRules([first, second]).accounts["RocketMQ"] is first
    assert AclRules([second, first]).accounts["RocketMQ"] is second


def test_the_global_white_list_is_remembered_by_host() -> None:
    listed = parse_addresses("10.10.103.*")
    assert listed is not None
    rules = AclRules([], [listed])
    for _ in range(2):
        assert rules.admits("10.10.103.9:1")
        assert not rules.admits("10.10.104.9:1")
        assert not rules.admits("memory:1")
    assert not AclRules([], []).admits("10.10.103.9:1")


def test_a_node_signs_with_the_first_admin() -> None:
    admin = AccountText("admin-1", "12345678", admin=True)
    rules = AclRules(map(Account, [ACCOUNT, admin, attrs.evolve(admin, access_key="admin-2")]))
    credentials = rules.first_admin()
    assert credentials is not None
    assert credentials.access_key == "admin-1"
    assert AclRules([Account(ACCOUNT)]).first_admin() is None


def test_a_name_that_no_topic_has_is_not_remembered() -> None:
    account = Account(ACCOUNT)
    for topic in ("t" * TOPIC_BYTES_MAX, "t" * (TOPIC_BYTES_MAX + 1)):
        account.remember_topic(topic)
    assert account.topics_sent_to == {"t" * TOPIC_BYTES_MAX}
