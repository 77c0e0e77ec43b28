"""Users that a broker's settings name, so that there is somebody who can make others."""

from __future__ import annotations

import json
from collections.abc import Iterator

from trioha.config import BrokerConfig
from trioha.errors import ConfigError
from trioha.security.policies import User, UserType
from trioha.security.signature import Credentials


def first_users(config: BrokerConfig) -> Iterator[User]:
    """Yield the super users of the settings. Errors: ConfigError."""
    if config.init_authentication_user:
        name, password = _pair(
            "initAuthenticationUser", config.init_authentication_user, "username", "password"
        )
        yield User(name, password, UserType.SUPER)
    inner = inner_client(config)
    if inner is not None:
        yield User(inner.access_key, inner.secret_key, UserType.SUPER)


def inner_client(config: BrokerConfig) -> Credentials | None:
    """Return what the broker signs with, if its settings say so. Errors: ConfigError."""
    text = config.inner_client_authentication_credentials
    if not text:
        return None
    key = "innerClientAuthenticationCredentials"
    return Credentials(*_pair(key, text, "accessKey", "secretKey"))


def _pair(key: str, text: str, name: str, secret: str) -> tuple[str, str]:
    try:
        fields = json.loads(text)
        pair = str(fields[name]), str(fields[secret])
    except (ValueError, TypeError, KeyError, RecursionError):
        pair = "", ""
    # The text itself holds a password: it is not repeated.
    if not all(one.strip() for one in pair):
        raise ConfigError(f'{key}: write {{"{name}":"NAME","{secret}":"SECRET"}}')
    return pair
