"""`trioha config`: values with their origins, all keys, and the page made from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trioha.cli import cli
from trioha.cli.config import configuration_page
from trioha.config import BrokerConfig, NamesrvConfig
from trioha.config.sources import keys_of


def invoke(*arguments: str, **environment: str) -> Result:
    result = CliRunner().invoke(cli, ["config", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result


def test_origins_are_shown_for_each_source(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=from-file\nslaveTimeout=5\n")
    result = invoke(
        *("show", "--origin", "-o", "json", "--config", str(file), "--listen", "127.0.0.1:0"),
        *("--set", "maxMessageSize=1MiB"),
        TRIOHA_SLAVE_TIMEOUT="7s",
    )
    shown = json.loads(result.output)
    assert list(shown) == list(keys_of(BrokerConfig))
    assert shown["brokerName"] == {"value": "from-file", "origin": f"{file}:1"}
    assert shown["slaveTimeout"] == {"value": 7000, "origin": "TRIOHA_SLAVE_TIMEOUT"}
    assert shown["listenPort"] == {"value": 0, "origin": "--listen"}
    assert shown["maxMessageSize"] == {"value": 1 << 20, "origin": "--set"}
    assert shown["brokerRole"] == {"value": "ASYNC_MASTER", "origin": "default"}


def test_the_table_shows_only_what_changed_if_asked() -> None:
    result = invoke("show", "--changed", "--origin", "--role", "SYNC_MASTER")
    head, row = result.output.splitlines()
    assert head.split() == ["KEY", "VALUE", "ORIGIN"]
    assert row.split() == ["brokerRole", "SYNC_MASTER", "--role"]


def test_notes_go_to_stderr() -> None:
    result = invoke("show", "-o", "json", "--set", "sendMessageThreadPoolNums=4")
    json.loads(result.stdout)
    assert "sendMessageThreadPoolNums has no meaning here" in result.stderr


@pytest.mark.parametrize("node", ["broker", "namesrv"])
@pytest.mark.parametrize("options", [(), ("--origin",), ("-o", "json"), ("--origin", "-o", "json")])
def test_secrets_are_not_shown(node: str, options: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "node.conf"
    keys = ["tls.server.keyPassword", "tls.client.keyPassword"]
    if node == "broker":
        keys += ["haSecret", "dLegerSecret"]
    file.write_text("".join(f"{key}=hush-{key}\n" for key in keys))
    result = invoke("show", node, "--config", str(file), "--changed", *options)
    assert "hush" not in result.output
    assert result.output.count("******") == len(keys)


def test_a_secret_of_a_wrong_type_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('"tls.server.keyPassword" = 471147\n')
    told = CliRunner().invoke(cli, ["config", "show", "--config", str(file)])
    assert "keyPassword must be text" in str(told.exception)
    assert "471147" not in told.output + str(told.exception)


def test_a_name_server_has_settings_of_its_own() -> None:
    shown = json.loads(invoke("show", "namesrv", "-o", "json", "--listen", "h:1").output)
    assert list(shown) == list(keys_of(NamesrvConfig))
    assert shown["listenPort"] == 1


def test_a_brokers_flag_does_not_describe_a_name_server() -> None:
    result = CliRunner().invoke(cli, ["config", "show", "namesrv", "--role", "SLAVE"])
    assert result.exit_code == 2


@pytest.mark.parametrize(("node", "kind"), [("broker", BrokerConfig), ("namesrv", NamesrvConfig)])
def test_keys_lists_every_setting(node: str, kind: type[BrokerConfig | NamesrvConfig]) -> None:
    described = json.loads(invoke("keys", node, "-o", "json").output)
    assert [row["key"] for row in described] == list(keys_of(kind))
    assert all(row["doc"] for row in described)
    assert "KEY" in invoke("keys", node).output


def test_the_configuration_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs/configuration.md"
    assert page.read_text() == configuration_page(), "run `just docs`"
