"""Queues and consumers against what was told: skew, lag, redelivery, delays, transactions."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from support.stores.journals import BEGIN_MS, Diary
from support.stores.told import (
    DAY_MS,
    HOUR_MS,
    MONDAY_MS,
    Told,
    ToldStore,
    make_report,
    rows_of,
    texts_of,
    write_config,
)

NOW_MS = MONDAY_MS + 10 * DAY_MS


def gini(counts: list[int]) -> float:
    """Return half of the mean difference of any two counts, over the mean."""
    differences = sum(abs(a - b) for a in counts for b in counts)
    return differences / (2 * len(counts) * sum(counts))


def test_skew_counts_empty_queues_too(tmp_path: Path) -> None:
    rng = random.Random(1)
    with ToldStore(tmp_path / "s") as store:
        for i in range(600):
            store.put("hot", 2 if rng.random() < 0.71 else rng.randrange(3), at_ms=MONDAY_MS + i)
            store.put("even", i % 4, at_ms=MONDAY_MS + i)
            store.put("%RETRY%g", i % 2 * i % 3, at_ms=MONDAY_MS + i)
    topics = {"hot": {"writeQueueNums": 6}, "even": {"writeQueueNums": 4}}
    write_config(store.root, "topics.json", {"topicConfigTable": topics})
    report = make_report("queues", store.root)
    hot, even = rows_of(report, "skew")
    counts = Counter(each.queue_id for each in store.told if each.topic == "hot")
    all_queues = [counts[queue_id] for queue_id in range(6)]
    assert hot["topic"] == "hot"
    assert hot["queues"] == 6
    assert hot["used"] == 3
    assert hot["largest"] == counts[2]
    assert hot["queue_id"] == 2
    assert hot["largest_share"] == counts[2] / 600
    assert hot["max_over_mean"] == pytest.approx(counts[2] / 100)
    assert hot["gini"] == pytest.approx(gini(all_queues))
    assert even["gini"] == pytest.approx(0)
    (text,) = [text for text in texts_of(report, "warning") if "topic hot" in text]
    assert "one of 6 queues (number 2) takes" in text


def test_lag_is_the_end_less_the_committed_offset(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        for i in range(100):
            store.put("t", i % 2, at_ms=MONDAY_MS + 1000 * i)
            store.put("u", 0, at_ms=MONDAY_MS + 1000 * i)
    offsets = {"t@slow": {"0": 10, "1": 50}, "t@fast": {"0": 50}, "u@lost": {"0": 130}}
    write_config(store.root, "consumerOffset.json", {"offsetTable": offsets})
    report = make_report("queues", store.root)
    rows = {row["consumer_group"]: row for row in rows_of(report, "lag")}
    assert {name: row["lag"] for name, row in rows.items()} == {"slow": 40, "fast": 0, "lost": -30}
    first_left = [each for each in store.told if each.topic == "t" and each.queue_id == 0][10]
    assert rows["slow"]["age_ms"] == store.told[-1].store_ms - first_left.store_ms
    assert rows["slow"]["queues"] == 2
    worst = rows_of(report, "lag_queues")[0]
    assert (worst["consumer_group"], worst["queue_id"], worst["lag"]) == ("slow", 0, 40)
    assert any("slow has not consumed 40 messages" in text for text in texts_of(report, "info"))
    assert any("30 messages beyond" in text for text in texts_of(report, "warning"))


def test_messages_deleted_before_they_were_consumed_are_told(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        for i in range(400):
            store.put("t", at_ms=MONDAY_MS + i, body=bytes(300))
    write_config(store.root, "consumerOffset.json", {"offsetTable": {"t@g": {"0": 5}}})
    sorted((store.root / "commitlog").iterdir())[0].unlink()
    kept = [each for each in store.told if each.phy_offset >= 64 << 10]
    report = make_report("queues", store.root)
    (row,) = rows_of(report, "lag")
    assert row["deleted"] == kept[0].queue_offset - 5
    assert row["age_ms"] == kept[-1].store_ms - kept[0].store_ms


def test_lag_over_time_comes_from_journals(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        store.put(at_ms=BEGIN_MS)
    diary = Diary(tmp_path, "broker-a:0")
    samples = [(0, 5), (10, 70), (10.5, 60), (40, 0)]
    for seconds, lag in samples:
        diary.tell(
            seconds,
            "consumer_lag",
            topic="t",
            group="g",
            lag=lag,
            consumer_offset=1,
            broker_offset=1 + lag,
            queues=1,
            worst_queue=0,
        )
    diary.close()
    report = make_report("queues", store.root, journals=[diary.directory])
    rows = rows_of(report, "lag_time")
    assert {row["begin_ms"]: row["lag_max"] for row in rows} == {
        BEGIN_MS: 5,
        BEGIN_MS + 10_000: 70,
        BEGIN_MS + 40_000: 0,
    }
    (chart,) = [chart for chart in report.charts if "over time" in chart.title]
    assert chart.series[0].label == "g of t @ broker-a:0"


def test_retries_and_dead_letters_have_groups_origins_and_ages(tmp_path: Path) -> None:
    rng = random.Random(2)
    with ToldStore(tmp_path / "s") as store:
        for i in range(200):
            kind = rng.choice(["%RETRY%", "%RETRY%", "%DLQ%"])
            times = rng.randrange(1, 5) if kind == "%RETRY%" else 16
            store.put(
                kind + rng.choice(["billing", "mail"]),
                at_ms=MONDAY_MS + i * HOUR_MS,
                reconsume_times=times,
                unique_key="" if i % 3 == 0 else f"{i % 20:032X}",
                RETRY_TOPIC=rng.choice(["orders", "orders", "clicks"]),
                ORIGIN_MESSAGE_ID=f"{i % 7:032X}",
            )
        store.put("%RETRYx", at_ms=MONDAY_MS + 999 * HOUR_MS)
    report = make_report("queues", store.root, now_ms=NOW_MS)
    told = [each for each in store.told if each.topic != "%RETRYx"]
    by_group: dict[tuple[str, str], list[int]] = {}
    rows = rows_of(report, "redelivery")
    for row in rows:
        prefix = "%DLQ%" if row["kind"] == "dead letter" else "%RETRY%"
        of_group = [each for each in told if each.topic == prefix + row["consumer_group"]]
        by_group[row["kind"], row["consumer_group"]] = [len(of_group)]
        assert row["messages"] == len(of_group)
        assert row["oldest_ms"] == of_group[0].store_ms
        assert row["newest_ms"] == of_group[-1].store_ms
        assert row["age_ms"] == NOW_MS - of_group[0].store_ms
        assert row["reconsume_max"] == max(each.reconsume_times for each in of_group)
        origins = Counter(each.properties["RETRY_TOPIC"] for each in of_group)
        assert row["top_origin"] == origins.most_common(1)[0][0]
    assert len(by_group) == len({each.topic for each in told}) == 4
    for row in rows_of(report, "redelivery_origins"):
        prefix = "%DLQ%" if row["kind"] == "dead letter" else "%RETRY%"
        of_origin = [
            each
            for each in told
            if each.topic == prefix + row["consumer_group"]
            and each.properties["RETRY_TOPIC"] == row["origin"]
        ]
        ids = {each.unique_key or each.properties["ORIGIN_MESSAGE_ID"] for each in of_origin}
        assert (row["messages"], row["different"]) == (len(of_origin), len(ids))
    kinds = Counter((each.topic, each.reconsume_times) for each in told)
    assert sum(row["messages"] for row in rows_of(report, "reconsume_times")) == len(told)
    assert len(rows_of(report, "reconsume_times")) == len(kinds)
    dead = [text for text in texts_of(report, "warning") if "gave up" in text]
    assert len(dead) == 2


def test_delay_levels_know_what_waits_and_since_when(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        for i in range(10):
            for level in (3, 5):
                store.put(
                    "SCHEDULE_TOPIC_XXXX",
                    level - 1,
                    at_ms=MONDAY_MS + 1000 * i,
                    DELAY=str(level),
                    REAL_TOPIC="t",
                )
        store.put(at_ms=MONDAY_MS + 5 * 60_000)
    write_config(store.root, "delayOffset.json", {"offsetTable": {"3": 10, "5": 4}})
    report = make_report("queues", store.root)
    third, fifth = rows_of(report, "delays")
    assert (third["level"], third["stored"], third["delivered"], third["waiting"]) == (3, 10, 10, 0)
    assert (fifth["level"], fifth["stored"], fifth["delivered"], fifth["waiting"]) == (5, 10, 4, 6)
    assert third["due_ms"] is None
    assert fifth["due_ms"] == MONDAY_MS + 4000 + 60_000
    assert fifth["overdue_ms"] == 5 * 60_000 - 64_000
    (text,) = [text for text in texts_of(report, "warning") if "delay level" in text]
    assert "level 5: the next of 6 messages was due 3.9 min before" in text


HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@pytest.mark.parametrize("release", [4, 5])
def test_transactions_are_done_or_wait(tmp_path: Path, release: int) -> None:
    """RocketMQ 5 ends several transactions with one op record."""
    with ToldStore(tmp_path / "s") as store:
        keys = [f"{number:032X}" for number in range(12)]
        halves = [
            store.put(HALF, at_ms=MONDAY_MS + i, TRAN_MSG="true", unique_key=key)
            for i, key in enumerate(keys)
        ]
        for half in halves[2:9]:
            if half.queue_offset < 6:
                born = MONDAY_MS + 30 - half.born_ms
                key = half.unique_key
                store.put("t", at_ms=MONDAY_MS + 30, latency_ms=born, sys_flag=8, unique_key=key)
            if release == 4:
                store.put(OP, at_ms=MONDAY_MS + 30, tags="d", body=b"%d" % half.queue_offset)
        if release == 5:
            store.put(OP, at_ms=MONDAY_MS + 30, tags="d", body=b"2,3,8,7,6,5,4,")
    offsets = {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": 1}}
    write_config(store.root, "consumerOffset.json", {"offsetTable": offsets})
    report = make_report("queues", store.root, now_ms=NOW_MS)
    (row,) = rows_of(report, "transactions")
    assert (row["transactions"], row["checks"], row["done"]) == (12, 0, 7)
    assert (row["committed"], row["rolled_back"], row["given_up"]) == (4, 3, 0)
    # Passed on: 0. Done: 2 to 8. Waiting: 1, 9, 10 and 11.
    assert row["waiting"] == 4
    assert row["oldest_ms"] == halves[1].born_ms
    assert row["age_ms"] == NOW_MS - halves[1].born_ms


@pytest.mark.parametrize("checked_up_to", [0, 3], ids=["a slave's old offset", "its master's"])
def test_a_transaction_that_is_checked_is_stored_again_and_counted_once(
    tmp_path: Path, checked_up_to: int
) -> None:
    with ToldStore(tmp_path / "s") as store:

        def again(half: Told, at_ms: int, topic: str = HALF, check: int = 1) -> Told:
            """The same message, born when it was."""
            return store.put(
                topic,
                at_ms=at_ms,
                latency_ms=at_ms - half.born_ms,
                unique_key=half.unique_key,
                TRANSACTION_CHECK_TIMES=str(check),
            )

        names = ("waits", "ends", "is given up")
        halves = [
            store.put(HALF, at_ms=MONDAY_MS + i, unique_key=name, TRAN_MSG="true")
            for i, name in enumerate(names)
        ]
        for check in (1, 2):
            copies = [again(half, MONDAY_MS + 60_000 * check, check=check) for half in halves]
        store.put(OP, at_ms=MONDAY_MS + 130_000, tags="d", body=b"%d" % copies[1].queue_offset)
        again(halves[2], MONDAY_MS + 140_000, "TRANS_CHECK_MAX_TIME_TOPIC")
    offsets = {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": checked_up_to}}
    write_config(store.root, "consumerOffset.json", {"offsetTable": offsets})
    report = make_report("queues", store.root, now_ms=NOW_MS)
    (row,) = rows_of(report, "transactions")
    assert (row["transactions"], row["checks"]) == (3, 6)
    assert (row["done"], row["rolled_back"], row["given_up"], row["waiting"]) == (1, 1, 1, 1)
    assert row["age_ms"] == NOW_MS - halves[0].born_ms, "no check makes it younger"


def test_a_damaged_table_is_a_note_not_an_end(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "s") as store:
        store.put(at_ms=MONDAY_MS)
    (store.root / "config").mkdir(exist_ok=True)
    for name in ("consumerOffset.json", "topics.json", "delayOffset.json"):
        (store.root / "config" / name).write_bytes(b"{no json")
    report = make_report("queues", store.root)
    assert rows_of(report, "lag") == []


@pytest.mark.parametrize(
    ("origin", "said"), [("", "of unknown origin"), ("orders", "of topic orders")]
)
def test_a_dead_letter_without_its_origin_is_told_in_words(
    tmp_path: Path, origin: str, said: str
) -> None:
    with ToldStore(tmp_path / "store") as store:
        if origin:
            store.put("%DLQ%g", at_ms=MONDAY_MS + 1000, RETRY_TOPIC=origin)
        else:
            store.put("%DLQ%g", at_ms=MONDAY_MS + 1000)
    report = make_report("queues", store.root, now_ms=MONDAY_MS + 2000)
    (text,) = [text for text in texts_of(report, "warning") if "gave up" in text]
    assert f"group g gave up on 1 message, mostly {said}; " in text


@pytest.mark.parametrize("retry", ["%RETRY%g_orders", "%RETRY%g+orders"])
@pytest.mark.parametrize("is_consumed", [False, True])
def test_redeliveries_to_a_group_that_pops_are_that_group_s(
    tmp_path: Path, retry: str, is_consumed: bool
) -> None:
    """The group's retry topic includes the topic's name; Java's broker does not say which it is."""
    with ToldStore(tmp_path / "store") as store:
        store.put(retry, at_ms=MONDAY_MS + 1000, reconsume_times=1)
        store.put("%RETRY%other_orders", at_ms=MONDAY_MS + 1000, reconsume_times=1)
    table = {"orders@g": {"0": 1}, "orders@other_orders": {"0": 1}}
    if is_consumed:
        table |= {f"{retry}@g": {"0": 1}, "%RETRY%other_orders@other_orders": {"0": 1}}
    write_config(store.root, "consumerOffset.json", {"offsetTable": table})
    report = make_report("queues", store.root, now_ms=MONDAY_MS + 2000)
    groups = {row["consumer_group"] for row in rows_of(report, "redelivery")}
    assert groups == {"g", "other_orders"}
