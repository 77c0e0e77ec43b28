"""Divergence of copies that were cut, damaged, written on, or forged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.journals import BEGIN_MS, Diary
from support.told_store import (
    MONDAY_MS,
    Told,
    ToldStore,
    copy_store,
    flip,
    make_report,
    rows_of,
    texts_of,
)

from trioha.analysis.reports.store_digests import BLOCK_BYTES

COUNT = 400


def fill(store: ToldStore, count: int, *, seed: int, begin_ms: int = MONDAY_MS) -> None:
    rng = random.Random(seed)
    for i in range(count):
        store.put(
            rng.choice(["a", "b"]),
            rng.randrange(2),
            at_ms=begin_ms + 10 * i,
            body=rng.randbytes(400),
            tags=rng.choice(["x", ""]),
        )


@pytest.fixture
def master(tmp_path: Path) -> ToldStore:
    with ToldStore(tmp_path / "master") as store:
        fill(store, COUNT, seed=1)
    return store


def slave_of(master: ToldStore, root: Path, end: Told | None = None) -> Path:
    """What a slave has that followed up to a record: the same bytes."""
    copy_store(master.root, root)
    if end is not None:
        store = reopened(root)
        store.store.truncate_log(end.phy_offset)
        store.store.close()
    return root


def reopened(root: Path) -> ToldStore:
    return ToldStore(root)


def test_equal_stores_agree(master: ToldStore, tmp_path: Path) -> None:
    slave = slave_of(master, tmp_path / "slave")
    report = make_report("divergence", master.root, slave)
    assert report.exit_code == 0
    (row,) = rows_of(report, "pairs")
    assert row["verdict"] == "equal"
    assert row["bytes_compared"] is True
    assert row["differing"] == row["behind_bytes"] == row["behind_messages"] == 0
    (text,) = texts_of(report, "info")
    assert "agree byte by byte" in text


def test_a_prefix_is_behind_not_diverged(master: ToldStore, tmp_path: Path) -> None:
    slave = slave_of(master, tmp_path / "slave", master.told[300])
    report = make_report("divergence", master.root, slave)
    assert report.exit_code == 0
    (row,) = rows_of(report, "pairs")
    assert row["verdict"] == "b is behind"
    last = master.told[-1]
    assert row["behind_bytes"] == last.phy_offset + last.size - (
        master.told[299].phy_offset + master.told[299].size
    )
    assert row["behind_messages"] == COUNT - 300
    assert row["behind_ms"] == last.store_ms - master.told[299].store_ms


def test_a_store_whose_old_segments_went_still_agrees(master: ToldStore, tmp_path: Path) -> None:
    slave = slave_of(master, tmp_path / "slave")
    first = sorted((slave / "commitlog").iterdir())[0]
    first.unlink()
    report = make_report("divergence", master.root, slave)
    assert report.exit_code == 0
    (row,) = rows_of(report, "pairs")
    assert (row["verdict"], row["common_begin"]) == ("equal", 64 << 10)


def test_a_fork_is_found_at_its_first_record(master: ToldStore, tmp_path: Path) -> None:
    fork = master.told[250]
    slave = slave_of(master, tmp_path / "slave", fork)
    store = reopened(slave)
    fill(store, 100, seed=2, begin_ms=fork.store_ms)
    store.store.close()
    report = make_report("divergence", master.root, slave)
    assert report.exit_code == 1
    (row,) = rows_of(report, "pairs")
    common_end = min(
        master.told[-1].phy_offset + master.told[-1].size,
        store.told[-1].phy_offset + store.told[-1].size,
    )
    ours = {each.phy_offset for each in master.told[250:] if each.phy_offset < common_end}
    theirs = {each.phy_offset for each in store.told if each.phy_offset < common_end}
    assert row["verdict"] == "diverged"
    assert row["first_offset"] == fork.phy_offset
    assert row["differing"] == len(ours | theirs)
    assert row["only_a"] == len(ours - theirs)
    assert row["only_b"] == len(theirs - ours)
    assert row["last_offset"] == max(ours | theirs)
    assert fork.phy_offset <= row["first_byte"] < fork.phy_offset + 88
    (text,) = texts_of(report, "error")
    assert f"record at {fork.phy_offset}" in text
    assert {each["store"] for each in rows_of(report, "records")} == {
        str(master.root),
        str(slave),
    }


@pytest.mark.parametrize("place", ["body", "properties"])
def test_a_flipped_bit_that_no_header_shows_is_found(
    master: ToldStore, tmp_path: Path, place: str
) -> None:
    slave = slave_of(master, tmp_path / "slave")
    victim = next(each for each in master.told[200:] if each.tags)
    offset = victim.phy_offset + (200 if place == "body" else victim.size - 1)
    flip(slave, offset)
    report = make_report("divergence", master.root, slave)
    assert report.exit_code == 1
    (row,) = rows_of(report, "pairs")
    assert (row["verdict"], row["first_byte"], row["field"]) == ("diverged", offset, place)
    (text,) = texts_of(report, "error")
    assert f"in {place} of the record at {victim.phy_offset}" in text


@pytest.mark.parametrize(
    ("place", "field"),
    [(12, "queue id"), (20, "queue offset"), (60, "hosts"), (67, "hosts"), (8, "body checksum")],
)
def test_a_flipped_header_is_found(
    master: ToldStore, tmp_path: Path, place: int, field: str
) -> None:
    slave = slave_of(master, tmp_path / "slave")
    victim = master.told[123]
    flip(slave, victim.phy_offset + place)
    report = make_report("divergence", master.root, slave)
    assert report.exit_code == 1
    (row,) = rows_of(report, "pairs")
    assert row["first_offset"] == victim.phy_offset
    assert row["first_byte"] == victim.phy_offset + place
    assert row["field"].startswith(field)
    assert (row["differing"], row["only_a"], row["only_b"]) == (1, 0, 0)


def test_a_record_lost_to_damage_is_told_with_the_damage(master: ToldStore, tmp_path: Path) -> None:
    slave = slave_of(master, tmp_path / "slave")
    victim = master.told[77]
    flip(slave, victim.phy_offset + 5)  # the magic
    report = make_report("divergence", master.root, slave)
    assert report.exit_code == 1
    (row,) = rows_of(report, "pairs")
    assert (row["first_offset"], row["only_a"], row["only_b"]) == (victim.phy_offset, 1, 0)
    (damage,) = rows_of(report, "damage")
    assert (damage["store"], damage["phy_offset"]) == (str(slave), victim.phy_offset)


def test_every_two_of_three_stores_are_compared(master: ToldStore, tmp_path: Path) -> None:
    good = slave_of(master, tmp_path / "good", master.told[350])
    bad = slave_of(master, tmp_path / "bad")
    flip(bad, master.told[10].phy_offset + 12)
    report = make_report("divergence", master.root, good, bad)
    verdicts = {
        (Path(row["a"]).name, Path(row["b"]).name): row["verdict"]
        for row in rows_of(report, "pairs")
    }
    assert verdicts == {
        ("master", "good"): "b is behind",
        ("master", "bad"): "diverged",
        ("good", "bad"): "diverged",
    }


def test_logs_without_a_common_range_cannot_be_judged(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as a:
        fill(a, 50, seed=1)
    with ToldStore(tmp_path / "b") as b:
        fill(b, COUNT, seed=1)
    sorted((b.root / "commitlog").iterdir())[0].unlink()
    report = make_report("divergence", a.root, b.root)
    assert report.exit_code == 0
    assert rows_of(report, "pairs")[0]["verdict"] == "nothing in common"
    assert texts_of(report, "warning")


def test_only_blocks_that_differ_are_looked_into(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a", segment_bytes=4 << 20, log_chunk_bytes=4 << 20) as store:
        rng = random.Random(3)
        while not store.told or store.told[-1].phy_offset < 3.5 * BLOCK_BYTES:
            store.put(at_ms=MONDAY_MS + len(store.told), body=rng.randbytes(20_000))
    other = copy_store(store.root, tmp_path / "b")
    victim = next(each for each in store.told if each.phy_offset > 2.5 * BLOCK_BYTES)
    flip(other, victim.phy_offset + 12, 4 << 20)
    report = make_report("divergence", store.root, other)
    (row,) = rows_of(report, "pairs")
    assert (row["first_offset"], row["last_offset"], row["differing"]) == (
        victim.phy_offset,
        victim.phy_offset,
        1,
    )


def test_journals_say_who_was_master_at_the_fork(master: ToldStore, tmp_path: Path) -> None:
    slave = slave_of(master, tmp_path / "slave")
    victim = master.told[123]
    flip(slave, victim.phy_offset + 12)
    diary = Diary(tmp_path, "broker-a:0")
    seconds = (victim.store_ms - 500 - BEGIN_MS) / 1000
    diary.tell(seconds, "role", role="ASYNC_MASTER", broker_id=0)
    diary.tell(seconds - 86_400, "role", role="SLAVE", broker_id=0)
    diary.close()
    report = make_report("divergence", master.root, slave, journals=[diary.directory])
    (row,) = rows_of(report, "journal")
    assert (row["node"], row["event"]) == ("broker-a:0", "role")
    assert "role ASYNC_MASTER" in row["fields"]
