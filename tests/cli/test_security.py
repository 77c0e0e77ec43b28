from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from trioha.cli.security import command
from trioha.config import BrokerConfig, NamesrvConfig
from trioha.config.secret_files import cluster_keyring, read_secrets


def test_init_makes_a_secret_for_the_user_alone_that_nodes_take(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    result = CliRunner().invoke(command, ["init", "--dir", str(directory)])
    assert result.exit_code == 0, result.output
    path = directory / "cluster.secret"
    assert (directory.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    (secret,) = read_secrets(path, "clusterSecretFile")
    assert len(secret) >= 43
    assert secret not in result.output
    for kind in (BrokerConfig, NamesrvConfig):
        assert cluster_keyring(kind(cluster_secret_file=str(path)), {}).secrets == (secret,)
    for words in (str(path), "clusterSecretFile", "secret_file", "docs/security.md"):
        assert words in result.output


def test_two_secrets_are_never_the_same_and_none_is_replaced(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        assert CliRunner().invoke(command, ["init", "--dir", str(path)]).exit_code == 0
    first, second = ((path / "cluster.secret").read_text() for path in paths)
    assert first != second
    again = CliRunner().invoke(command, ["init", "--dir", str(paths[0])])
    assert again.exit_code != 0
    assert "exists" in str(again.exception)
    assert (paths[0] / "cluster.secret").read_text() == first


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_init_follows_no_link(tmp_path: Path, target: str) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "cluster.secret").symlink_to(tmp_path / target)
    assert CliRunner().invoke(command, ["init", "--dir", str(tmp_path)]).exit_code != 0
    assert (tmp_path / "elsewhere").read_text() == "kept"
    assert not (tmp_path / "nowhere").exists()
