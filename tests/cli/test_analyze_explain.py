"""`trioha analyze explain` as its user meets it: an answer, and one sentence for bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.stores.told import MONDAY_MS, ToldStore, write_config

from trioha.cli import run
from trioha.cli.failures import ExitCode

UNIQUE = "7F0000010001AABBCCDD000000010002"
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with ToldStore(root) as told:
        for i in range(3):
            told.put("orders", at_ms=MONDAY_MS + 1000 * i, unique_key=f"{i:032X}")
        told.put("orders", at_ms=MONDAY_MS + 3000, unique_key=UNIQUE, keys=["order-1"])
    table = {"offsetTable": {"orders@g": {"0": 3}, "orders@\x1b[2Jred": {"0": 4}}}
    write_config(root, "consumerOffset.json", table)
    return root


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = run(["analyze", "explain", *map(str, arguments)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


@pytest.mark.parametrize("how", [("--message", UNIQUE), ("--key", "order-1")])
def test_the_verdicts_come_first_then_the_evidence(
    say: Say, store: Path, how: tuple[str, str]
) -> None:
    code, shown, errors = say(store, *how, "--group", "g")
    assert code == ExitCode.OK, errors
    verdicts, evidence, unknown = shown.split("\n\n")
    assert verdicts.splitlines()[0].startswith("It was stored 2023-11-20 00:00:03Z in topic orders")
    assert "Group g has not consumed it" in verdicts
    assert evidence.startswith("Evidence (UTC")
    assert "2023-11-20 00:00:03.000Z" in evidence
    assert unknown.startswith("Not known:")
    assert "No journal was given" in unknown


def test_json_is_one_document(say: Say, store: Path) -> None:
    code, shown, _ = say(store, "--message", UNIQUE, "-o", "json")
    assert code == ExitCode.OK
    document = json.loads(shown)
    assert set(document) == {"question", "found", "verdicts", "timeline", "unknown", "notes"}
    assert document["found"] is True
    assert {"stored", "not consumed"} <= {each["code"] for each in document["verdicts"]}
    assert {"wall_ms", "source", "text"} == set(document["timeline"][0])


def test_what_a_store_says_cannot_steer_the_terminal(say: Say, store: Path) -> None:
    _, shown, _ = say(store, "--message", UNIQUE)
    assert "\x1b" not in shown
    assert "[2Jred" in shown


def test_a_group_at_a_time_is_explained(say: Say, store: Path) -> None:
    code, shown, errors = say(store, "--group", "g", "--at", MONDAY_MS + 3000)
    assert code == ExitCode.OK, errors
    assert "has yet to consume 1 message of topic orders from before that time" in shown


@pytest.mark.parametrize("how", [("--message", UNIQUE[::-1]), ("--key", "order-2")])
def test_what_is_not_there_is_exit_code_1_and_an_answer(
    say: Say, store: Path, how: tuple[str, str]
) -> None:
    code, shown, _ = say(store, *how)
    assert code == ExitCode.FAILED
    assert shown.startswith("No record in these stores has the ")
    assert "leaves no record in these stores" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--message", "7F00zz"], ExitCode.USAGE, "'7F00zz' is no message id"),
        (["--message", "7F00"], ExitCode.USAGE, "32, 34 or 56 hexadecimal digits"),
        (["--key", "a b"], ExitCode.USAGE, "a key is one word"),
        (["--key", "a", "--message", UNIQUE], ExitCode.USAGE, "are two questions; ask one"),
        (["--key", "a", "--at", "now"], ExitCode.USAGE, "--at belongs to --group alone"),
        (["--group", "g"], ExitCode.USAGE, "or --group GROUP with --at TIME"),
        ([], ExitCode.USAGE, "name --message ID, or --key KEY"),
        (["--group", "g", "--at", "noon"], ExitCode.USAGE, "noon is no time"),
        (["--group", "gg", "--at", MONDAY_MS], ExitCode.FAILED, "did you mean g?"),
        (["--group", "g", "--at", MONDAY_MS - 1], ExitCode.FAILED, "lies outside of these files"),
        (["--group", "g", "--at", "now"], ExitCode.FAILED, "reach from 2023-11-20 00:00:00Z"),
    ],
)
def test_bad_input_is_one_sentence(
    say: Say, store: Path, arguments: list[object], code: ExitCode, sentence: str
) -> None:
    got, shown, errors = say(store, *arguments)
    assert got == code
    assert sentence in errors
    assert not shown
    assert "Traceback" not in errors


def test_a_path_that_is_no_store_is_exit_code_2(say: Say, tmp_path: Path) -> None:
    code, _, errors = say(tmp_path / "none", "--key", "a")
    assert code == ExitCode.USAGE
    assert "does not exist; name a broker's storePathRootDir" in errors


def test_a_store_in_a_directory_named_explain_is_analyzed_by_its_path(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.rename(tmp_path / "explain")
    monkeypatch.chdir(tmp_path)
    code = run(["analyze", "./explain", "--out", "out", "--report", "throughput"])
    assert code == ExitCode.OK, capsys.readouterr().err
    assert (tmp_path / "out" / "report.html").exists()


def test_help_finds_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "analyze", "explain"]) == ExitCode.OK
    assert "Usage: trioha analyze explain [OPTIONS] STORE..." in capsys.readouterr().out
