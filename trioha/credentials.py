"""The account that this process acts as, when it is a client or an operator's tool.

The client library takes it from the environment: ``TRIOHA_ACCESS_KEY`` and ``TRIOHA_SECRET_KEY``.
The command line and the console also know contexts (`trioha.contexts`) and ask on a terminal; they
replace the source with `set_source`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from trioha.config.tls_files import ClientTls, tls_of_environment
from trioha.errors import ConfigError
from trioha.security.signature import Credentials

ACCESS_KEY_VARIABLE = "TRIOHA_ACCESS_KEY"
SECRET_KEY_VARIABLE = "TRIOHA_SECRET_KEY"

Source = Callable[[], Credentials | None]
TlsSource = Callable[[], ClientTls | None]


def find_credentials(
    environment: Mapping[str, str],
    access_key: str = "",
    secret_key: str = "",
    ask: Callable[[str], str] | None = None,
) -> Credentials | None:
    """Return the account of the environment, else the given one; None without any.

    `ask` gets an access key whose secret is nowhere, and returns the secret.
    Errors: ConfigError when a secret is missing and there is no `ask`, or an access key is.
    """
    found = environment.get(ACCESS_KEY_VARIABLE, "") or access_key
    from_environment = environment.get(SECRET_KEY_VARIABLE, "")
    if not found:
        if from_environment:
            raise ConfigError(f"{SECRET_KEY_VARIABLE} is set without {ACCESS_KEY_VARIABLE}")
        return None
    secret = from_environment or (secret_key if found == access_key else "")
    if not secret:
        if ask is None:
            raise ConfigError(f"the secret of {found} is missing; set {SECRET_KEY_VARIABLE}")
        secret = ask(found)
    return Credentials(found, secret)


def _of_this_environment() -> Credentials | None:
    return find_credentials(os.environ)


_source: Source = _of_this_environment


def current_credentials() -> Credentials | None:
    """Return the account that requests of this process are signed with; None for unsigned ones.

    Errors: ConfigError when it is configured in part.
    """
    return _source()


def set_source(source: Source | None) -> None:
    """Take the account from `source` from now on; None: from the environment."""
    global _source
    _source = source or _of_this_environment


_tls_source: TlsSource = tls_of_environment


def current_tls() -> ClientTls | None:
    """Return how this process connects over TLS; None for plain connections.

    Errors: ConfigError.
    """
    return _tls_source()


def set_tls_source(source: TlsSource | None) -> None:
    """Take `current_tls` from `source` from now on; None: from the environment."""
    global _tls_source
    _tls_source = source or tls_of_environment
