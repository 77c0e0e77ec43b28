"""`trioha journal show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trioha.cli import cli
from trioha.journal.file import JournalFile, journal_files


@pytest.fixture
def store(tmp_path: Path) -> Path:
    ticks = iter(range(1_700_000_000_000, 1_800_000_000_000))
    journal = JournalFile(tmp_path / "journal", "n", lambda: next(ticks), bytes_max=1 << 20)
    for number in range(3):
        journal.event("ha_progress", gap_bytes=number)
        journal.event("ha_connected", peer="p", offset=number)
    journal.close()
    return tmp_path


def show(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["journal", "show", *arguments])


def test_events_are_json_lines(store: Path) -> None:
    lines = [json.loads(line) for line in show(str(store / "journal")).output.splitlines()]
    assert [line["sequence"] for line in lines] == list(range(6))
    assert lines[1]["event"] == "ha_connected"
    assert lines[1]["peer"] == "p"
    assert lines[1]["ts"].startswith("2023-11-14T22:13:20.")


def test_a_store_is_as_good_as_its_journal_directory(store: Path) -> None:
    assert show(str(store)).output == show(str(store / "journal")).output


def test_events_can_be_chosen(store: Path) -> None:
    result = show(str(store), "--event", "ha_connected", "--last", "2")
    assert [json.loads(line)["offset"] for line in result.output.splitlines()] == [1, 2]


def test_damage_is_told_on_stderr(store: Path) -> None:
    (path,) = journal_files(store / "journal")
    path.write_bytes(path.read_bytes()[:-3])
    result = show(str(store))
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 5
    assert "torn tail at" in result.stderr


def test_a_directory_without_a_journal_is_an_error(tmp_path: Path) -> None:
    result = show(str(tmp_path))
    assert result.exit_code == 1
    assert "no journal here" in result.output
