"""Scripted incidents: stores and journals of known truth, and the answer to each question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.stores.journals import BEGIN_MS, Diary, at
from support.stores.small import HOST
from support.stores.told import Told, ToldStore, copy_store, write_config

from trioha.analysis.explain.case import open_case
from trioha.analysis.explain.explanation import Explanation
from trioha.analysis.explain.group import explain_group
from trioha.analysis.explain.message import explain_message
from trioha.analysis.inputs import open_inputs
from trioha.analysis.schema import AnalysisError
from trioha.broker.metadata_ops import (
    DelaySet,
    MetadataOp,
    OffsetsSet,
    ProgressGone,
    QueueEnds,
    Snapshot,
    encode_ops,
)
from trioha.broker.raft.records import CHANGES, SNAPSHOT, messages_of
from trioha.ha.epochs import EpochHistory, EpochRecord
from trioha.ha.mastership import FILE_NAME as EPOCHS
from trioha.ha.mastership import Mastership
from trioha.store.cuts import save_cut
from trioha.store.two_slot_file import TwoSlotFile
from trioha.wire import fastjson
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.codes import SysFlag
from trioha.wire.message_id import offset_message_id, pack_host
from trioha.wire.names import METADATA_TOPIC

UNIQUE = "7F0000010001AABBCCDD000000010002"
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SEGMENT_BYTES = 64 << 10


def ask(
    *stores: Path, key: str = "", group: str | None = None, message_id: str = UNIQUE
) -> Explanation:
    """The answer about one message."""
    inputs = open_inputs([str(store) for store in stores])
    with open_case(inputs) as case:
        return explain_message(case, key or message_id, by_id=not key, group=group)


def ask_group(store: Path, group: str, at_ms: int) -> Explanation:
    with open_case(open_inputs([str(store)])) as case:
        return explain_group(case, group, at_ms)


def codes(answer: Explanation) -> list[str]:
    return [verdict.code for verdict in answer.verdicts]


def said(answer: Explanation, code: str) -> str:
    """The text of the one verdict of this code."""
    (text,) = [verdict.text for verdict in answer.verdicts if verdict.code == code]
    return text


def fill(store: ToldStore, first_s: float, count: int = 5, topic: str = "orders") -> None:
    """Other messages of queue 0, one a second."""
    for i in range(count):
        store.put(topic, at_ms=at(first_s + i), unique_key=f"{round(first_s) + i:032X}")


def commit(root: Path, **offsets: int) -> None:
    """Write committed offsets of queue 0: group -> offset in topic orders."""
    table = {f"orders@{group}": {"0": offset} for group, offset in offsets.items()}
    write_config(root, "consumerOffset.json", {"offsetTable": table})


def sample(diary: Diary, at_s: float, changed: dict[int, int], left: int = 0) -> None:
    """Tell the queues of topic orders whose offset has changed, as a broker samples them."""
    diary.tell(
        at_s,
        "consumer_lag",
        topic="orders",
        group="g",
        lag=0,
        consumer_offset=0,
        broker_offset=0,
        queues=2,
        worst_queue=0,
        offsets=[number for entry in changed.items() for number in entry],
        offsets_left=left,
    )


def set_back(diary: Diary, at_s: float, queue_id: int, before: int, after: int) -> None:
    queues = [queue_id, before, after]
    diary.tell(at_s, "progress_set_back", topic="orders", group="g", queues=queues, others=0)


def lag(diary: Diary, at_s: float, offset: int, end: int, queues: int = 1) -> None:
    diary.tell(
        at_s,
        "consumer_lag",
        topic="orders",
        group="g",
        lag=end - offset,
        consumer_offset=offset,
        broker_offset=end,
        queues=queues,
        worst_queue=0,
    )


def cut_off(store: ToldStore, first: Told, wall_ms: int) -> Path:
    """The bytes from a record to the end of a store's log, kept as a cut of it."""
    end = store.told[-1].phy_offset + store.told[-1].size

    def read(offset: int, size_max: int) -> memoryview:
        data = (store.root / "commitlog" / f"{0:020d}").read_bytes()
        return memoryview(data)[offset : offset + size_max]

    return save_cut(
        store.root,
        read,
        first.phy_offset,
        end,
        segment_bytes=SEGMENT_BYTES,
        wall_ms=wall_ms,
        about={},
    ).path


def test_a_message_that_was_never_sent(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        fill(store, 0)
    answer = ask(store.root)
    assert not answer.is_found
    assert codes(answer) == ["not stored"]
    assert [line.wall_ms for line in answer.timeline] == [at(0), at(4)]


def test_a_message_that_was_deleted_with_an_old_segment(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        fill(store, 0, 600)
    (store.root / "commitlog" / f"{0:020d}").unlink()
    first = offset_message_id(HOST, store.told[0].phy_offset)
    answer = ask(store.root, message_id=first)
    assert codes(answer) == ["not stored", "deleted"]
    assert f"the id says offset 0, the log begins at {SEGMENT_BYTES}" in said(answer, "deleted")
    elsewhere = offset_message_id(pack_host("10.9.9.9", 10911), 0)
    assert codes(ask(store.root, message_id=elsewhere)) == ["not stored"]


def test_a_message_that_was_sent_and_not_consumed(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        fill(store, 0)
        sent = store.put("orders", at_ms=at(5), unique_key=UNIQUE)
    commit(store.root, g=sent.queue_offset, done=sent.queue_offset + 1)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "consumed", "not consumed"]
    assert "Group done has consumed it" in said(answer, "consumed")
    assert "Group g has not consumed it" in said(answer, "not consumed")
    assert codes(ask(store.root, group="g")) == ["stored", "not consumed"]
    assert codes(ask(store.root, group="other")) == ["stored", "no offset"]


def test_a_message_that_was_consumed_late_because_of_an_outage(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        fill(store, 10)
        sent = store.put("orders", at_ms=at(20), unique_key=UNIQUE)
    commit(store.root, g=sent.queue_offset + 1)
    diary = Diary(store.root, "b:0")
    diary.start(0, "ASYNC_MASTER")
    lag(diary, 25, sent.queue_offset, sent.queue_offset + 1)
    diary.stop(26)
    diary.start(80, "ASYNC_MASTER")
    lag(diary, 90, sent.queue_offset, sent.queue_offset + 1)
    lag(diary, 100, sent.queue_offset + 1, sent.queue_offset + 1)
    diary.close()
    answer = ask(store.root)
    assert codes(answer) == ["stored", "consumed", "consumed late", "outage"]
    assert "1.2 min after it was stored" in said(answer, "consumed late")
    assert "between its storing and its consumption by g" in said(answer, "outage")
    assert (at(100), "journal") in [(line.wall_ms, line.source) for line in answer.timeline]
    assert any("no writable master" in line.text for line in answer.timeline)


def test_a_message_that_a_group_consumed_at_once_is_not_late(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        sent = store.put("orders", at_ms=at(20), unique_key=UNIQUE)
    commit(store.root, g=sent.queue_offset + 1)
    diary = Diary(store.root, "b:0")
    diary.start(0, "ASYNC_MASTER")
    lag(diary, 29, 1, 1)
    diary.close()
    assert codes(ask(store.root)) == ["stored", "consumed"]


def test_a_sample_of_another_queue_proves_nothing(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        sent = store.put("orders", 1, at_ms=at(20), unique_key=UNIQUE)
    table = {"offsetTable": {"orders@g": {"0": 0, "1": sent.queue_offset + 1}}}
    write_config(store.root, "consumerOffset.json", table)
    diary = Diary(store.root, "b:0")
    diary.start(0, "ASYNC_MASTER")
    lag(diary, 10, 5, 5)
    lag(diary, 30, 5, 5)
    lag(diary, 50, 6, 6, queues=2)
    diary.close()
    answer = ask(store.root)
    assert codes(answer) == ["stored", "consumed"]
    assert "by 2025-11-20 12:00:50Z" in said(answer, "consumed")


def test_a_message_that_a_group_skipped(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        sent = store.put("orders", at_ms=at(20), unique_key=UNIQUE)
    commit(store.root, g=sent.queue_offset + 9)
    diary = Diary(store.root, "b:0")
    diary.start(0, "ASYNC_MASTER")
    lag(diary, 10, sent.queue_offset + 9, sent.queue_offset + 9)
    diary.close()
    assert codes(ask(store.root)) == ["stored", "skipped"]


def test_a_message_that_was_stored_late_because_of_an_outage(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        fill(store, 10)
        store.put("orders", at_ms=at(62), latency_ms=30_000, unique_key=UNIQUE)
    diary = Diary(store.root, "b:0")
    diary.start(0, "ASYNC_MASTER")
    diary.stop(30)
    diary.start(60, "ASYNC_MASTER")
    diary.close()
    answer = ask(store.root)
    assert codes(answer)[:3] == ["stored", "stored late", "outage"]
    assert "30.0 s after its producer made it" in said(answer, "stored late")
    assert "before it was stored" in said(answer, "outage")


def test_a_message_that_its_producer_sent_twice(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        store.put("orders", 0, at_ms=at(5), unique_key=UNIQUE)
        fill(store, 6, 2)
        store.put("orders", 1, at_ms=at(8), latency_ms=3003, unique_key=UNIQUE)
    slave = copy_store(store.root, tmp_path / "b")
    answer = ask(store.root, slave)
    assert codes(answer) == ["stored", "stored twice", "in every replica", "no offset"]
    assert "stored 2 times in topic orders" in said(answer, "stored twice")
    assert "3.0 s apart" in said(answer, "stored twice")


def put_retries(store: ToldStore, count: int) -> None:
    """A message that group g sends back so many times, ten seconds apart."""
    store.put("orders", at_ms=at(5), unique_key=UNIQUE)
    for times in range(1, count + 1):
        waits: dict[str, Any] = {"DELAY": "3", "REAL_TOPIC": "%RETRY%g", "RETRY_TOPIC": "orders"}
        for topic, at_s in (("SCHEDULE_TOPIC_XXXX", times * 20), ("%RETRY%g", times * 20 + 10)):
            store.put(topic, at_ms=at(at_s), unique_key=UNIQUE, reconsume_times=times, **waits)


@pytest.mark.parametrize(("offset", "expected"), [(2, "consumed"), (1, "in retry")])
def test_a_message_that_came_again_through_its_retry_topic(
    tmp_path: Path, offset: int, expected: str
) -> None:
    with ToldStore(tmp_path / "a") as store:
        put_retries(store, 2)
    table = {"offsetTable": {"orders@g": {"0": 1}, "%RETRY%g@g": {"0": offset}}}
    write_config(store.root, "consumerOffset.json", table)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "retried", expected]
    assert "it came again 2 times through %RETRY%g" in said(answer, "retried")


def test_a_message_that_waits_for_its_first_redelivery(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        put_retries(store, 1)
    log = store.root / "commitlog" / f"{0:020d}"
    retry = store.told[-1]
    data = bytearray(log.read_bytes())
    data[retry.phy_offset :] = bytes(len(data) - retry.phy_offset)
    log.write_bytes(data)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "in retry"]
    assert "waits in topic SCHEDULE_TOPIC_XXXX" in said(answer, "in retry")


def test_a_message_in_the_dead_letter_queue(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        put_retries(store, 2)
        store.put(
            "%DLQ%g", at_ms=at(70), unique_key=UNIQUE, reconsume_times=2, RETRY_TOPIC="orders"
        )
    commit(store.root, g=1)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "retried", "dead letter"]
    assert "after 2 redeliveries that failed" in said(answer, "dead letter")


def test_a_message_that_was_delayed_by_its_level(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        store.put(
            "SCHEDULE_TOPIC_XXXX", 2, at_ms=at(5), unique_key=UNIQUE, DELAY="3", REAL_TOPIC="orders"
        )
        fill(store, 6, 2)
    waiting = ask(store.root)
    assert codes(waiting) == ["stored", "delayed"]
    assert "has not come into topic orders: it is due 2025-11-20 12:00:15Z" in said(
        waiting, "delayed"
    )
    with ToldStore(tmp_path / "b") as store:
        store.put(
            "SCHEDULE_TOPIC_XXXX", 2, at_ms=at(5), unique_key=UNIQUE, DELAY="3", REAL_TOPIC="orders"
        )
        store.put("orders", at_ms=at(20), latency_ms=15_003, unique_key=UNIQUE, DELAY="3")
    arrived = ask(store.root)
    assert codes(arrived) == ["stored", "delivered after delay", "no offset"]
    assert "15.0 s after it was stored, 5.0 s later than it was due" in said(
        arrived, "delivered after delay"
    )


def put_half(store: ToldStore, checks: int = 0) -> Told:
    prepared: dict[str, Any] = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TRAN_MSG": "true"}
    half = store.put(HALF, at_ms=at(5), unique_key=UNIQUE, **prepared)
    for times in range(1, checks + 1):
        half = store.put(
            HALF,
            at_ms=at(5 + 60 * times),
            latency_ms=60_000 * times + 3,
            unique_key=UNIQUE,
            TRANSACTION_CHECK_TIMES=str(times),
            **prepared,
        )
    return half


def test_a_half_message_that_was_never_committed(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        put_half(store, checks=2)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "half message"]
    assert "the broker asked the producer 2 times" in said(answer, "half message")


@pytest.mark.parametrize("form", ["{}", "0,{},", "{}-copied"])
def test_a_transaction_that_was_rolled_back(tmp_path: Path, form: str) -> None:
    with ToldStore(tmp_path / "a") as store:
        store.put(HALF, at_ms=at(1), unique_key=f"{7:032X}", REAL_TOPIC="orders")
        half = put_half(store)
        is_copied = form.endswith("-copied")
        body = form.removesuffix("-copied").format(half.queue_offset).encode()
        more: dict[str, Any] = {"COPIED": "1"} if is_copied else {}
        store.put(OP, at_ms=at(9), tags="d", body=body, **more)
    answer = ask(store.root)
    # An op record that ends a copy leaves the transaction open.
    assert codes(answer) == ["stored", "half message" if is_copied else "rolled back"]


def test_a_transaction_that_was_committed(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        put_half(store)
        store.put(
            "orders",
            at_ms=at(9),
            latency_ms=4003,
            unique_key=UNIQUE,
            sys_flag=SysFlag.TRANSACTION_COMMIT,
        )
        store.put(OP, at_ms=at(9), tags="d", body=b"0")
    commit(store.root, g=1)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "committed", "consumed"]
    assert "4.0 s after the half message" in said(answer, "committed")


def fail_over(tmp_path: Path) -> tuple[ToldStore, ToldStore, Told]:
    """Return a store, its slave, now master, that lacks five records, and the first of these."""
    common = [("orders", i, f"{i:032X}") for i in range(5)]
    with ToldStore(tmp_path / "old") as old:
        for topic, at_s, unique in common:
            old.put(topic, at_ms=at(at_s), unique_key=unique)
        lost = old.put("orders", at_ms=at(10), unique_key=UNIQUE, body=b"x" * 200)
        fill(old, 11, 4)
    with ToldStore(tmp_path / "new") as new:
        for topic, at_s, unique in common:
            new.put(topic, at_ms=at(at_s), unique_key=unique)
        fill(new, 30, 20)
    first = EpochRecord(1, 0, 0, b"a" * 8, sync=True, began_wall_ms=at(0))
    write_epochs(old.root, first)
    second = EpochRecord(2, lost.phy_offset, 1, b"b" * 8, sync=True, began_wall_ms=at(25))
    write_epochs(new.root, first, second)
    return old, new, lost


def write_epochs(root: Path, *records: EpochRecord) -> None:
    """Write the file `epochs` as a node does."""
    file = TwoSlotFile(root / EPOCHS)
    Mastership(0, file.save, file.payload).adopt(EpochHistory(records))


def test_a_message_on_the_old_master_alone(tmp_path: Path) -> None:
    old, new, lost = fail_over(tmp_path)
    answer = ask(old.root, new.root)
    assert codes(answer)[:2] == ["stored", "lost at a failover"]
    text = said(answer, "lost at a failover")
    assert f"Only {old.root} holds the record at {lost.phy_offset}" in text
    assert f"in epoch 2, from offset {lost.phy_offset}" in text


def test_a_message_that_was_cut_off_at_a_failover(tmp_path: Path) -> None:
    old, new, lost = fail_over(tmp_path)
    kept = cut_off(old, lost, at(60))
    follow(old, new)
    answer = ask(old.root, new.root)
    assert codes(answer) == ["stored", "cut"]
    assert f"`trioha ha recover {kept}` sends it again" in said(answer, "cut")
    assert not any("other replicas" in text for text in answer.unknown)
    assert any(
        line.wall_ms == at(60) and "gave up its log" in line.text for line in answer.timeline
    )


def follow(old: ToldStore, new: ToldStore) -> None:
    """Replace the old master's log by the new master's."""
    log = f"commitlog/{0:020d}"
    (old.root / log).write_bytes((new.root / log).read_bytes())


def test_a_cut_message_that_was_sent_again(tmp_path: Path) -> None:
    old, new, lost = fail_over(tmp_path)
    cut_off(old, lost, at(60))
    with ToldStore(new.root) as again:
        again.put("orders", at_ms=at(90), latency_ms=80_003, unique_key=UNIQUE)
    follow(old, again)
    answer = ask(old.root, new.root)
    assert codes(answer)[:2] == ["stored", "cut"]
    assert "It was stored again 2025-11-20 12:01:30Z" in said(answer, "cut")
    assert "stored twice" not in codes(answer)


def test_a_message_that_a_slave_has_yet_to_receive(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        fill(store, 0)
    slave = copy_store(store.root, tmp_path / "b")
    with ToldStore(store.root) as store:
        store.put("orders", at_ms=at(10), unique_key=UNIQUE)
    answer = ask(store.root, slave)
    assert codes(answer)[:2] == ["stored", "not in a replica"]
    assert f"{slave} does not hold the record" in said(answer, "not in a replica")


def test_a_store_of_another_broker_is_not_blamed(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        store.put("orders", at_ms=at(10), unique_key=UNIQUE)
    with ToldStore(tmp_path / "c") as other:
        fill(other, 100)
    answer = ask(store.root, other.root)
    assert codes(answer) == ["stored", "no offset"]
    assert any("other replicas" in text for text in answer.unknown)


def test_a_key_of_several_messages(tmp_path: Path) -> None:
    names = [f"{i:032X}" for i in range(3)]
    with ToldStore(tmp_path / "a") as store:
        for i, name in enumerate(names):
            store.put("orders", at_ms=at(i), unique_key=name, keys=["order-1"])
    commit(store.root, g=2)
    answer = ask(store.root, key="order-1")
    assert codes(answer)[0] == "several messages"
    assert answer.verdicts[0].text.startswith("3 messages have the key order-1")
    told = [(each.code, each.text.split(":")[0]) for each in answer.verdicts[1:]]
    assert told == [
        ("stored", names[0]),
        ("consumed", names[0]),
        ("stored", names[1]),
        ("consumed", names[1]),
        ("stored", names[2]),
        ("not consumed", names[2]),
    ]


def group_store(root: Path) -> ToldStore:
    """Group g: it consumed 3 of 8 messages before its broker was out from 20 to 40 s."""
    with ToldStore(root) as store:
        fill(store, 10, 8)
        store.put("%RETRY%g", at_ms=at(18), unique_key=UNIQUE)
    commit(root, g=3)
    diary = Diary(root, "b:0")
    diary.start(0, "ASYNC_MASTER")
    lag(diary, 15, 2, 6)
    diary.stop(20)
    diary.start(40, "ASYNC_MASTER")
    lag(diary, 50, 3, 8)
    diary.close()
    return store


def test_a_group_at_a_time(tmp_path: Path) -> None:
    answer = ask_group(group_store(tmp_path / "a").root, "g", at(30))
    assert codes(answer) == ["stored until then", "lag", "not consumed", "retried", "outage"]
    assert "had 8 messages until then" in said(answer, "stored until then")
    assert "lacked 4 messages at the last sample, 15.0 s earlier" in said(answer, "lag")
    assert "5 messages of topic orders" in said(answer, "not consumed")
    assert "oldest was stored 2025-11-20 12:00:13Z" in said(answer, "not consumed")
    earlier = ask_group(tmp_path / "a", "g", at(12))
    assert codes(earlier) == ["stored until then", "consumed"]


@pytest.mark.parametrize(
    ("group", "at_s", "sentence"),
    [
        ("gg", 30, "no store knows the group gg"),
        ("g", -60, "lies outside of these files, which reach from 2025-11-20 12:00:00Z"),
        ("g", 3600, "to 2025-11-20 12:00:50Z; name a time in between"),
    ],
)
def test_a_group_or_time_that_is_not_there(
    tmp_path: Path, group: str, at_s: float, sentence: str
) -> None:
    store = group_store(tmp_path / "a")
    with pytest.raises(AnalysisError, match=sentence):
        ask_group(store.root, group, at(at_s))


def test_the_evidence_is_in_the_order_of_time(tmp_path: Path) -> None:
    store = group_store(tmp_path / "a")
    answers: Sequence[Explanation] = [
        ask_group(store.root, "g", at(30)),
        ask(store.root, message_id=store.told[0].unique_key),
    ]
    for answer in answers:
        times = [line.wall_ms for line in answer.timeline]
        assert times
        assert times == sorted(times)
        assert min(times) >= BEGIN_MS - 10


def sampled_store(root: Path, at_s: float = 30) -> tuple[ToldStore, Diary, int]:
    """A master with ten messages and one of interest, and its journal; its queue offset."""
    with ToldStore(root) as store:
        fill(store, 10, 10)
        sent = store.put("orders", at_ms=at(at_s), unique_key=UNIQUE)
        fill(store, 40, 10)
    diary = Diary(root, "b:0")
    diary.start(0, "ASYNC_MASTER")
    return store, diary, sent.queue_offset


def test_samples_of_one_queue_among_several_tell_when_a_group_passed(tmp_path: Path) -> None:
    store, diary, offset = sampled_store(tmp_path / "a")
    commit(store.root, g=offset + 5)
    sample(diary, 15, {0: 2, 1: 70})
    sample(diary, 35, {0: offset})
    sample(diary, 55, {1: 75})  # queue 0 has not moved
    sample(diary, 65, {0: offset + 1})
    sample(diary, 75, {0: offset + 5})
    diary.close()
    answer = ask(store.root)
    assert codes(answer) == ["stored", "consumed", "consumed late"]
    assert "between 2025-11-20 12:00:55Z and 2025-11-20 12:01:05Z" in said(answer, "consumed")
    assert "25.0 s after it was stored it had not" in said(answer, "consumed late")
    assert (at(65), "b:0") in [(line.wall_ms, line.source) for line in answer.timeline]


def test_a_sample_that_lacks_queues_proves_nothing_for_them(tmp_path: Path) -> None:
    store, diary, offset = sampled_store(tmp_path / "a")
    commit(store.root, g=offset + 1)
    sample(diary, 15, {0: 2, 1: 70})
    sample(diary, 45, {1: 75}, left=1)
    sample(diary, 55, {0: offset + 1})
    diary.close()
    answer = ask(store.root)
    assert codes(answer) == ["stored", "consumed"]
    assert "it, by 2025-11-20 12:00:55Z" in said(answer, "consumed")


def test_a_restart_begins_the_samples_anew(tmp_path: Path) -> None:
    store, diary, offset = sampled_store(tmp_path / "a", at_s=50)
    commit(store.root, g=offset + 1)
    sample(diary, 15, {0: 2, 1: 70})
    diary.start(20, "ASYNC_MASTER")
    sample(diary, 60, {1: 70}, left=1)
    sample(diary, 65, {1: 71})
    sample(diary, 75, {0: offset + 1})
    diary.close()
    answer = ask(store.root)
    assert "it, by 2025-11-20 12:01:15Z" in said(answer, "consumed")


def test_a_message_that_came_twice_because_the_group_was_set_back(tmp_path: Path) -> None:
    store, diary, offset = sampled_store(tmp_path / "a")
    commit(store.root, g=offset + 5)
    sample(diary, 35, {0: offset + 1})
    diary.tell(
        42, "progress_reset", topic="orders", group="g", queues=[0, 3], members=1, peer="10.1.1.1:9"
    )
    # It was passed again before the next sample: only the move itself tells.
    set_back(diary, 45, 0, offset + 1, 3)
    sample(diary, 45, {0: offset + 4})
    diary.close()
    answer = ask(store.root)
    assert codes(answer) == ["stored", "consumed", "set back"]
    text = said(answer, "set back")
    assert "was set back before it by 2025-11-20 12:00:45Z: it receives the message again" in text
    assert "An operator (10.1.1.1:9) asked for it" in text


def test_a_message_that_a_group_has_yet_to_receive_again(tmp_path: Path) -> None:
    store, diary, offset = sampled_store(tmp_path / "a")
    commit(store.root, g=3)
    sample(diary, 35, {0: offset + 1})
    sample(diary, 45, {0: 3})
    diary.close()
    answer = ask(store.root)
    assert codes(answer) == ["stored", "not consumed", "set back"]
    assert "and has not passed it since" in said(answer, "set back")


def test_a_message_that_a_reset_went_over(tmp_path: Path) -> None:
    store, diary, offset = sampled_store(tmp_path / "a")
    commit(store.root, g=offset + 9)
    sample(diary, 35, {0: 2})
    diary.tell(
        52,
        "progress_reset",
        topic="orders",
        group="g",
        queues=[0, offset + 9, 1, 4],
        members=1,
        peer="10.1.1.1:9",
    )
    sample(diary, 55, {0: offset + 9})
    diary.close()
    answer = ask(store.root)
    assert codes(answer) == ["stored", "consumed", "skipped by a reset"]
    text = said(answer, "skipped by a reset")
    assert f"reset group g 2025-11-20 12:00:52Z to offset {offset + 9}, beyond it" in text


def test_samples_go_on_with_the_new_master(tmp_path: Path) -> None:
    store, diary, offset = sampled_store(tmp_path / "a")
    commit(store.root, g=offset + 1)
    sample(diary, 35, {0: offset})
    diary.close()
    other = Diary(copy_store(store.root, tmp_path / "b"), "b:1")
    for old in other.directory.iterdir():
        old.unlink()
    other.start(0, "SLAVE", ha_listen="127.0.0.1:10922")
    # A sample of a slave is as old as its copy of the offsets.
    sample(other, 36, {0: offset - 5})
    other.tell(50, "role", role="ASYNC_MASTER", broker_id=0)
    sample(other, 56, {1: 3})
    sample(other, 60, {0: offset + 1})
    other.close()
    answer = ask(store.root, other.directory.parent)
    assert "between 2025-11-20 12:00:56Z and 2025-11-20 12:01:00Z" in said(answer, "consumed")


def test_a_group_at_a_time_by_its_offsets(tmp_path: Path) -> None:
    store, diary, offset = sampled_store(tmp_path / "a")
    commit(store.root, g=offset + 1)
    sample(diary, 15, {0: 2, 1: 70})
    sample(diary, 35, {0: 7})
    sample(diary, 44, {0: 8})
    set_back(diary, 64, 0, 9, 5)
    sample(diary, 64, {0: 5})
    diary.close()
    answer = ask_group(store.root, "g", at(39))
    # Eleven messages were stored until then.
    assert "lacked between 3 and 4 messages then: its offsets were sampled 4.0 s earlier" in said(
        answer, "lag"
    )
    assert "from offset 9 to 5 by 2025-11-20 12:01:04Z: it received 4 messages again" in said(
        answer, "set back"
    )


def put_bodies(store: ToldStore, at_s: float, kind: int, *ops: MetadataOp) -> None:
    """Changes of a group's tables, as its leader appends them to the log."""
    for put in messages_of(kind, encode_ops(list(ops)), 64, at(at_s)):
        store.put(METADATA_TOPIC, 0, at_ms=at(at_s), body=bytes(put.body))


def test_a_groups_log_tells_each_commit(tmp_path: Path) -> None:
    mine, version = "orders@g", DataVersion(1, 1)
    with ToldStore(tmp_path / "a") as store:
        topics = {"orders": TopicConfig("orders")}
        before = Snapshot(version, topics, version, {}, {mine: {0: 0, 1: 4}}, DelaySet({}, 0))
        put_bodies(store, 1, SNAPSHOT, before, QueueEnds({}, {}))
        fill(store, 2, 5)
        sent = store.put("orders", at_ms=at(20), unique_key=UNIQUE)
        commits = [(21, 5), (33.5, 6), (40, 2), (50, 6)]
        for at_s, offset in commits:
            put_bodies(store, at_s, CHANGES, OffsetsSet({mine: {0: offset}, "orders@h": {0: 1}}))
        put_bodies(store, 51, CHANGES, ProgressGone("h"))
    assert sent.queue_offset == 5
    commit(store.root, g=6)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "consumed", "consumed late", "set back"]
    assert "consumed it 2025-11-20 12:00:33Z:" in said(answer, "consumed")
    assert "13.5 s after it was stored" in said(answer, "consumed late")
    assert "by 2025-11-20 12:00:40Z" in said(answer, "set back")
    assert "passed it again 2025-11-20 12:00:50Z" in said(answer, "set back")
    then = ask_group(store.root, "g", at(39))
    assert "lacked 0 messages then: the log tells each commit" in said(then, "lag")
    assert "lacked 4 messages then" in said(ask_group(store.root, "g", at(45)), "lag")


TIMER = "rmq_sys_wheel_timer"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def put_timer(store: ToldStore, at_s: float, due_s: float, **properties: str) -> Told:
    """A message that waits for its time, as a broker stores it."""
    asked: dict[str, Any] = {
        "TIMER_DELIVER_MS": str(at(due_s)),
        "TIMER_OUT_MS": str(at(due_s) - 1000),
        "REAL_TOPIC": "orders",
        "REAL_QID": "0",
    }
    return store.put(TIMER, 0, at_ms=at(at_s), unique_key=UNIQUE, **asked | properties)


def test_a_timer_message_that_waits(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        put_timer(store, 5, 65)
        fill(store, 6, 2)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "delayed"]
    assert "as waits (delayed) for topic orders" in said(answer, "stored")
    assert "it is due 2025-11-20 12:01:05Z. The log ends 2025-11-20 12:00:07Z" in said(
        answer, "delayed"
    )


@pytest.mark.parametrize(("came_s", "late"), [(65, ""), (75, "10.0 s later than it was due")])
def test_a_timer_message_that_was_rolled_and_delivered(
    tmp_path: Path, came_s: float, late: str
) -> None:
    with ToldStore(tmp_path / "a") as store:
        put_timer(store, 5, 65)
        put_timer(store, 35, 65, TIMER_ROLL_TIMES="1")
        stays: dict[str, Any] = {"TIMER_OUT_MS": str(at(64)), "TIMER_DEQUEUE_MS": str(at(came_s))}
        store.put(
            "orders",
            at_ms=at(came_s),
            latency_ms=round(1000 * (came_s - 5)),
            unique_key=UNIQUE,
            **stays,
        )
    commit(store.root, g=1)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "delivered after delay", "consumed"]
    text = said(answer, "delivered after delay")
    assert "a timer" in text
    assert (late in text) if late else ("later than" not in text)


def test_a_timer_message_that_was_recalled(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        put_timer(store, 5, 65)
        put_timer(store, 20, 65, TIMER_DEL_UNIQKEY=f"orders+{UNIQUE}", TAGS="_RECALL_TAG_")
        fill(store, 70, 2)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "recalled"]
    assert "took it back 2025-11-20 12:00:20Z" in said(answer, "recalled")


def put_pop(store: ToldStore, at_s: float, sent: Told, group: str = "g") -> dict[str, Any]:
    """A checkpoint as a broker stores it: one message before it, and it; a minute invisible."""
    key: dict[str, Any] = {"c": group, "pt": at(at_s), "q": 0, "so": sent.queue_offset - 1}
    key |= {"t": "orders", "bn": "broker-a"}
    fields = key | {"bm": 0, "d": [0, 1], "it": 60_000, "n": 2}
    store.put(REVIVE, 0, at_ms=at(at_s), body=fastjson.dumps(fields), tags="ck")
    return key


@pytest.mark.parametrize("form", ["ack", "bAck", ""])
def test_a_message_that_a_group_popped(tmp_path: Path, form: str) -> None:
    with ToldStore(tmp_path / "a") as store:
        fill(store, 0, 2)
        sent = store.put("orders", at_ms=at(5), unique_key=UNIQUE)
        put_pop(store, 6, sent, group="gg")
        key = put_pop(store, 7, sent)
        offset = sent.queue_offset
        acknowledged: dict[str, dict[str, Any]] = {
            "ack": {"ao": offset},
            "bAck": {"ao": -1, "aol": [offset - 1, offset]},
        }
        # Another message of the same pop.
        store.put(REVIVE, 0, at_ms=at(8), body=fastjson.dumps(key | {"ao": offset - 1}), tags="ack")
        if form:
            body = fastjson.dumps(key | acknowledged[form])
            store.put(REVIVE, 0, at_ms=at(9), body=body, tags=form)
    commit(store.root, g=sent.queue_offset + bool(form))
    answer = ask(store.root, group="g")
    # The offset of a group that pops says what was handed out.
    assert codes(answer) == ["stored", "popped"]
    text = said(answer, "popped")
    assert "popped it 1 time, the last time 2025-11-20 12:00:07Z" in text
    if form:
        assert "acknowledged it 2025-11-20 12:00:09Z" in text
    else:
        assert "by 2025-11-20 12:01:07Z, and had not acknowledged it when the log ends" in text


@pytest.mark.parametrize("retry", ["%RETRY%g_orders", "%RETRY%g+orders"])
def test_a_popped_message_that_came_again(tmp_path: Path, retry: str) -> None:
    with ToldStore(tmp_path / "a") as store:
        sent = store.put("orders", at_ms=at(5), unique_key=UNIQUE)
        put_pop(store, 7, sent)
        store.put(retry, at_ms=at(68), unique_key=UNIQUE, reconsume_times=1, RETRY_TOPIC="orders")
    table = {"orders@g": {"0": 1}, f"{retry}@g": {"0": 1}}
    write_config(store.root, "consumerOffset.json", {"offsetTable": table})
    answer = ask(store.root)
    assert codes(answer) == ["stored", "popped", "retried", "consumed"]
    text = said(answer, "retried")
    assert f"Group g did not acknowledge it in time: it came again 1 time through {retry}" in text


def put_java_pop(
    store: ToldStore, at_s: float, tag: str, due_s: float, fields: dict[str, Any]
) -> None:
    """A checkpoint or an acknowledgement as Java's 5.3 broker stores it: with a timer, which brings
    it into the revive log when it is due."""
    timer: dict[str, Any] = {"TIMER_OUT_MS": str(at(due_s)), "REAL_TOPIC": REVIVE}
    store.put(TIMER, 0, at_ms=at(at_s), body=fastjson.dumps(fields), tags=tag, **timer)


def come_due(store: ToldStore, at_s: float, tag: str, fields: dict[str, Any]) -> None:
    store.put(REVIVE, 0, at_ms=at(at_s), body=fastjson.dumps(fields), tags=tag, REAL_TOPIC=REVIVE)


@pytest.mark.parametrize("is_due", [False, True])
def test_pops_that_wait_in_the_timer_wheel(tmp_path: Path, is_due: bool) -> None:
    with ToldStore(tmp_path / "a") as store:
        sent = store.put("orders", at_ms=at(5), unique_key=UNIQUE)
        key = {"c": "g", "pt": at(7), "q": 0, "so": sent.queue_offset, "t": "orders"}
        checkpoint, acknowledged = key | {"it": 60_000, "n": 1}, key | {"ao": sent.queue_offset}
        put_java_pop(store, 7, "ck", 66, checkpoint)
        put_java_pop(store, 9, "ack", 67, acknowledged)
        if is_due:
            come_due(store, 66, "ck", checkpoint)
            come_due(store, 67, "ack", acknowledged)
    commit(store.root, g=sent.queue_offset + 1)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "popped"]
    text = said(answer, "popped")
    assert "popped it 1 time, the last time 2025-11-20 12:00:07Z" in text
    assert "acknowledged it 2025-11-20 12:00:09Z" in text


@pytest.mark.parametrize("group", ["g", None])
def test_a_group_that_popped_and_has_committed_no_offset_yet(
    tmp_path: Path, group: str | None
) -> None:
    """Java's broker was killed before it wrote the offsets."""
    with ToldStore(tmp_path / "a") as store:
        sent = store.put("orders", at_ms=at(5), unique_key=UNIQUE)
        put_pop(store, 7, sent)
    assert codes(ask(store.root, group=group)) == ["stored", "popped"]
    assert codes(ask(store.root, group="another")) == ["stored", "no offset"]


def test_a_changed_invisible_time_is_no_second_pop(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        sent = store.put("orders", at_ms=at(5), unique_key=UNIQUE)
        first = put_pop(store, 7, sent)
        again = {"c": "g", "pt": at(9), "q": 0, "so": sent.queue_offset, "t": "orders"}
        changed = again | {"d": [0], "it": 600_000, "n": 1}
        store.put(REVIVE, 0, at_ms=at(9), body=fastjson.dumps(changed), tags="ck")
        ended = fastjson.dumps(first | {"ao": sent.queue_offset})
        store.put(REVIVE, 0, at_ms=at(9.001), body=ended, tags="ack")
    commit(store.root, g=sent.queue_offset + 1)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "popped"]
    text = said(answer, "popped")
    assert "popped it 1 time, the last time 2025-11-20 12:00:07Z" in text
    assert "changed its invisible time 1 time, the last time 2025-11-20 12:00:09Z" in text
    assert "by 2025-11-20 12:10:09Z, and had not acknowledged it when the log ends" in text


@pytest.mark.parametrize("retry", ["%RETRY%g_orders", "%RETRY%g+orders"])
def test_a_popped_message_that_a_java_broker_delivered_again(tmp_path: Path, retry: str) -> None:
    """The retry keeps the time of the first pop, and does not name the message's topic."""
    with ToldStore(tmp_path / "a") as store:
        sent = store.put("orders", at_ms=at(5), unique_key=UNIQUE)
        put_pop(store, 7, sent)
        properties: dict[str, Any] = {"1ST_POP_TIME": str(at(7))}
        store.put(retry, at_ms=at(68), unique_key=UNIQUE, reconsume_times=1, **properties)
        key = {"c": "g", "pt": at(70), "q": 0, "so": 0, "t": retry}
        checkpoint = fastjson.dumps(key | {"it": 60_000, "n": 1})
        store.put(REVIVE, 0, at_ms=at(70), body=checkpoint, tags="ck")
        store.put(REVIVE, 0, at_ms=at(71), body=fastjson.dumps(key | {"ao": 0}), tags="ack")
    commit(store.root, g=1)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "popped", "retried", "popped"]
    first, last = (verdict.text for verdict in answer.verdicts if verdict.code == "popped")
    assert "to acknowledge it by 2025-11-20 12:01:07Z, and did not acknowledge it" in first
    text = said(answer, "retried")
    assert f"Group g did not acknowledge it in time: it came again 1 time through {retry}" in text
    assert "Group g popped its redelivery 1 time" in last
    assert "acknowledged it 2025-11-20 12:01:11Z" in last


@pytest.mark.parametrize("is_redelivered", [False, True])
def test_pops_that_a_broker_keeps_in_rocksdb_are_not_known(
    tmp_path: Path, is_redelivered: bool
) -> None:
    with ToldStore(tmp_path / "a") as store:
        store.put("orders", at_ms=at(5), unique_key=UNIQUE)
        if is_redelivered:
            retry: dict[str, Any] = {"1ST_POP_TIME": str(at(7))}
            store.put("%RETRY%g_orders", at_ms=at(68), unique_key=UNIQUE, **retry)
    (store.root / "kvStore").mkdir()
    commit(store.root, g=1)
    answer = ask(store.root)
    assert codes(answer) == ["stored", "retried" if is_redelivered else "consumed"]
    assert any("keeps pops in RocksDB (kvStore)" in text for text in answer.unknown)


def test_a_transaction_that_the_broker_committed_twice(tmp_path: Path) -> None:
    with ToldStore(tmp_path / "a") as store:
        put_half(store, checks=1)
        for second in (70, 75):
            store.put(
                *("orders", 0),
                at_ms=at(second),
                unique_key=UNIQUE,
                sys_flag=SysFlag.TRANSACTION_COMMIT,
            )
    answer = ask(store.root)
    assert "stored twice" not in codes(answer)
    text = said(answer, "committed twice")
    assert "Its transaction was committed 2 times" in text
