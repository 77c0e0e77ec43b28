"""Statistics in pieces are the statistics of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stores.big import write_big_store

from trioha.analysis.database import Database
from trioha.analysis.scan import scan_split
from trioha.analysis.stats import STATS, Statistics, host_of, statistics_of
from trioha.analysis.store_files import open_store


def merged(root: Path, scratch: Path, split_bytes: int) -> dict[str, list[dict[str, object]]]:
    database = Database(scratch)
    database.create_statistics()
    for split in open_store(root).splits(split_bytes):
        for piece in statistics_of(Statistics("s"), scan_split(split)):
            for name, rows in piece.items():
                database.add_statistics(name, rows)
    database.merge_statistics()
    found = {
        table.name: database.query(f"SELECT * FROM {table.name} ORDER BY {', '.join(table.keys)}")
        for table in STATS.values()
    }
    database.close()
    return found


def test_pieces_merge_to_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_big_store(tmp_path / "store", 200_000, segment_bytes=1 << 17)
    whole = merged(tmp_path / "store", tmp_path, 1 << 26)
    assert merged(tmp_path / "store", tmp_path, 5_000) == whole
    monkeypatch.setattr("trioha.analysis.stats.KEYS_MAX", 1)  # handed out after every batch
    assert merged(tmp_path / "store", tmp_path, 5_000) == whole
    totals = {name: sum(int(str(row["messages"])) for row in rows) for name, rows in whole.items()}
    assert len(set(totals.values())) == 1


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1:10911", "10.0.0.1"),
        ("[2001:db8::1]:10911", "[2001:db8::1]"),
        ("2001:db8::1:80", "2001:db8::1"),
        ("name", "name"),
        ("name:port", "name:port"),
        ("", ""),
    ],
)
def test_a_host_is_an_address_without_its_port(address: str, host: str) -> None:
    assert host_of(address) == host
