"""One message's way: found by key and by either id, with every copy, in every store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.stores.small import HOST
from support.stores.told import (
    MONDAY_MS,
    Told,
    ToldStore,
    copy_store,
    flip,
    make_report,
    rows_of,
    texts_of,
    write_config,
)

from trioha.analysis.schema import AnalysisError
from trioha.wire.message_id import offset_message_id

UNIQUE = "7F0000010001AABBCCDD000000010002"


def write_journey(root: Path, unique_key: str = UNIQUE) -> ToldStore:
    """Sent, failed twice, dead; among many others."""
    with ToldStore(root) as store:
        first: Told | None = None
        for i in range(60):
            at_ms = MONDAY_MS + 1000 * i
            store.put("orders", i % 4, at_ms=at_ms, keys=[f"k{i}", "all"], unique_key=f"{i:032X}")
            origin = "" if first is None else offset_message_id(HOST, first.phy_offset)
            again: dict[str, Any] = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": origin}
            if i == 10:
                first = store.put(
                    "orders", 1, at_ms=at_ms, keys=["k-7", "all"], unique_key=unique_key
                )
            elif i in (20, 30):
                store.put(
                    "SCHEDULE_TOPIC_XXXX",
                    2,
                    at_ms=at_ms,
                    unique_key=unique_key,
                    reconsume_times=i // 10 - 1,
                    DELAY="3",
                    REAL_TOPIC="%RETRY%g",
                    **again,
                )
            elif i in (25, 35):
                store.put(
                    "%RETRY%g",
                    at_ms=at_ms,
                    unique_key=unique_key,
                    reconsume_times=i // 10 - 1,
                    DELAY="3",
                    **again,
                )
            elif i == 40:
                store.put("%DLQ%g", at_ms=at_ms, unique_key=unique_key, reconsume_times=3, **again)
    write_config(
        root,
        "consumerOffset.json",
        {"offsetTable": {"orders@g": {"1": 16}, "orders@late": {"1": 2}, "%RETRY%g@g": {"0": 2}}},
    )
    return store


JOURNEY = [
    ("stored", 10),
    ("waits for retry", 20),
    ("retry", 25),
    ("waits for retry", 30),
    ("retry", 35),
    ("dead letter", 40),
]


def first_of(store: ToldStore) -> Told:
    return next(each for each in store.told if "k-7" in each.keys)


@pytest.mark.parametrize("by", ["key", "unique id", "unique id as key", "lower case", "offset id"])
def test_all_hops_are_found_by_key_and_by_either_id(tmp_path: Path, by: str) -> None:
    store = write_journey(tmp_path / "s")
    options: dict[str, Any] = {
        "key": {"key": "k-7"},
        "unique id": {"message_id": UNIQUE},
        "unique id as key": {"key": UNIQUE},
        "lower case": {"message_id": UNIQUE.lower()},
        "offset id": {"message_id": offset_message_id(HOST, first_of(store).phy_offset)},
    }
    report = make_report("trace", store.root, **options[by])
    hops = rows_of(report, "hops")
    assert [(hop["kind"], hop["store_ms"]) for hop in hops] == [
        (kind, MONDAY_MS + 1000 * second) for kind, second in JOURNEY
    ]
    told = {each.phy_offset: each for each in store.told}
    for hop in hops:
        each = told[hop["phy_offset"]]
        assert (hop["topic"], hop["queue_id"]) == (each.topic, each.queue_id)
        assert (hop["queue_offset"], hop["size"]) == (each.queue_offset, each.size)
        assert hop["offset_id"] == offset_message_id(HOST, each.phy_offset)
        assert hop["unique_key"] == UNIQUE
    assert [hop["reconsume_times"] for hop in hops] == [0, 1, 1, 2, 2, 3]
    assert hops[1]["goes_to"] == "%RETRY%g"
    assert hops[1]["delay_level"] == 3
    assert hops[-1]["origin"] == "orders"
    assert any("3 deliveries" in text for text in texts_of(report, "warning"))


def test_copies_without_a_unique_id_are_found_by_their_origin(tmp_path: Path) -> None:
    store = write_journey(tmp_path / "s", unique_key="")
    by_key = rows_of(make_report("trace", store.root, key="k-7"), "hops")
    assert [hop["kind"] for hop in by_key] == [kind for kind, _ in JOURNEY]
    dead = next(each for each in store.told if each.topic == "%DLQ%g")
    from_the_end = offset_message_id(HOST, dead.phy_offset)
    by_id = rows_of(make_report("trace", store.root, message_id=from_the_end), "hops")
    assert [hop["kind"] for hop in by_id] == [kind for kind, _ in JOURNEY]


def test_groups_have_consumed_up_to_somewhere(tmp_path: Path) -> None:
    store = write_journey(tmp_path / "s")
    report = make_report("trace", store.root, key="k-7")
    place = first_of(store).queue_offset
    rows = rows_of(report, "progress")
    assert {
        (row["topic"], row["consumer_group"]): row["consumed"]
        for row in rows
        if row["queue_offset"] == place or row["topic"] != "orders"
    } == {
        ("orders", "g"): place < 16,
        ("orders", "late"): place < 2,
        ("%RETRY%g", "g"): True,
    }
    assert rows_of(report, "hops")[0]["consumed_by"] == ("g" if place < 16 else "")
    assert any(
        "group late has not consumed 1 record of it in orders" in text
        for text in texts_of(report, "info")
    )


def test_every_store_shows_what_it_has(tmp_path: Path) -> None:
    store = write_journey(tmp_path / "s")
    copy = copy_store(store.root, tmp_path / "copy")
    with ToldStore(tmp_path / "other") as other:
        other.put(at_ms=MONDAY_MS)
    dead = next(each for each in store.told if each.topic == "%DLQ%g")
    flip(copy, dead.phy_offset + 90)
    report = make_report("trace", store.root, copy, other.root, key="k-7")
    hops = rows_of(report, "hops")
    assert len(hops) == 2 * len(JOURNEY)
    assert [hop["phy_offset"] for hop in hops if not hop["crc_ok"]] == [dead.phy_offset]
    assert f"It is not in {other.root}." in texts_of(report, "warning")
    assert any("is damaged" in text for text in texts_of(report, "error"))
    assert {series.label for series in report.charts[0].series} == {str(store.root), str(copy)}


@pytest.mark.parametrize("key", ["k-70", "k-", "k%", "it's", "back\\slash"])
def test_what_is_not_there_is_not_found(tmp_path: Path, key: str) -> None:
    store = write_journey(tmp_path / "s")
    report = make_report("trace", store.root, key=key)
    assert rows_of(report, "hops") == []
    assert "No record with" in texts_of(report, "warning")[0]


def test_a_key_of_many_messages_is_told_to_be_that(tmp_path: Path) -> None:
    store = write_journey(tmp_path / "s")
    report = make_report("trace", store.root, key="all")
    assert len(rows_of(report, "hops")) == len(store.told)
    assert "These are 61 different messages" in texts_of(report, "warning")[0]


def test_who_asks_for_nothing_is_told_how_to_ask(tmp_path: Path) -> None:
    store = write_journey(tmp_path / "s")
    with pytest.raises(AnalysisError, match="--key or --id"):
        make_report("trace", store.root)
