"""Super users that a broker's settings name."""

from __future__ import annotations

import pytest

from trioha.config import BrokerConfig
from trioha.errors import ConfigError
from trioha.security.first_users import first_users, inner_client


def test_both_settings_name_a_super_user() -> None:
    config = BrokerConfig(
        init_authentication_user='{"username":"a","password":"secret-a"}',
        inner_client_authentication_credentials='{"accessKey":"b","secretKey":"secret-b"}',
    )
    assert [(user.username, user.password) for user in first_users(config)] == [
        ("a", "secret-a"),
        ("b", "secret-b"),
    ]
    inner = inner_client(config)
    assert inner is not None
    assert inner.access_key == "b"
    assert not list(first_users(BrokerConfig()))


@pytest.mark.parametrize(
    "text", ["x", "[]", "{}", '{"username":"a"}', '{"username":"","password":"x"}']
)
def test_a_wrong_setting_is_told_without_what_it_holds(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^initAuthenticationUser: write") as refusal:
        list(first_users(BrokerConfig(init_authentication_user=text)))
    assert "secret" not in str(refusal.value)
