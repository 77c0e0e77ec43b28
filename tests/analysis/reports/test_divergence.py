"""Divergence of copies that were cut, damaged, written on, or forged."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from support.stores.journals import BEGIN_MS, Diary
from support.stores.told import (
    MONDAY_MS,
    Told,
    ToldStore,
    copy_store,
    flip,
    make_report,
    rows_of,
    texts_of,
)

from trioha.analysis.inputs import open_inputs
from trioha.analysis.local_engine import LocalEngine
from trioha.analysis.reports import divergence
from trioha.analysis.reports.store_digests import BLOCK_BYTES
from trioha.analysis.results import ReportOptions
from trioha.ha.epochs import EpochHistory, EpochRecord
from trioha.ha.mastership import FILE_NAME, Mastership
from trioha.store.cuts import save_cut
from trioha.store.two_slot_file import TwoSlotFile

COUNT = 400
SEGMENT_BYTES = 64 << 10


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
    """Copy the master's store as a slave's; if `end` is given, cut the log before that record."""
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
    assert row["differing"] == row["behind_bytes"] == row["behind_messages"] == 0
    (text,) = texts_of(report, "info")
    assert "agree in every byte of their records from 0 to" in text


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
    assert f"record at {victim.phy_offset} (byte {offset}, in {place})" in text


def test_every_record_with_a_flipped_byte_is_counted(master: ToldStore, tmp_path: Path) -> None:
    """Headers that differ do not end the comparison of bodies and properties."""
    slave = slave_of(master, tmp_path / "slave")
    victims = random.Random(7).sample(master.told, 20)
    for number, victim in enumerate(victims):
        # Two of them in a header, as it was when twenty flips were told as two.
        place = 12 if number < 2 else random.Random(number).randrange(92, 480)
        flip(slave, victim.phy_offset + place)
    report = make_report("divergence", master.root, slave)
    (row,) = rows_of(report, "pairs")
    places = [victim.phy_offset for victim in victims]
    assert (row["differing"], row["only_a"], row["only_b"]) == (20, 0, 0)
    assert (row["first_offset"], row["last_offset"]) == (min(places), max(places))
    assert {each["phy_offset"] for each in rows_of(report, "records")} == set(places)
    (text,) = texts_of(report, "error")
    assert "20 records differ" in text


def test_damage_in_both_stores_is_told_beside_their_agreement(
    master: ToldStore, tmp_path: Path
) -> None:
    victim = master.told[77]
    flip(master.root, victim.phy_offset + 5)  # the magic
    slave = slave_of(master, tmp_path / "slave")
    flip(slave, victim.phy_offset + 200)
    report = make_report("divergence", master.root, slave)
    assert report.exit_code == 0
    assert texts_of(report, "warning") == [
        f"{store} has 1 damaged stretch ({victim.size} bytes); what was there was not compared."
        for store in (master.root, slave)
    ]


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


def term(epoch: int, start_offset: int, home_id: int, nonce: bytes) -> EpochRecord:
    return EpochRecord(epoch, start_offset, home_id, nonce * 8, sync=True, began_wall_ms=MONDAY_MS)


def keep(root: Path, *records: EpochRecord) -> None:
    """Write the file `epochs` as a node does."""
    file = TwoSlotFile(root / FILE_NAME)
    Mastership(0, file.save, file.payload).adopt(EpochHistory(records))


def test_a_fork_names_the_terms_on_both_sides(master: ToldStore, tmp_path: Path) -> None:
    fork = master.told[250]
    slave = slave_of(master, tmp_path / "slave", fork)
    store = reopened(slave)
    fill(store, 100, seed=2, begin_ms=fork.store_ms)
    store.store.close()
    first = term(1, 0, 0, b"a")
    keep(master.root, first)
    keep(slave, first, term(2, fork.phy_offset, 1, b"b"))
    report = make_report("divergence", master.root, slave)
    (row,) = rows_of(report, "pairs")
    assert (row["first_offset"], row["epoch_a"], row["epoch_b"]) == (fork.phy_offset, 1, 2)
    text = texts_of(report, "error")[0]
    assert f"{master.root} was in epoch 1 (of node 0, from 0)" in text
    assert f"{slave} was in epoch 2 (of node 1, from {fork.phy_offset})" in text
    terms = rows_of(report, "epochs")
    assert [(each["epoch"], each["start_offset"], each["end_offset"]) for each in terms] == [
        (1, 0, None),
        (1, 0, fork.phy_offset),
        (2, fork.phy_offset, None),
    ]


def test_what_a_node_gave_up_is_told(master: ToldStore, tmp_path: Path) -> None:
    fork = master.told[390]
    slave = slave_of(master, tmp_path / "slave", fork)
    end = master.told[-1].phy_offset + master.told[-1].size

    def read(offset: int, size_max: int) -> memoryview:
        base = offset - offset % SEGMENT_BYTES
        data = (master.root / "commitlog" / f"{base:020d}").read_bytes()
        return memoryview(data)[offset - base : offset - base + size_max]

    begin = fork.phy_offset
    kept = save_cut(
        slave, read, begin, end, segment_bytes=SEGMENT_BYTES, wall_ms=MONDAY_MS, about={}
    )
    report = make_report("divergence", slave, master.root)
    assert report.exit_code == 0
    (row,) = rows_of(report, "cuts")
    assert (row["begin"], row["end"], row["records"]) == (fork.phy_offset, end, COUNT - 390)
    assert row["kept"] == str(kept.path)
    told = Counter((each.topic, each.queue_id) for each in master.told[390:])
    assert row["queues"] == ", ".join(f"{t}/{q}: {n}" for (t, q), n in sorted(told.items()))
    (text,) = texts_of(report, "warning")
    assert f"gave up {COUNT - 390} messages" in text


def test_an_epochs_file_that_cannot_be_read_is_a_note(master: ToldStore, tmp_path: Path) -> None:
    slave = slave_of(master, tmp_path / "slave")
    keep(slave, term(1, 0, 0, b"a"))
    for path in slave.glob("epochs.*"):
        path.write_bytes(b"torn")
    inputs = open_inputs([str(master.root), str(slave)])
    with LocalEngine(inputs) as engine:
        report = divergence.run(engine, ReportOptions(now_ms=MONDAY_MS))
    assert report.exit_code == 0
    assert [note for note in inputs.notes if "epochs" in note]
