"""Account that a command signs with, and the places of its keys."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest
from support.clusters.secured import OPERATOR

from trioha.cli.account import use_account_of_context
from trioha.contexts import add_context, load_contexts
from trioha.credentials import current_credentials, find_credentials, set_source
from trioha.errors import ConfigError
from trioha.security.signature import Credentials


def keys(account: Credentials) -> dict[str, str]:
    return {"TRIOHA_ACCESS_KEY": account.access_key, "TRIOHA_SECRET_KEY": account.secret_key}


def test_a_file_with_a_secret_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[contexts.lab]\nnamesrv = "127.0.0.1:9876"\n')
    path.chmod(0o644)
    environment = {"TRIOHA_CONFIG": str(path)}
    add_context(path, "prod", "10.0.0.1:9876", "operator-1", 'a "quoted" \\ secret')
    assert path.stat().st_mode & 0o777 == 0o600
    context = load_contexts(environment).of("prod")
    assert (context.access_key, context.secret_key) == ("operator-1", 'a "quoted" \\ secret')
    assert "quoted" not in repr(context)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=r"mode 0640.*chmod 600"):
        load_contexts(environment)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("secret_key = 'x'", "access_key is missing"),
        ("access_key = 7", "must be text"),
        ("acces_key = 'x'", "did you mean access_key"),
    ],
)
def test_keys_in_a_context_are_judged(tmp_path: Path, lines: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'[contexts.prod]\nnamesrv = "127.0.0.1:9876"\n{lines}\n')
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=words):
        load_contexts({"TRIOHA_CONFIG": str(path)})


@attrs.define
class Terminal:
    asked: list[str] = attrs.Factory(list)

    def ask(self, access_key: str) -> str:
        self.asked.append(access_key)
        return "typed-secret"


def test_the_environment_goes_before_the_context_and_a_terminal_is_asked_last() -> None:
    terminal = Terminal()
    both = keys(OPERATOR)
    context = ("context-1", "context-secret")
    assert find_credentials({}) is None
    assert find_credentials(both, *context, terminal.ask) == OPERATOR
    assert find_credentials({}, *context, terminal.ask) == Credentials(*context)
    secret_only = {"TRIOHA_SECRET_KEY": "other"}
    assert find_credentials(secret_only, *context) == Credentials("context-1", "other")
    assert not terminal.asked
    typed = Credentials("context-1", "typed-secret")
    assert find_credentials({}, "context-1", "", terminal.ask) == typed
    key_only = {"TRIOHA_ACCESS_KEY": "operator-1"}
    # The secret of the context is another account's.
    typed = Credentials("operator-1", "typed-secret")
    assert find_credentials(key_only, *context, terminal.ask) == typed
    assert terminal.asked == ["context-1", "operator-1"]
    with pytest.raises(ConfigError, match="TRIOHA_SECRET_KEY"):
        find_credentials(key_only)
    with pytest.raises(ConfigError, match="TRIOHA_ACCESS_KEY"):
        find_credentials(secret_only)


def test_outside_a_command_the_current_context_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    add_context(path, "prod", "10.0.0.1:9876", "operator-1", "operator-secret")
    for name in (*keys(OPERATOR), "TRIOHA_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRIOHA_CONFIG", os.fspath(path))
    assert current_credentials() is None
    use_account_of_context()
    try:
        assert current_credentials() == OPERATOR
    finally:
        set_source(None)
