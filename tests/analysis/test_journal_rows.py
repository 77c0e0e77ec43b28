"""Journals as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from trioha.analysis.journal_rows import (
    JournalCorruptRow,
    JournalRow,
    journal_files_of,
    read_file,
)
from trioha.analysis.schema import AnalysisError
from trioha.journal.file import JournalFile


def journal(directory: Path, events: int = 3) -> Path:
    sink = JournalFile(directory, "broker-a:0", lambda: 1234, bytes_max=1 << 20)
    for n in range(events):
        sink.event("ha_connected", peer="10.0.0.1:1", offset=n)
    sink.event("unknown_event", deep={"a": [1, None]}, flag=True)
    sink.close()
    return directory


def test_events_are_rows_with_text_for_fields(tmp_path: Path) -> None:
    (file,) = journal_files_of(journal(tmp_path / "store" / "journal").parent)
    rows = list(read_file(file))
    assert rows[0] == JournalRow(
        "broker-a:0",
        str(file),
        0,
        1234,
        "ha_connected",
        "info",
        {"peer": "10.0.0.1:1", "offset": "0"},
    )
    assert isinstance(rows[-1], JournalRow)
    assert rows[-1].level == ""
    assert rows[-1].fields == {"deep": '{"a": [1, null]}', "flag": "true"}


@pytest.mark.parametrize("place", range(9, 120, 5))
def test_flips_and_cuts_cost_only_what_they_hit(place: int, tmp_path: Path) -> None:
    (file,) = journal_files_of(journal(tmp_path, events=10))
    data = bytearray(file.read_bytes())
    data[place] ^= 0x40
    file.write_bytes(data)
    rows = list(read_file(file))
    assert sum(isinstance(row, JournalRow) for row in rows) >= 10
    assert any(isinstance(row, JournalCorruptRow) for row in rows)
    file.write_bytes(data[:-7])
    assert isinstance(list(read_file(file))[-1], JournalCorruptRow)


def test_no_journal_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="holds no journal"):
        journal_files_of(tmp_path)
    with pytest.raises(AnalysisError, match="does not exist"):
        journal_files_of(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(AnalysisError, match="not a directory"):
        journal_files_of(tmp_path / "file")
    assert list(read_file(tmp_path / "gone.journal")) == []
