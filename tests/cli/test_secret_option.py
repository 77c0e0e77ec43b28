"""Sources of the cluster's secret for an operator's command."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from trioha.cli.client_options import namesrv_option, secret_option
from trioha.config.secret_files import operator_keyring
from trioha.contexts import load_contexts
from trioha.errors import ConfigError

FLAG, CONTEXT, VARIABLE = "f" * 16, "c" * 16, "v" * 16


@click.command()
@namesrv_option
@secret_option
def show(namesrv: str) -> None:
    click.echo(",".join(operator_keyring().secrets))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("TRIOHA_") or name == "NAMESRV_ADDR":
            monkeypatch.delenv(name)
    (tmp_path / "flag.secret").write_text(FLAG)
    (tmp_path / "context.secret").write_text(CONTEXT)
    config = tmp_path / "config.toml"
    config.write_text('[contexts.prod]\nnamesrv = "h:1"\nsecret_file = "context.secret"\n')
    monkeypatch.setenv("TRIOHA_CONFIG", str(config))
    return tmp_path


def said(*arguments: str) -> str:
    result = CliRunner().invoke(show, arguments)
    assert result.exit_code == 0, result.output
    return result.output.strip()


def test_the_flag_counts_more_than_the_environment_and_that_more_than_the_context(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = ("--secret-file", str(home / "flag.secret"))
    assert said("-n", "h:1") == ""
    assert said("--context", "prod") == CONTEXT
    assert (
        said("--context", "prod", *flag)
        == said(*flag, "--context", "prod")
        == said("-n", "h:1", *flag)
        == FLAG
    )
    monkeypatch.setenv("TRIOHA_CLUSTER_SECRET", VARIABLE)
    assert said("-n", "h:1") == said("--context", "prod") == VARIABLE
    assert said("--context", "prod", *flag) == FLAG
    # Nothing of one command is left for the next.
    assert "TRIOHA_CLUSTER_SECRET_FILE" not in os.environ


def test_a_context_whose_secret_file_is_no_path_is_refused_with_its_line(home: Path) -> None:
    text = '[contexts.prod]\nnamesrv = "h:1"\nsecret_file = 7\n'
    (home / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"config.toml:3: secret_file must be a path"):
        load_contexts(os.environ)
