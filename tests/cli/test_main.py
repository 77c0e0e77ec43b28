"""The frame of the command line: help, lazy imports, one line per error, exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from trioha import __version__
from trioha.cli import COMMANDS, cli, failures, run
from trioha.cli.failures import ExitCode
from trioha.client.errors import SendOutcomeUnknown, SendRefused
from trioha.errors import CommandError, ConfigError, LocalProtocolError, StoreLocked, Unreachable

ROOT = Path(__file__).parents[2]


def trioha(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trioha", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, **environment},
        cwd=ROOT,
    )


def test_version_imports_nothing_but_click() -> None:
    code = (
        "import sys, click; before = set(sys.modules)\n"
        "import trioha.cli; trioha.cli.run(['--version'])\n"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('click')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    version, modules = done.stdout.splitlines()
    assert version == f"trioha {__version__}"
    heavy = {"trio", "attr", "attrs", "msgpack", "msgspec", "trioha.errors", "trioha.config"}
    assert heavy.isdisjoint(re.findall(r"'([^']+)'", modules))


def test_every_command_is_there_and_teaches() -> None:
    runner = CliRunner()
    for name in COMMANDS:
        result = runner.invoke(cli, [name, "--help"])
        assert result.exit_code == 0, (name, result.output)
        assert "Usage: " in result.output


def leaves_of(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        for one in command.commands.values():
            yield from leaves_of(one)
    else:
        yield command


def test_every_leaf_command_has_an_example() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        for leaf in leaves_of(command):
            assert leaf.help, f"{name} {leaf.name}"
            assert "trioha " in leaf.help, f"{name} {leaf.name} shows no example"


def test_help_lists_commands_without_importing_them() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    for name, text in COMMANDS.items():
        assert name in result.output
        assert text.split()[0] in result.output
    assert "Exit codes" in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["confg"], "no such command: confg; did you mean config?; try `trioha --help`"),
        (["config", "shw"], "try `trioha config --help`"),
        (["run", "broker", "--listen", "nonsense"], '"nonsense" is not HOST:PORT'),
        (["run", "broker", "--role", "LEADER"], "try `trioha run broker --help`"),
        (["run", "broker", "--set", "brokerNmae=x"], "did you mean brokerName?"),
        (["run", "broker", "--id", "1"], "brokerId: a ASYNC_MASTER needs brokerId 0, not 1"),
        (["run", "broker", "--config", "/nowhere.toml"], "cannot read configuration"),
        (["run", "broker", "--ha-listen", "1.2.3.4:1"], "must be the host of --listen"),
        (["run", "cluster", "5m"], "try `trioha run cluster --help`"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("trioha: ")
    assert printed.err.count("\n") == 1
    assert says in printed.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreLocked("locked"), 1),
        (ConfigError("wrong"), 2),
        (SendOutcomeUnknown("cut off", "ID"), 3),
        (Unreachable("gone"), 4),
        (CommandError(14, "no"), 5),
        (SendRefused(14, "no", "broker-a"), 5),
        (OSError(28, "No space left on device", "/x"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.ClickException("x"), 1),
        (click.UsageError("x"), 2),
        (BaseExceptionGroup("", [ExceptionGroup("", [Unreachable("gone")])]), 4),
        (BaseExceptionGroup("", [Unreachable("gone"), KeyboardInterrupt()]), 130),
    ],
)
def test_each_kind_of_failure_has_its_exit_code_and_one_line(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failures.report(error) == code
    printed = capsys.readouterr().err
    assert printed.startswith("trioha: ")
    assert printed.count("\n") == 1


def test_an_os_error_names_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    failures.report(OSError(28, "", "/data"))
    assert capsys.readouterr().err == (
        "trioha: /data: No space left on device; make room on that disk\n"
    )


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("x"),
        LocalProtocolError("x"),
        ExceptionGroup("", [Unreachable("gone"), KeyError("x")]),
    ],
)
def test_a_bug_shows_its_traceback(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.report(error) == ExitCode.FAILED
    printed = capsys.readouterr().err
    assert "please report it" in printed.splitlines()[-1]
    assert type(error).__name__ in printed


def test_debug_shows_the_traceback_of_any_error() -> None:
    quiet = trioha("run", "broker", "--set", "x=1")
    assert quiet.returncode == 2
    assert "Traceback" not in quiet.stderr
    loud = trioha("run", "broker", "--set", "x=1", TRIOHA_DEBUG="1")
    assert loud.returncode == 2
    assert "Traceback" in loud.stderr


def test_nobody_there_is_exit_code_4() -> None:
    done = trioha("ha", "status", "-n", "127.0.0.1:1")
    assert done.returncode == ExitCode.UNREACHABLE
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Connection refused" in done.stderr


def test_a_reader_that_leaves_early_is_no_traceback() -> None:
    command = f"{sys.executable} -m trioha config keys | head -1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=30, cwd=ROOT
    )
    assert done.stdout.startswith("KEY")
    assert done.stderr == ""


def test_version_tells_what_a_bug_report_needs() -> None:
    done = trioha("version", "-o", "json")
    assert done.returncode == 0
    assert f'"trioha": "{__version__}"' in done.stdout
    assert '"trio"' in done.stdout


def test_documented_exit_codes_are_the_ones_used() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert documented == set(ExitCode)
