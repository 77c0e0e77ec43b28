"""Integrity of stores that were damaged in known places."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.raft import copy, lead, member_config, open_member, put
from support.stores.told import (
    MONDAY_MS,
    Told,
    ToldStore,
    flip,
    make_report,
    rows_of,
    texts_of,
    write_config,
)
from support.suite.archives import unpack

from trioha.analysis.engine import Window
from trioha.analysis.reports import queue_entries
from trioha.analysis.reports.queue_offsets import _is_run
from trioha.store.consume_queue import ENTRY
from trioha.store.inspect import verify_store
from trioha.wire.java_hash import index_key_hash
from trioha.wire.names import RAFT_TOPIC

COUNT = 300
PRIME = (1 << 31) - 1
GOLDEN = Path(__file__).parents[2] / "store" / "golden"


@pytest.fixture
def store(tmp_path: Path) -> ToldStore:
    return make_store(tmp_path / "s")


def make_store(root: Path) -> ToldStore:
    rng = random.Random(5)
    with ToldStore(root) as store:
        for i in range(COUNT):
            store.put(
                rng.choice(["a", "b"]),
                rng.randrange(3),
                at_ms=MONDAY_MS + i,
                body=rng.randbytes(300),
                tags=rng.choice(["x", "y", ""]),
                keys=rng.choice([(), (f"k{i}",), (f"k{i}", "common")]),
                unique_key=f"{i:032X}",
            )
        store.put("SCHEDULE_TOPIC_XXXX", 2, at_ms=MONDAY_MS + COUNT, tags="x", DELAY="3")
    write_config(root, "topics.json", {"topicConfigTable": {"a": {}, "b": {}}})
    return store


def queue_file(store: ToldStore, told: Told) -> tuple[Path, int]:
    """The consume queue file of a message and its entry's position in it."""
    offset = told.queue_offset * ENTRY.size
    base = offset - offset % store.config.queue_file_bytes
    directory = store.root / "consumequeue" / told.topic / str(told.queue_id)
    return directory / f"{base:020d}", offset - base


def write_entry(store: ToldStore, told: Told, entry: bytes) -> None:
    path, position = queue_file(store, told)
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(entry)


def test_a_sound_store_has_no_findings_but_that(store: ToldStore) -> None:
    report = make_report("integrity", store.root)
    assert report.exit_code == 0
    assert [finding.text for finding in report.findings] == [
        f"Nothing is wrong with the records of {store.root}."
    ]
    (row,) = rows_of(report, "checked")
    assert row["records"] == len(store.told)
    (row,) = rows_of(report, "index")
    keys = sum(1 + len(set(each.keys)) for each in store.told if each.unique_key)
    assert row["keys_checked"] == row["entries"] == keys


def test_a_flipped_bit_in_a_body_is_a_bad_record(store: ToldStore) -> None:
    victim = store.told[100]
    flip(store.root, victim.phy_offset + 150)
    report = make_report("integrity", store.root)
    assert report.exit_code == 1
    (row,) = rows_of(report, "damage")
    assert (row["phy_offset"], row["length"]) == (victim.phy_offset, victim.size)
    (text,) = texts_of(report, "error")
    assert "body does not match its checksum" in text


def test_a_lost_record_is_damage_a_gap_and_a_lost_key(store: ToldStore) -> None:
    victim = next(
        each
        for each in store.told[150:]
        if each.topic == "a" and each.queue_id == 1 and len(each.keys) == 1
    )
    flip(store.root, victim.phy_offset + 4)
    report = make_report("integrity", store.root)
    assert report.exit_code == 1
    (row,) = rows_of(report, "damage")
    assert (row["phy_offset"], row["length"]) == (victim.phy_offset, victim.size)
    (row,) = rows_of(report, "queue_steps")
    assert (row["topic"], row["queue_id"], row["gaps"], row["missing"]) == ("a", 1, 1, 1)
    (row,) = rows_of(report, "steps")
    assert (row["kind"], row["before"] + 1) == ("gap", victim.queue_offset)
    assert row["at_damage"] is True
    (row,) = rows_of(report, "queue_entries")
    assert (row["kind"], row["places"]) == ("entry of a record lost to damage", 1)
    assert row["first_queue_offset"] == victim.queue_offset
    (row,) = rows_of(report, "index")
    assert (row["dangling"], row["missing"], row["explained"]) == (0, 0, 2)
    assert texts_of(report, "error") == [
        f"{store.root}: 1 damaged stretch of the log, {victim.size} bytes in all, the first at "
        f"{victim.phy_offset}: magic 0x25a320a7. 1 message of 1 queue is missing there. "
        "1 queue entry and 2 index entries lead into damage."
    ]


def test_a_missing_segment_is_many_gaps(store: ToldStore) -> None:
    sorted((store.root / "commitlog").iterdir())[1].unlink()
    lost = [each for each in store.told if 64 << 10 <= each.phy_offset < 128 << 10]
    report = make_report("integrity", store.root)
    assert report.exit_code == 1
    counted = {(each.topic, each.queue_id) for each in lost}
    rows = rows_of(report, "queue_steps")
    after = {(each.topic, each.queue_id) for each in store.told if each.phy_offset >= 128 << 10}
    assert {(row["topic"], row["queue_id"]) for row in rows} == counted & after
    assert sum(row["missing"] for row in rows) == sum(
        (each.topic, each.queue_id) in after for each in lost
    )
    assert sum(row["places"] for row in rows_of(report, "queue_entries")) == len(lost)
    assert all(row["at_damage"] for row in rows_of(report, "steps"))
    (text,) = texts_of(report, "error")
    assert "1 damaged stretch of the log, 64.0 KiB in all, the first at 65536: segment mis" in text
    assert f"{len(lost)} queue entries" in text


@pytest.mark.parametrize("place", ["topic", "queue id", "queue offset"])
def test_a_damaged_header_is_one_finding(store: ToldStore, place: str) -> None:
    """No gap, no topic that "was deleted", no entry without record, no keys without entries."""
    victim = next(each for each in store.told[150:] if each.topic == "a" and each.queue_id == 1)
    places = {"topic": 88 + 300 + 1, "queue id": 15, "queue offset": 27}
    flip(store.root, victim.phy_offset + places[place], mask=2)
    report = make_report("integrity", store.root)
    assert report.exit_code == 1
    (text,) = texts_of(report, "error")
    assert f"the header of the record at {victim.phy_offset} is damaged: it says topic" in text
    assert f"leads to it topic a queue 1 offset {victim.queue_offset}" in text
    assert texts_of(report, "info") == texts_of(report, "warning") == []


def test_many_wrong_places_are_counted_as_few_are(
    store: ToldStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sorted((store.root / "commitlog").iterdir())[1].unlink()
    flip(store.root, store.told[10].phy_offset + 15, mask=2)  # queue id
    few = make_report("integrity", store.root)
    monkeypatch.setattr(queue_entries, "_JUDGED_MAX", 5)
    many = make_report("integrity", store.root)
    assert many.findings == few.findings
    assert rows_of(many, "queue_entries") == rows_of(few, "queue_entries")


def test_a_store_without_a_record_is_an_error_not_sound(tmp_path: Path) -> None:
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    report = make_report("integrity", tmp_path / "s")
    assert report.exit_code == 1
    (text,) = texts_of(report, "error")
    assert "holds no record at all: nothing was checked" in text


def test_a_missing_queue_entry_is_found(store: ToldStore) -> None:
    victim = store.told[42]
    write_entry(store, victim, bytes(ENTRY.size))
    report = make_report("integrity", store.root)
    assert report.exit_code == 1
    (row,) = rows_of(report, "entries")
    assert (row["topic"], row["queue_id"]) == (victim.topic, victim.queue_id)
    assert (row["queue_offset"], row["kind"]) == (victim.queue_offset, "record without entry")
    assert (row["record_offset"], row["entry_offset"]) == (victim.phy_offset, None)


def test_an_entry_of_another_record_is_found(store: ToldStore) -> None:
    victim, other = store.told[42], store.told[10]
    write_entry(store, victim, ENTRY.pack(other.phy_offset, other.size, 0))
    report = make_report("integrity", store.root)
    (row,) = rows_of(report, "entries")
    assert row["kind"] == "entry of another record"
    assert (row["record_offset"], row["entry_offset"]) == (victim.phy_offset, other.phy_offset)


def test_a_wrong_tags_code_is_found(store: ToldStore) -> None:
    victim = next(each for each in store.told if each.tags == "x")
    write_entry(store, victim, ENTRY.pack(victim.phy_offset, victim.size, 99))
    report = make_report("integrity", store.root)
    (text,) = texts_of(report, "error")
    assert f"topic {victim.topic} queue {victim.queue_id}: the tags code of 1 entry" in text


def test_a_queue_that_is_gone_is_an_error_while_its_topic_exists(store: ToldStore) -> None:
    directory = store.root / "consumequeue" / "b"
    count = sum(each.topic == "b" for each in store.told)
    for path in sorted(directory.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    directory.rmdir()
    report = make_report("integrity", store.root)
    assert texts_of(report, "error") == [
        f"{store.root}: topic b has {count} records but no queue, though it exists."
    ]
    write_config(store.root, "topics.json", {"topicConfigTable": {"a": {}}})
    for path in (store.root / "config").glob("*.bak"):
        path.unlink()
    report = make_report("integrity", store.root)
    assert report.exit_code == 0
    assert any("it was deleted" in text for text in texts_of(report, "info"))


def test_a_topic_made_anew_is_no_error(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        for i in range(25):
            if i == 20:
                store.store.delete_topic("t")
            store.put("t", at_ms=MONDAY_MS + i, tags="x" if i < 20 else "y")
    assert store.told[20].queue_offset == 0
    report = make_report("integrity", store.root)
    assert report.exit_code == 0, texts_of(report, "error")
    (row,) = rows_of(report, "queue_steps")
    assert (row["restarts"], row["repeats"], row["gaps"]) == (1, 0, 0)
    assert any("made again" in text for text in texts_of(report, "info"))


def test_index_entries_that_are_wrong_are_found(store: ToldStore) -> None:
    path = sorted((store.root / "index").iterdir())[0]
    slots = store.config.hash_slot_count
    with open(path, "r+b") as file:
        file.seek(40 + slots * 4 + 20 * 3)
        key_hash, phy_offset, seconds, previous = struct.unpack(">iqii", file.read(20))
        file.seek(40 + slots * 4 + 20 * 3)
        file.write(struct.pack(">iqii", key_hash ^ 1, phy_offset, seconds, previous))
    report = make_report("integrity", store.root)
    assert report.exit_code == 1
    rows = rows_of(report, "index_entries")
    assert {(row["kind"], row["phy_offset"]) for row in rows} == {
        ("key without entry", phy_offset),
        ("entry without key", phy_offset),
    }
    (missing,) = [row for row in rows if row["kind"] == "key without entry"]
    (told,) = [each for each in store.told if each.phy_offset == phy_offset]
    assert missing["key"] in (told.unique_key, *told.keys)


def test_zeros_before_the_entries_are_not_taken_for_the_first_one(tmp_path: Path) -> None:
    """The log begins at 0, and five slots fewer would fit the file's first and last entry too."""
    with ToldStore(tmp_path) as store:
        slots = store.config.hash_slot_count
        names = [f"{i:032X}" for i in range(2)]
        keys = [f"k{i}" for i in range(10 * slots)]
        hashes = {key: index_key_hash("a", key) for key in (*names, *keys)}
        first = next(key for key in keys if hashes[key] % slots == 0)
        slot_of_last = hashes[names[1]] % (slots - 5)
        last = next(key for key in keys if hashes[key] % slots == slot_of_last)
        for name, key in zip(names, (first, last), strict=True):
            store.put("a", at_ms=MONDAY_MS, keys=(key,), unique_key=name)
    report = make_report("integrity", tmp_path)
    assert report.exit_code == 0, texts_of(report, "error")
    (row,) = rows_of(report, "index")
    assert (row["keys_checked"], row["entries"]) == (4, 4)


def test_a_file_that_is_no_index_is_an_error(store: ToldStore) -> None:
    (store.root / "index" / "20231120000000000").write_bytes(struct.pack(">qqqqii", *[9] * 6))
    report = make_report("integrity", store.root)
    assert any("cannot be read" in text for text in texts_of(report, "error"))


def test_a_crashed_store_is_behind_but_not_broken(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as master:
        for i in range(50):
            master.put("a", at_ms=MONDAY_MS + i, unique_key=f"{i:032X}")
        data = bytes(master.store.read_log(0, 1 << 20))
    slave = ToldStore(tmp_path / "slave")
    half = master.told[30].phy_offset
    slave.store.append_log(0, data[:half])
    while slave.store.dispatch(1 << 20):
        pass
    slave.store.append_log(half, data[half:])
    report = make_report("integrity", slave.root)
    slave.store.close()
    assert report.exit_code == 0, texts_of(report, "error")
    assert any("20 records without entry at the end" in text for text in texts_of(report, "info"))


def test_a_groups_own_records_are_counted_by_each_member_for_itself(tmp_path: Path) -> None:
    leader, _ = open_member(member_config(tmp_path / "leader"))
    follower, _ = open_member(member_config(tmp_path / "follower"))
    for term in (1, 2, 3):
        lead(leader, term)
        put(leader)
        copy(leader, follower, term)
    # The leader loses its entries of the group's records, as if its log began later.
    leader.store.delete_topic(RAFT_TOPIC)
    lead(leader, 9)
    put(leader)
    copy(leader, follower, 9)
    for log in (leader, follower):
        log.store.close()
    report = make_report("integrity", tmp_path / "follower")
    assert report.exit_code == 0, report.findings
    assert verify_store(tmp_path / "follower").sound


def test_transactions_take_no_queue_offset(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        for i in range(30):
            store.put("a", at_ms=MONDAY_MS + i, sys_flag=[0, 4, 8, 12][i % 4])
    report = make_report("integrity", store.root)
    assert report.exit_code == 0, texts_of(report, "error")


def test_a_window_checks_records_only(store: ToldStore) -> None:
    write_entry(store, store.told[42], bytes(ENTRY.size))
    report = make_report("integrity", store.root, window=Window(MONDAY_MS + 10, MONDAY_MS + 99))
    assert report.exit_code == 0
    (row,) = rows_of(report, "checked")
    assert row["records"] == 89
    assert any("--from and --to" in text for text in texts_of(report, "info"))


@given(
    low=st.integers(0, 1 << 40),
    steps=st.lists(st.sampled_from([1, 1, 1, 1, 0, 2, 3, -1]), max_size=60),
)
@settings(max_examples=300)
def test_a_run_is_told_by_its_sums(low: int, steps: list[int]) -> None:
    values = [low]
    for step in steps:
        values.append(max(0, values[-1] + step))
    row = {
        "messages": len(values),
        "low": min(values),
        "high": max(values),
        "first_powers": sum(value % PRIME for value in values),
        "second_powers": sum((value % PRIME) ** 2 % PRIME for value in values),
        "third_powers": sum(
            (value % PRIME) ** 2 % PRIME * (value % PRIME) % PRIME for value in values
        ),
    }
    assert _is_run(row) == (sorted(values) == list(range(min(values), max(values) + 1)))


@pytest.mark.parametrize("name", ["java-clean-stop", "java-killed", "java-dledger"])
def test_stores_of_a_java_broker_are_sound_and_known(tmp_path: Path, name: str) -> None:
    unpack(GOLDEN / f"{name}.tar.xz", tmp_path)
    sent = json.loads((GOLDEN / f"{name}.json").read_text())
    report = make_report("integrity", tmp_path)
    assert report.exit_code == 0, texts_of(report, "error")
    (row,) = rows_of(report, "index")
    words = [word for each in sent for word in (each["keys"] or "").split()]
    assert row["keys_checked"] == row["entries"] >= len(words)
    with_keys = [each for each in sent if each["keys"]]
    for each in (with_keys[0], with_keys[-1]):
        key = each["keys"].split()[0]
        hops = rows_of(make_report("trace", tmp_path, key=key), "hops")
        assert each["phy_offset"] in [hop["phy_offset"] for hop in hops]
        (hop,) = [hop for hop in hops if hop["phy_offset"] == each["phy_offset"]]
        assert (hop["queue_id"], hop["queue_offset"]) == (each["queue_id"], each["queue_offset"])
