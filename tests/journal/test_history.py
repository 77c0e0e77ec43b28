"""A journal's files by sequence number, in bounded pieces."""

from __future__ import annotations

from pathlib import Path

import msgpack
import pytest

from trioha.journal import history
from trioha.journal.file import JournalFile, journal_files
from trioha.journal.history import Place, read_stretch


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Four hundred events over several files."""
    journal = JournalFile(tmp_path, "n", lambda: 1, bytes_max=8 * 4096)
    for number in range(400):
        journal.event("ha_progress" if number % 4 else "ha_connected", number=number)
        journal.flush_nowait()
    journal.close()
    assert len(journal_files(tmp_path)) > 3
    return tmp_path


def numbers(directory: Path, first: int, names: frozenset[str] = frozenset()) -> list[int]:
    """Every event from `first` on, piece by piece."""
    found: list[int] = []
    place: Place | None = None
    while piece := read_stretch(directory, first, names, count_max=50, place=place):
        stretch, place = piece
        assert len(stretch.payloads) <= 50
        assert stretch.next_sequence > first
        first = stretch.next_sequence
        found += [msgpack.unpackb(payload)[0] for payload in stretch.payloads]
    return found


@pytest.mark.parametrize("first", [0, 1, 117, 399])
def test_pieces_join_to_all_there_is(directory: Path, first: int) -> None:
    assert numbers(directory, first) == list(range(first, 400))


def test_only_these_names(directory: Path) -> None:
    assert numbers(directory, 10, frozenset({"ha_connected"})) == list(range(12, 400, 4))


def test_small_pieces_join_as_well(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "READ_BYTES_MAX", 100)
    assert numbers(directory, 0) == list(range(400))


def test_damage_is_passed_over(directory: Path) -> None:
    path = journal_files(directory)[1]
    data = bytearray(path.read_bytes())
    data[1000] ^= 0xFF
    path.write_bytes(data)
    found = numbers(directory, 0)
    assert len(found) == 399
    assert found == sorted(found)


def test_files_that_are_gone_begin_with_the_oldest_that_is_there(directory: Path) -> None:
    files = journal_files(directory)
    files[0].unlink()
    assert numbers(directory, 3)[0] == int(files[1].stem)


def test_nothing_is_there_beyond_the_end_or_in_no_journal(directory: Path, tmp_path: Path) -> None:
    assert read_stretch(directory, 400, frozenset(), count_max=1) is None
    assert read_stretch(tmp_path / "none", 0, frozenset(), count_max=1) is None
