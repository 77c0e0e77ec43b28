from __future__ import annotations

import pytest

from trioha.config import BrokerConfig, NamesrvConfig
from trioha.config.exposure import check_exposure, is_exposed, is_loopback
from trioha.errors import ConfigError
from trioha.wire.keyring import Keyring

KEYRING = Keyring("the secret of this cluster")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_needs_nothing(address: str) -> None:
    assert is_loopback(address)
    for kind in (BrokerConfig, NamesrvConfig):
        check_exposure(kind(bind_address=address), Keyring())


@pytest.mark.parametrize("address", ["", "0.0.0.0", "::", "10.0.0.1", "fe80::1%eth0", "broker-1"])
def test_beyond_it_a_node_needs_a_secret_or_the_operators_word(address: str) -> None:
    for kind in (BrokerConfig, NamesrvConfig):
        config = kind(bind_address=address)
        with pytest.raises(ConfigError, match=r"trioha security init.*--insecure"):
            check_exposure(config, Keyring())
        if kind is NamesrvConfig:
            check_exposure(config, KEYRING)
        assert not is_exposed(config, KEYRING)
        insecure = kind(bind_address=address, insecure=True)
        check_exposure(insecure, Keyring())
        assert is_exposed(insecure, Keyring())


def test_beyond_it_a_broker_needs_accounts_or_the_operators_word() -> None:
    with pytest.raises(ConfigError, match=r"aclEnable=true.*anonymousClients=true"):
        check_exposure(BrokerConfig(), KEYRING)
    check_exposure(BrokerConfig(acl_enable=True), KEYRING)
    check_exposure(BrokerConfig(authentication_enabled=True), KEYRING)
    check_exposure(BrokerConfig(anonymous_clients=True), KEYRING)
    with pytest.raises(ConfigError, match="--insecure"):
        check_exposure(BrokerConfig(anonymous_clients=True, acl_enable=True), Keyring())
