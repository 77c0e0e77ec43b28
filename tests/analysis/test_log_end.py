"""Following the end of a log that grows, at every byte of its growth."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stores.logs import LogMessage, make_log

from trioha.analysis.log_end import LogEnd
from trioha.analysis.store_files import open_store


@pytest.mark.parametrize("is_dledger", [False, True])
def test_the_end_moves_by_whole_records_only(is_dledger: bool, tmp_path: Path) -> None:
    log = make_log([LogMessage(body=b"x" * 900)] * 6, is_dledger=is_dledger)
    directory = tmp_path / ("dledger-n0/data" if is_dledger else "commitlog")
    log.write(directory)
    final = {offset: bytes(data) for offset, data in log.segments.items()}
    ends = sorted(record.end for record in log.records)
    log_end = LogEnd()
    for end in range(0, log.end + 1, 37):
        for offset, data in final.items():
            kept = max(0, min(end - offset, len(data)))
            (directory / f"{offset:020d}").write_bytes(data[:kept] + bytes(len(data) - kept))
        whole = [place for place in ends if place <= end]
        found = log_end.find(open_store(tmp_path))
        if whole:
            # Behind the last record of a file the blank may be there already.
            assert found == whole[-1] or found % 4096 == 0
            assert found <= end + 8 or found % 4096 == 0
        else:
            assert found == -1


@pytest.mark.parametrize("is_dledger", [False, True])
def test_a_copy_may_grow_byte_by_byte(is_dledger: bool, tmp_path: Path) -> None:
    """A file is as long as the bytes copied: the few bytes behind a record are no filler yet."""
    log = make_log([LogMessage(body=b"x" * 900)] * 6, is_dledger=is_dledger)
    directory = tmp_path / ("dledger-n0/data" if is_dledger else "commitlog")
    directory.mkdir(parents=True)
    beginnings = sorted(record.phy_offset for record in log.records)
    ends = {record.phy_offset: record.end for record in log.records}
    log_end = LogEnd()
    for end in range(1, log.end + 1):
        for offset, data in log.segments.items():
            if offset < end:
                (directory / f"{offset:020d}").write_bytes(data[: end - offset])
        found = log_end.find(open_store(tmp_path))
        assert all(ends[place] <= end for place in beginnings if place < found)
    assert found == log.end


def test_a_distant_end_is_leapt_to(tmp_path: Path) -> None:
    log = make_log([LogMessage(body=b"x" * 4000)] * 6000, segment_bytes=32 << 20)
    log.write(tmp_path / "commitlog")
    assert LogEnd().find(open_store(tmp_path)) == log.end


def test_damage_before_the_end_is_passed_over(tmp_path: Path) -> None:
    log = make_log([LogMessage()] * 20)
    log.segments[0][300:700] = bytes(400)
    log.write(tmp_path / "commitlog")
    assert LogEnd().find(open_store(tmp_path)) == log.end
