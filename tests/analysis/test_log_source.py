"""A segment's bytes while its file is cut, at every length."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.stores.logs import LogMessage, make_log

from trioha.analysis.log_source import FileSource
from trioha.analysis.log_walk import LogWalk, Sound
from trioha.analysis.scan import plan_splits, scan_source
from trioha.analysis.store_files import open_store


def test_what_was_cut_off_reads_as_zeros_up_to_the_size_at_opening(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    with FileSource(str(path)) as source:
        os.truncate(path, 4)
        assert source.read(2, 5) == b"23\0\0\0"
        assert source.read(6, 2) == b"\0\0"
        assert source.read(8, 5) == b"\0\0"
        assert source.read(10, 5) == b""
        assert source.find(b"9", 0, 10) == -1


@pytest.mark.parametrize("is_dledger", [False, True])
def test_a_walk_judges_every_place_of_a_file_cut_anywhere(is_dledger: bool, tmp_path: Path) -> None:
    log = make_log([LogMessage(body=b"x" * 90)] * 3, is_dledger=is_dledger)
    path = log.write(tmp_path) / ("0" * 20)
    with FileSource(str(path)) as source:
        walk = LogWalk(source, 0, is_dledger=is_dledger)
        for cut in range(log.end, -1, -1):
            os.truncate(path, cut)
            for record in log.records:
                is_sound = isinstance(walk.sound(record.begin), Sound)
                assert is_sound == (record.end <= cut)
                assert not walk.is_blank(record.begin)


@pytest.mark.parametrize("is_dledger", [False, True])
def test_a_scan_of_a_file_cut_anywhere_gives_the_records_left(
    is_dledger: bool, tmp_path: Path
) -> None:
    log = make_log([LogMessage(body=b"x" * 90)] * 5, is_dledger=is_dledger)
    path = log.write(tmp_path / ("dledger-n0/data" if is_dledger else "commitlog")) / ("0" * 20)
    (split,) = plan_splits(open_store(tmp_path))
    with FileSource(str(path)) as source:
        for cut in range(log.end, -1, -1):
            os.truncate(path, cut)
            found = sum(batch.row_count for batch in scan_source(source, split, columns="full"))
            assert found == sum(record.end <= cut for record in log.records)
