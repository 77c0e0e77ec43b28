from __future__ import annotations

import os
from pathlib import Path

import pytest

from trioha.config import BrokerConfig, NamesrvConfig, is_secret, secret_files
from trioha.config.secret_files import (
    SECRETS_MAX,
    FileKeyring,
    cluster_keyring,
    ha_keyring,
    operator_keyring,
    raft_keyring,
    read_secrets,
)
from trioha.config.sources import load_broker, set_entry
from trioha.errors import ConfigError

A, B, C = "a" * 16, "b" * 16, "c" * 16


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"# old one last\n\n{A}\n  {B}  \n")
    return path


def test_the_first_line_signs_and_all_are_accepted(file: Path) -> None:
    assert read_secrets(file, "clusterSecretFile") == (A, B)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds 0 secrets"),
        ("# nothing\n", "holds 0 secrets"),
        ("short\n", "a secret of 5 characters"),
        ("x" * 1025, "a secret of 1025 characters"),
        ("\n".join([A] * (SECRETS_MAX + 1)), f"holds {SECRETS_MAX + 1} secrets"),
        ("#" * 20_000 + "\n" + A, "write 1 to"),
        (b"\xff\xfe" + A.encode(), "is no text"),
    ],
)
def test_a_file_without_good_secrets_is_refused_by_name(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=words) as raised:
        read_secrets(path, "clusterSecretFile")
    assert str(path) in str(raised.value)
    assert "clusterSecretFile" in str(raised.value)


def test_a_missing_file_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`trioha security init` makes one"):
        cluster_keyring(BrokerConfig(cluster_secret_file=str(tmp_path / "none")), {})


def test_a_changed_file_counts_and_a_broken_one_changes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "_LOOK_INTERVAL_S", 0)
    keyring = FileKeyring(file, "clusterSecretFile")
    file.write_text(f"{B}\n{C}\n")
    assert list(keyring.secrets) == [B, C]
    file.write_text("")
    assert list(keyring.secrets) == [B, C]
    file.unlink()
    assert list(keyring.secrets) == [B, C]
    replacement = file.with_name("new")
    replacement.write_text(C)
    os.replace(replacement, file)
    assert list(keyring.secrets) == [C]


def test_the_file_counts_more_than_the_environment(file: Path) -> None:
    environment = {"TRIOHA_CLUSTER_SECRET": C}
    for kind in (BrokerConfig, NamesrvConfig):
        assert cluster_keyring(kind(), environment).secrets == (C,)
        assert cluster_keyring(kind(cluster_secret_file=str(file)), environment).secrets == (A, B)
        assert not cluster_keyring(kind(), {})
    assert operator_keyring(environment).secrets == (C,)
    environment["TRIOHA_CLUSTER_SECRET_FILE"] = str(file)
    assert operator_keyring(environment).secrets == (A, B)
    with pytest.raises(ConfigError, match="TRIOHA_CLUSTER_SECRET: a secret of 3 characters"):
        operator_keyring({"TRIOHA_CLUSTER_SECRET": "abc"})


def test_links_and_groups_have_secrets_of_their_own_or_the_clusters(
    file: Path, tmp_path: Path
) -> None:
    cluster = BrokerConfig(cluster_secret_file=str(file))
    assert ha_keyring(cluster).secrets == raft_keyring(cluster).secrets == (A, B)
    own = tmp_path / "ha"
    own.write_text(C)
    for config in (
        BrokerConfig(cluster_secret_file=str(file), ha_secret=C),
        BrokerConfig(cluster_secret_file=str(file), ha_secret_file=str(own)),
    ):
        assert ha_keyring(config).secrets == raft_keyring(config).secrets == (C,)
    both = BrokerConfig(ha_secret=C, d_leger_secret_file=str(file))
    assert (ha_keyring(both).secrets, raft_keyring(both).secrets) == ((C,), (A, B))
    with pytest.raises(ConfigError, match="haSecretFile and haSecret are both set"):
        ha_keyring(BrokerConfig(ha_secret=C, ha_secret_file=str(own)))


def test_the_environment_names_the_file_or_holds_the_secret_which_is_no_setting(file: Path) -> None:
    loaded = load_broker(
        None, {"TRIOHA_CLUSTER_SECRET_FILE": str(file), "TRIOHA_CLUSTER_SECRET": C}
    )
    assert loaded.config.cluster_secret_file == str(file)
    assert C not in repr(loaded)


def test_a_secret_given_by_a_flag_is_noted() -> None:
    for key in ("haSecret", "dLegerSecret"):
        loaded = load_broker(None, {}, [set_entry(f"{key}={A}")])
        (note,) = (note for note in loaded.notes if key in note and "File" in note)
        assert "everybody on this machine can read" in note
        assert A not in note


def test_a_keyring_shows_no_secret(file: Path) -> None:
    assert A not in repr(FileKeyring(file, "clusterSecretFile"))
    assert is_secret("haSecret")
    assert not is_secret("haSecretFile")
