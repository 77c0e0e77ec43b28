"""The file of named contexts: read, changed by a command, and told where it is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trioha.cli import cli
from trioha.contexts import add_context, contexts_path, load_contexts, number_of, use_context
from trioha.errors import ConfigError
from trioha.watch.rules import RULES, Unit

FILE = """\
# mine
current = "prod"   # the real one

[contexts.prod]
namesrv = ["10.0.0.1:9876", "10.0.0.2:9876"]
timeout = "500ms"

[contexts.prod.alerts.disk_ratio]
warn = "60%"

[contexts.lab]
namesrv = "127.0.0.1:9876"

[alerts]
gap_bytes = { warn = "1MiB", crit = false, for = "2m" }
not_in_sync = { warn = false, crit = true }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    return path


def test_contexts_carry_their_addresses_and_rules(file: Path) -> None:
    known = load_contexts({"TRIOHA_CONFIG": str(file)})
    prod, lab = known.of("prod"), known.of("lab")
    assert known.current == "prod"
    assert (prod.namesrv, prod.timeout_s) == ("10.0.0.1:9876;10.0.0.2:9876", 0.5)
    assert prod.origin == f"{file}:4"
    assert prod.rules["disk_ratio"].warn == pytest.approx(0.6)
    assert lab.rules["disk_ratio"] == RULES["disk_ratio"]
    gap = lab.rules["gap_bytes"]
    assert (gap.warn, gap.crit, gap.for_s) == (1 << 20, None, 120)
    assert (lab.rules["not_in_sync"].warn, lab.rules["not_in_sync"].crit) == (None, 1)


def test_the_place_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert contexts_path({}) == Path("/home/me/.config/trioha/config.toml")
    assert contexts_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/trioha/config.toml")
    assert contexts_path({"XDG_CONFIG_HOME": "/x", "TRIOHA_CONFIG": "/y.toml"}) == Path("/y.toml")
    assert load_contexts({"XDG_CONFIG_HOME": str(tmp_path)}).contexts == {}
    with pytest.raises(ConfigError, match="cannot read"):
        load_contexts({"TRIOHA_CONFIG": str(tmp_path / "none.toml")})


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("current = [", 1, "not TOML"),
        ("[context.prod]\nnamesrv = 'h:1'", 1, "unknown key context; did you mean contexts"),
        ("[contexts.p]\nnamesrvs = 'h:1'", 2, "unknown key namesrvs; did you mean namesrv?"),
        ("[contexts.p]\n\ntimeout = '1s'", 1, "needs namesrv"),
        ("[contexts.p]\nnamesrv = 'nowhere'", 2, '"nowhere" is not HOST:PORT'),
        ("[contexts.p]\nnamesrv = 'h:1'\ntimeout = 'soon'", 3, "timeout must be seconds"),
        ("[contexts.'a b']\nnamesrv = 'h:1'", 1, "letters, digits"),
        ("current = 'prd'\n[contexts.prod]\nnamesrv = 'h:1'", 1, "did you mean prod"),
        ("[alerts.gap_byte]\nwarn = 1", 1, "unknown key gap_byte; did you mean gap_bytes?"),
        ("[alerts.gap_bytes]\nwarm = 1", 2, "unknown key warm; did you mean warn?"),
        ("[alerts.gap_bytes]\nwarn = '1 parsec'", 2, "warn must be bytes"),
        ("[alerts.disk_ratio]\nwarn = '90%'\ncrit = '80%'", 1, "warn 0.9 is above crit 0.8"),
        ("[alerts.disk_ratio]\nfor = true", 2, "for must be seconds"),
        ("contexts = 3", 1, "must be a table"),
        ("\n[contexts]\nprod = 'h:1'", 3, "contexts.prod must be a table"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_contexts({"TRIOHA_CONFIG": str(path)})
    assert str(raised.value).startswith(f"{path}:{line}: ")
    assert says in str(raised.value)


def test_thresholds_are_written_in_their_own_measure() -> None:
    assert number_of("64KiB", Unit.BYTES) == 65_536
    assert number_of("1.5m", Unit.SECONDS) == 90
    assert number_of("75%", Unit.RATIO) == pytest.approx(0.75)
    for value, unit in (("5%", Unit.BYTES), (-1, Unit.COUNT), (True, Unit.COUNT), ("", Unit.RATIO)):
        assert number_of(value, unit) is None


def test_use_changes_one_line_and_leaves_the_rest(file: Path) -> None:
    use_context(file, "lab")
    changed = file.read_text()
    assert changed == FILE.replace('current = "prod"   # the real one', 'current = "lab"')
    with pytest.raises(ConfigError, match="no context la; did you mean lab"):
        use_context(file, "la")
    assert file.read_text() == changed


def test_use_begins_the_file_when_nothing_was_current(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[contexts.a]\nnamesrv = 'h:1'\ncurrent_is_no_key_here = 1\n")
    with pytest.raises(ConfigError):
        use_context(path, "a")
    path.write_text("[contexts.a]\nnamesrv = 'h:1'\n")
    use_context(path, "a")
    assert load_contexts({"TRIOHA_CONFIG": str(path)}).current == "a"


def test_add_makes_file_and_folder_and_the_first_one_current(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.toml"
    add_context(path, "a", "h:1")
    add_context(path, "b", "h:2;h:3")
    known = load_contexts({"TRIOHA_CONFIG": str(path)})
    assert (known.current, list(known.contexts)) == ("a", ["a", "b"])
    for name, namesrv, says in (
        ("a", "h:1", "already"), ("c d", "h:1", "is no name"), ("e", "h", "HOST:PORT"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=says):
            add_context(path, name, namesrv)


def invoke(file: Path, *arguments: str, **environment: str) -> Result:
    env = {"TRIOHA_CONFIG": str(file), "NAMESRV_ADDR": "", **environment}
    return CliRunner().invoke(cli, list(arguments), env=env)


def test_the_commands_show_list_and_use(file: Path) -> None:
    listed = json.loads(invoke(file, "context", "list", "-o", "json").output)
    assert listed["current"] == "prod"
    assert list(listed["contexts"]) == ["prod", "lab"]
    assert invoke(file, "context", "list").output.splitlines()[1].startswith("*  prod")
    shown = json.loads(invoke(file, "context", "show", "-o", "json").output)
    assert shown["alerts"]["disk_ratio"]["warn"] == pytest.approx(0.6)
    assert "never" in invoke(file, "context", "show", "lab").output
    assert invoke(file, "context", "use", "lab").exit_code == 0
    assert invoke(file, "context", "show").output.startswith("lab: ")


def asked(monkeypatch: pytest.MonkeyPatch, file: Path, *arguments: str, **env: str) -> str:
    """Return the name servers that `trioha ha status` asks, or why it asks none."""
    from trioha.cli import ha

    asked: list[str] = []

    async def cluster_status(namesrv: str, timeout_s: float) -> tuple[list[object], bool]:
        asked.append(namesrv if timeout_s == 3 else f"{namesrv} in {timeout_s:g} s")
        return [], True

    monkeypatch.setattr(ha, "cluster_status", cluster_status)
    result = invoke(file, "ha", "status", *arguments, **env)
    return asked[0] if asked else f"{result.output} {result.exception}"


def test_flags_then_variables_then_the_current_context(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prod = "10.0.0.1:9876;10.0.0.2:9876 in 0.5 s"
    assert asked(monkeypatch, file, "--timeout", "7") == prod.replace("0.5", "7")
    assert asked(monkeypatch, file) == prod
    assert asked(monkeypatch, file, "--context", "lab") == "127.0.0.1:9876"
    assert asked(monkeypatch, file, "-n", "h:1") == "h:1"
    assert asked(monkeypatch, file, NAMESRV_ADDR="h:2") == "h:2"
    assert asked(monkeypatch, file, NAMESRV_ADDR="h:2", TRIOHA_CONTEXT="prod") == prod
    assert asked(monkeypatch, file, "--context", "lab", NAMESRV_ADDR="h:2") == "127.0.0.1:9876"
    assert "give one" in asked(monkeypatch, file, "--context", "lab", "-n", "h:1")
    assert "give one" in asked(monkeypatch, file, "-n", "h:1", "--context", "lab")
    assert "did you mean prod" in asked(monkeypatch, file, "--context", "prood")
    file.write_text("")
    assert asked(monkeypatch, file) == "127.0.0.1:9876"


def test_a_context_with_a_ca_connects_over_tls(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    add_context(path, "prod", "127.0.0.1:9876", tls={"tls_ca": "ca.pem"})
    path.write_text(path.read_text() + 'tls_cert = "op.pem"\ntls_key = "~/op.key"\n')
    found = load_contexts({"TRIOHA_CONFIG": str(path)}).of("prod").tls
    assert found is not None
    assert (found.trust, found.cert) == (str(tmp_path / "ca.pem"), str(tmp_path / "op.pem"))
    assert found.key == str(Path.home() / "op.key")
    path.write_text(path.read_text() + "tls = false\n")
    assert load_contexts({"TRIOHA_CONFIG": str(path)}).of("prod").tls is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tls = 1", r":3: tls must be true or false"),
        ('tls_cert = "x"', "tls_cert and tls_key belong together"),
        ("tls_ca = true", "tls_ca must be text in quotes"),
    ],
)
def test_a_context_of_tls_that_cannot_be_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'[contexts.prod]\nnamesrv = "127.0.0.1:9876"\n{line}\n')
    with pytest.raises(ConfigError, match=words):
        load_contexts({"TRIOHA_CONFIG": str(path)})
