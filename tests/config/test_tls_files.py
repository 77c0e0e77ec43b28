from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.stores.certificates import PASSWORD, certificates

from trioha.config.sources import load_broker, load_namesrv, set_entry
from trioha.config.tls_files import (
    ClientTls,
    client_context,
    node_client_tls,
    server_context,
    tls_of_environment,
)
from trioha.errors import ConfigError

CERTIFICATES = certificates()


def settings(**changes: str) -> list[str]:
    keys = {
        "certPath": CERTIFICATES.cert("node"),
        "keyPath": CERTIFICATES.key("node"),
        "trustCertPath": CERTIFICATES.cert("ca"),
    } | changes
    return [f"tls.server.{key}={value}" for key, value in keys.items()]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mode": "sometimes"}, "tls.server.mode: must be disabled or permissive or enforcing"),
        ({"mode": "permissive", "certPath": "", "keyPath": ""}, "permissive needs a certificate"),
        ({"keyPath": ""}, "tls.server.certPath: tls.server.keyPath is missing beside it"),
        ({"need.client.auth": "maybe"}, "must be none or optional or require"),
        ({"need.client.auth": "require", "trustCertPath": ""}, "name the CAs that sign"),
    ],
)
def test_settings_that_contradict_each_other_are_named(changes: dict[str, str], words: str) -> None:
    for load in (load_broker, load_namesrv):
        with pytest.raises(ConfigError, match=words):
            load(flags=map(set_entry, settings(**changes)))


def test_a_certificate_makes_a_node_permissive_and_enforcing_makes_it_dial_tls() -> None:
    assert load_broker().config.tls_mode == "disabled"
    config = load_broker(flags=map(set_entry, settings())).config
    assert (config.tls_mode, config.dials_tls) == ("permissive", False)
    config = load_broker(flags=map(set_entry, settings(mode="enforcing"))).config
    assert config.dials_tls


def test_a_node_shows_others_its_own_certificate_unless_it_has_another() -> None:
    config = load_broker(flags=map(set_entry, settings())).config
    tls = node_client_tls(config)
    assert (tls.cert, tls.trust) == (CERTIFICATES.cert("node"), CERTIFICATES.cert("ca"))
    more = ["tls.client.certPath=/c", "tls.client.keyPath=/k", "tls.client.trustCertPath=/t"]
    tls = node_client_tls(load_broker(flags=map(set_entry, settings() + more)).config)
    assert (tls.cert, tls.key, tls.trust) == ("/c", "/k", "/t")


def test_the_file_of_tls_settings_wins_as_in_java(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.test.mode.enable=false\ntls.server.authClient=false\n"
        f"tls.server.certPath={CERTIFICATES.cert('node')}\n"
        f"tls.server.keyPath={CERTIFICATES.key('node')}\ntls.server.mode=enforcing\n"
    )
    loaded = load_broker(
        flags=map(set_entry, [f"tls.config.file={file}", "tls.server.mode=disabled"])
    )
    assert loaded.config.tls_mode == "enforcing"
    assert loaded.origins["tls.server.mode"] == f"{file}:5"
    assert any("authClient has no meaning here" in note for note in loaded.notes)


def test_dotted_keys_stand_in_toml_at_the_top_in_a_table_and_quoted(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        'tls.server.certPath = "/c"\n[broker]\ntls.server.keyPath = "/k"\n'
        '"tls.server.mode" = "permissive"\ntls.enable = true\n'
    )
    loaded = load_broker(file)
    config = loaded.config
    assert (config.tls_server_cert_path, config.tls_server_key_path) == ("/c", "/k")
    assert (config.tls_mode, config.tls_enable) == ("permissive", True)
    assert loaded.origins["tls.enable"] == f"{file}:5"


def test_a_wrong_dotted_key_names_its_line_and_the_right_one(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[broker]\n\ntls.server.certpath = "/c"\n')
    with pytest.raises(ConfigError, match=r":3: unknown key .* did you mean tls.server.certPath"):
        load_broker(file)


def test_variables_set_the_same_settings() -> None:
    loaded = load_broker(environment={"TRIOHA_TLS_ENABLE": "true", **CERTIFICATES.environment()})
    assert loaded.config.tls_client_trust_cert_path == CERTIFICATES.cert("ca")
    assert loaded.config.tls_enable


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"key": "none"}, r"cannot read none: No such file or directory; `trioha security init`"),
        ({"key": CERTIFICATES.key("next")}, "is not the key of the certificate"),
        ({"key": CERTIFICATES.cert("node")}, "holds no private key in PEM"),
        ({"cert": CERTIFICATES.key("node")}, "holds no usable certificate in PEM"),
        ({"trust": CERTIFICATES.key("node")}, "holds no CA certificate in PEM"),
        (
            {"cert": CERTIFICATES.cert("locked"), "key": CERTIFICATES.key("locked")},
            "is protected by a password, which is missing; set tls.server.keyPassword",
        ),
        (
            {
                "cert": CERTIFICATES.cert("locked"),
                "key": CERTIFICATES.key("locked"),
                "password": "guessed",
            },
            "is protected by a password, which is wrong",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_cure(
    files: dict[str, Any], words: str
) -> None:
    good: dict[str, Any] = {"cert": CERTIFICATES.cert("node"), "key": CERTIFICATES.key("node")}
    with pytest.raises(ConfigError, match=words):
        client_context(ClientTls(**(good | files)))


def test_a_key_with_a_password_is_read() -> None:
    flags = settings(
        certPath=CERTIFICATES.cert("locked"),
        keyPath=CERTIFICATES.key("locked"),
        keyPassword=PASSWORD,
    )
    loaded = load_broker(flags=map(set_entry, flags))
    server_context(loaded.config)
    assert any("everybody on this machine can read" in note for note in loaded.notes)


def test_tools_find_tls_in_the_environment_and_else_where_they_are_told() -> None:
    default = ClientTls(trust="/ca")
    assert tls_of_environment({}) is None
    assert tls_of_environment({}, default) == default
    assert tls_of_environment({"TRIOHA_TLS_ENABLE": "false"}, default) is None
    found = tls_of_environment(CERTIFICATES.environment("operator"), default)
    assert found == CERTIFICATES.client("operator")
    with pytest.raises(ConfigError, match='TRIOHA_TLS_ENABLE must be true or false, not "yes"'):
        tls_of_environment({"TRIOHA_TLS_ENABLE": "yes"})


def test_a_client_reads_its_files_again_and_keeps_the_old_ones_while_they_are_broken(
    tmp_path: Path,
) -> None:
    file = tmp_path / "ca.pem"
    shutil.copy(CERTIFICATES.cert("ca"), file)
    context = client_context(ClientTls(trust=str(file)))
    first = context.fresh()
    assert context.fresh() is first
    file.write_text("half")
    assert context.fresh() is first
    file.unlink()
    assert context.fresh() is first
    shutil.copy(CERTIFICATES.cert("foreign-ca"), file)
    assert context.fresh() is not first


def test_a_password_is_in_no_representation() -> None:
    assert "sesame" not in repr(ClientTls(password=PASSWORD))
