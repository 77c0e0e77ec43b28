"""``plain_acl.yml``: read, refused with line and cure, changed."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trioha.errors import ConfigError
from trioha.security.account_text import AccountText
from trioha.security.acl_file import (
    AccountChange,
    parse_acl_file,
    rules_of,
    with_account,
    with_white_addresses,
    without_account,
)
from trioha.wire.bodies import DataVersion

STOCK = """\
# the file of RocketMQ's distribution
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""
NAME = "plain_acl.yml"


def test_the_stock_file_is_read_whole() -> None:
    file = parse_acl_file(NAME, STOCK)
    first, second = (account.text for account in file.accounts)
    assert first == AccountText(
        "RocketMQ",
        "12345678",
        "",
        False,
        "DENY",
        "SUB",
        ("topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"),
        ("groupA=DENY", "groupB=PUB|SUB", "groupC=SUB"),
    )
    assert (second.access_key, second.admin) == ("rocketmq2", True)
    assert second.white_remote_address == "192.168.1.*"
    assert file.white_texts == ("10.10.103.*", "192.168.0.*")
    assert rules_of([file]).admits("192.168.0.7:5555")


@pytest.mark.parametrize("text", ["", "# nothing\n", "~\n", "accounts:\n", "accounts: []\n"])
def test_an_empty_file_has_no_accounts(text: str) -> None:
    file = parse_acl_file(NAME, text)
    assert not file.accounts
    assert file.version == DataVersion()


def test_a_secret_is_the_text_that_is_written() -> None:
    for secret in ("01234567", "1_000_000", "2020-01-01", "1e100000", "0x1234567", "true-true"):
        text = f"accounts:\n- accessKey: account\n  secretKey: {secret}\n"
        assert parse_acl_file(NAME, text).accounts[0].text.secret_key == secret


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("accounts: [", 2, "correct the YAML"),
        ("accounts:\n- accessKey: a\n\tb", 3, "correct the YAML"),
        ("accounts: 7\n", 1, "must be a list"),
        ("- accounts\n", 1, "keys with values"),
        ("accounts:\n- RocketMQ\n", 2, "keys with values"),
        ("accounts:\n- accessKey: RocketMQ\n", 2, "secretKey must have 7"),
        ("accounts:\n- accessKey: short\n  secretKey: 12345678\n", 2, "accessKey must have 7"),
        ("accounts:\n- accessKey: RocketMQ\n  secretKey: short\n", 3, "secretKey must have 7"),
        ("accounts:\n- accessKey: RocketMQ\n  secretKey: [a]\n", 3, "one value"),
        (STOCK.replace("topicA=DENY", "topicA"), 14, "topicA=PUB|SUB"),
        (STOCK.replace("192.168.1.*", "192.168"), 25, "is no address"),
        (STOCK.replace("10.10.103.*", "10.10.*"), 3, "four groups"),
        (STOCK + "dataVersion:\n- counter: many\n", 29, "whole number"),
        ("a: *b\n", 1, "correct the YAML"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_acl_file(NAME, text)
    assert str(raised.value).startswith(f"{NAME}:{line}: ")
    assert words in str(raised.value)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_acl_file(NAME, text)
        without_account(NAME, text, "nobody-there", 1)
    except ConfigError:
        pass


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]\n",
        "a: " + "[" * 5000 + "]" * 5000,
        "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: &d [*c,*c]\ne: [*d,*d]\n",
    ],
)
def test_a_text_that_refers_to_itself_or_is_deep_does_no_harm(text: str) -> None:
    try:
        changed = with_white_addresses(NAME, text, ["*"], 1)
    except ConfigError:
        return
    assert parse_acl_file(NAME, changed).white_texts == ("*",)


def test_a_change_keeps_what_it_does_not_name() -> None:
    change = AccountChange("RocketMQ", "87654321", topic_perms=["topicZ=PUB"])
    text = with_account(NAME, STOCK, change, 1_700_000_000_000)
    file = parse_acl_file(NAME, text)
    first, second = (account.text for account in file.accounts)
    assert first == AccountText(
        "RocketMQ",
        "87654321",
        "",
        False,
        "DENY",
        "SUB",
        ("topicZ=PUB",),
        ("groupA=DENY", "groupB=PUB|SUB", "groupC=SUB"),
    )
    assert second == parse_acl_file(NAME, STOCK).accounts[1].text
    assert file.white_texts == ("10.10.103.*", "192.168.0.*")
    assert file.version == DataVersion(1_700_000_000_000, 1)
    again = parse_acl_file(NAME, with_account(NAME, text, change, 1_700_000_000_001))
    assert again.version == DataVersion(1_700_000_000_001, 2)


def test_an_account_is_added_and_deleted() -> None:
    added = with_account(NAME, "", AccountChange("account", "12345678", admin=True), 1)
    assert [one.access_key for one in parse_acl_file(NAME, added).accounts] == ["account"]
    assert parse_acl_file(NAME, added).accounts[0].admin
    left = parse_acl_file(NAME, without_account(NAME, added, "account", 2))
    assert not left.accounts
    assert left.version == DataVersion(2, 2)


def test_java_reads_what_is_written() -> None:
    """Java casts counter and timestamp to numbers, and takes every other scalar as text."""
    text = with_account(NAME, STOCK, AccountChange("RocketMQ", "01234567"), 5)
    plain = yaml.safe_load(text)
    assert plain["dataVersion"] == [{"counter": 1, "timestamp": 5}]
    assert plain["accounts"][0]["secretKey"] == "01234567"
    assert plain["accounts"][0]["admin"] is False


def test_a_change_that_would_break_the_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no address"):
        with_white_addresses(NAME, STOCK, ["here"], 1)
    with pytest.raises(ConfigError, match="is no address"):
        with_account(NAME, STOCK, AccountChange("account", "12345678", "here"), 1)
    with pytest.raises(ConfigError, match="correct the YAML"):
        with_account(NAME, "accounts: [", AccountChange("account", "12345678"), 1)


def test_an_alias_does_not_make_a_change_reach_another_account() -> None:
    text = "accounts:\n- &a\n  accessKey: account-1\n  secretKey: 12345678\n- *a\n"
    changed = with_account(NAME, text, AccountChange("account-1", "87654321"), 1)
    secrets = [one.text.secret_key for one in parse_acl_file(NAME, changed).accounts]
    assert secrets == ["87654321", "12345678"]
