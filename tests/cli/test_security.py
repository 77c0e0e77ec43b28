from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from support.stores.certificates import shake

from trioha.cli.security import command
from trioha.config import BrokerConfig, NamesrvConfig
from trioha.config.secret_files import cluster_keyring, read_secrets
from trioha.config.tls_files import ClientTls, client_context, server_context
from trioha.remoting.tls_session import TlsSession


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


def test_init_makes_first_accounts_whose_keys_nobody_knows(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    keys = set()
    for directory in directories:
        result = CliRunner().invoke(command, ["init", "--dir", str(directory)])
        path = directory / "plain_acl.yml"
        assert path.stat().st_mode & 0o777 == 0o600
        accounts = yaml.safe_load(path.read_text())["accounts"]
        assert [account.get("admin", False) for account in accounts] == [True, False]
        for account in accounts:
            assert account["secretKey"] not in result.output
            keys.add(account["secretKey"])
        for words in (str(path), "aclEnable=true", "aclFile=", "--access-key operator"):
            assert words in result.output
    assert len(keys) == 4
    (directories[0] / "cluster.secret").unlink()
    again = CliRunner().invoke(command, ["init", "--dir", str(directories[0])])
    assert "plain_acl.yml exists" in str(again.exception)


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_init_follows_no_link(tmp_path: Path, target: str) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "cluster.secret").symlink_to(tmp_path / target)
    assert CliRunner().invoke(command, ["init", "--dir", str(tmp_path)]).exit_code != 0
    assert (tmp_path / "elsewhere").read_text() == "kept"
    assert not (tmp_path / "nowhere").exists()


def test_init_with_hosts_makes_certificates_that_nodes_and_operators_take(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    result = CliRunner().invoke(
        command, ["init", "--dir", str(directory), "127.0.0.1,localhost", "broker-b.example"]
    )
    assert result.exit_code == 0, result.output
    for name in ("ca", "127.0.0.1", "broker-b.example", "operator"):
        for suffix in (".pem", ".key"):
            assert (directory / f"{name}{suffix}").stat().st_mode & 0o777 == 0o600
    for words in ("tls.server.certPath", "tls.server.trustCertPath", "--tls-ca", "ca.key away"):
        assert words in result.output
    config = BrokerConfig(
        tls_server_cert_path=str(directory / "127.0.0.1.pem"),
        tls_server_key_path=str(directory / "127.0.0.1.key"),
        tls_server_trust_cert_path=str(directory / "ca.pem"),
        tls_server_need_client_auth="require",
    )
    operator = ClientTls(
        trust=str(directory / "ca.pem"),
        cert=str(directory / "operator.pem"),
        key=str(directory / "operator.key"),
    )
    for host in ("127.0.0.1", "localhost"):
        shake(
            TlsSession(server_context(config)()),
            TlsSession(client_context(operator)(), server_hostname=host),
        )


def test_issue_goes_on_with_the_ca_that_is_there(tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(command, ["init", "--dir", str(tmp_path), "a.example"]).exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = runner.invoke(command, ["issue", "--dir", str(tmp_path), "a.example", "b.example"])
    assert result.exit_code == 0, result.output
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"a.example.pem", "a.example.key", "b.example.pem", "b.example.key"}


@pytest.mark.parametrize("host", ["../x", "", "a b", "a,,b", "ä.example"])
def test_issue_takes_hosts_only(tmp_path: Path, host: str) -> None:
    result = CliRunner().invoke(command, ["issue", "--dir", str(tmp_path / "new"), host])
    assert "is no host name or address" in str(result.exception)
    assert not (tmp_path / "new").exists()


def test_a_ca_without_its_key_signs_nothing(tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(command, ["init", "--dir", str(tmp_path), "a.example"]).exit_code == 0
    (tmp_path / "ca.key").unlink()
    result = runner.invoke(command, ["issue", "--dir", str(tmp_path), "b.example"])
    assert "cannot use the CA" in str(result.exception)
