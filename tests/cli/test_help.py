"""`trioha help`, manual pages, and completion, with names of the live cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem, ShellComplete
from support.clusters.operated import Operated

from trioha.cli import COMMANDS, cli, run
from trioha.cli.completion import VARIABLE
from trioha.cli.failures import ExitCode
from trioha.glossary import glossary
from trioha.jobs.documents import DOCUMENTS


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run(list(arguments)) == ExitCode.OK
    return capsys.readouterr().out


def test_help_explains_commands_and_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "help", "topic", "create").startswith("Usage: trioha topic create ")
    assert said(capsys, "help").startswith("Usage: trioha ")
    assert said(capsys, "help", "LAG").startswith("lag: messages of a queue that a group has not")
    assert said(capsys, "help", "broker").startswith("Usage: trioha broker ")
    assert said(capsys, "help", "retry", "topic").startswith("retry topic: %RETRY%group")
    assert "(RocketMQ: brokerId)" in said(capsys, "help", "broker id")


def test_an_unknown_word_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "epok"]) == ExitCode.FAILED
    assert "did you mean epoch?" in capsys.readouterr().err
    assert run(["help", "topic", "create", "more"]) == ExitCode.FAILED


def test_the_glossary_is_read_whole() -> None:
    words = glossary()
    assert len(words) > 60
    assert not any("](" in meaning for meaning in words.values())


def test_manual_pages_are_made_of_the_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "pages in" in said(capsys, "help", "--man", str(tmp_path / "man1"))
    pages = {path.stem: path.read_text() for path in (tmp_path / "man1").glob("*.1")}
    assert {f"trioha-{name}" for name in COMMANDS} <= pages.keys()
    page = pages["trioha-topic-create"]
    assert "trioha topic create orders \\-\\-queues 16" in page
    assert ".SH OPTIONS" in page
    for name, text in pages.items():
        for line in text.splitlines():
            assert not re.match(r"[.'](?!TH|SH|TP|PP|B |nf|fi)", line), (name, line)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_lines(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert VARIABLE in said(capsys, "completion", shell)


def completed(words: list[str], incomplete: str) -> list[str]:
    items: list[CompletionItem] = ShellComplete(cli, {}, "trioha", VARIABLE).get_completions(
        words, incomplete
    )
    return [str(one.value) for one in items]


def test_names_of_the_live_cluster_are_completed(operator: Operated) -> None:
    operator.ok("topic", "create", "complete-me", "--queues", "1")
    operator.ok("topic", "create", "complete-you", "--queues", "1")
    operator.send("complete-me", 1)
    assert operator.consume("complete-me", "completers") == 1
    assert completed(["topic", "describe"], "complete-") == ["complete-me", "complete-you"]
    assert completed(["topic", "describe", "-n", operator.namesrv], "complete-m") == ["complete-me"]
    assert completed(["group", "describe"], "compl") == ["completers"]
    assert completed(["group", "skip", "completers", "-t"], "complete-y") == ["complete-you"]
    assert completed(["broker", "drain"], "") == ["broker-a", "broker-b"]
    assert completed(["topic", "list", "-n", "127.0.0.1:1", "-b"], "") == []
    assert completed(["topic", "describe", "-n", "127.0.0.1:1"], "") == []
    assert completed([], "to") == ["topic"]
    assert completed(["topic"], "de") == ["delete", "describe"]


def test_contexts_are_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[contexts.prod]\nnamesrv = "10.0.0.1:9876"\n')
    path.chmod(0o600)
    monkeypatch.setenv("TRIOHA_CONFIG", str(path))
    assert completed(["topic", "list", "--context"], "p") == ["prod"]
    assert completed(["context", "use"], "") == ["prod"]


def test_completing_a_command_imports_none() -> None:
    code = (
        "import sys, trioha.cli as c\n"
        "from click.shell_completion import ShellComplete\n"
        "found = ShellComplete(c.cli, {}, 'trioha', 'X').get_completions([], 'top')\n"
        "assert [one.value for one in found] == ['topic'], found\n"
        "assert not [m for m in sys.modules if m.startswith('trioha.jobs')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_the_list_of_a_noun_s_commands_is_not_cut_off_at_80_columns() -> None:
    context = click.Context(cli)
    for noun in sorted({name.split()[0] for name in DOCUMENTS}):
        group = cli.get_command(context, noun)
        assert isinstance(group, click.Group)
        for verb, one in group.commands.items():
            assert not one.get_short_help_str(60).endswith("..."), (noun, verb)
