"""Messages of a cut that are sent again, and messages that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from support.stores.small import SEGMENT_BYTES, crashing, message, open_store, small_config

from trioha.client import Message, MessageQueue, NoRoute, SendRefused, SendResult, SendStatus
from trioha.client.recover import RECOVERED, Fate, Tally, count_messages, recover
from trioha.store.cuts import Cut, save_cut
from trioha.wire.properties import Property


def properties(**pairs: str) -> bytes:
    return b"\x02".join(f"{name}\x01{value}".encode() for name, value in pairs.items())


def make_cut(root: Path, *puts: Any) -> Cut:
    store = open_store(small_config(root))
    with crashing(store):
        for put in puts:
            assert store.put_message(put, 1000).size
        return save_cut(
            root,
            store.read_log,
            0,
            store.max_phy_offset,
            segment_bytes=SEGMENT_BYTES,
            wall_ms=7,
            about={"broker_name": "broker-a"},
        )


@attrs.define(eq=False)
class Cluster:
    """Both what is asked and what is sent to."""

    present: set[str] = attrs.Factory(set)
    queues: set[int] = attrs.Factory(lambda: {0, 1})
    sent: list[tuple[Message, MessageQueue | None]] = attrs.Factory(list)
    refuses_after: int = 1 << 30

    async def messages_by_key(self, topic: str, key: str, **_: Any) -> list[str]:
        if topic == "Gone":
            raise NoRoute("topic Gone does not exist")
        return [key] if key in self.present else []

    async def route(self, topic: str) -> Cluster:
        if topic == "Gone":
            raise NoRoute("topic Gone does not exist")
        return self

    @property
    def write_queues(self) -> list[MessageQueue]:
        return [MessageQueue("T", "broker-a", number) for number in self.queues]

    async def send(self, message: Message, *, queue: MessageQueue | None) -> SendResult:
        if len(self.sent) >= self.refuses_after:
            raise SendRefused(14, "no", "broker-a")
        self.sent.append((message, queue))
        unique_key = message.properties.get(Property.UNIQ_KEY)
        if unique_key:
            self.present.add(unique_key)
        return SendResult(SendStatus.SEND_OK, "", "", queue or self.write_queues[0], 0)


async def recovered(cut: Cut, cluster: Any, *, dry_run: bool = False) -> Tally:
    tally = Tally()
    await recover(cut, cluster, cluster, tally, dry_run=dry_run)
    return tally


def keyed(key: str, body: bytes = b"body", queue_id: int = 0, **more: str) -> Any:
    return message(body, queue_id=queue_id, properties=properties(UNIQ_KEY=key, **more))


async def test_a_message_goes_out_as_it_came_in_and_says_where_it_was(tmp_path: Path) -> None:
    put = message(
        b"payload",
        queue_id=1,
        tags="blue",
        keys=("k1", "k2"),
        properties=properties(UNIQ_KEY="U1", color="red", CLUSTER="C", MSG_REGION="R", WAIT="true"),
    )
    cut = make_cut(tmp_path, put)
    cluster = Cluster()
    tally = await recovered(cut, cluster)
    ((sent, queue),) = cluster.sent
    assert (sent.topic, sent.body, queue) == ("T", b"payload", MessageQueue("T", "broker-a", 1))
    assert dict(sent.properties) == {
        "UNIQ_KEY": "U1",
        "color": "red",
        "TAGS": "blue",
        "KEYS": "k1 k2",
        RECOVERED: f"{cut.path.name}@0",
    }
    assert (tally.counts[Fate.SENT], tally.statuses) == (1, {"SEND_OK": 1})


async def test_order_in_a_queue_is_kept(tmp_path: Path) -> None:
    cluster = Cluster()
    await recovered(make_cut(tmp_path, *(keyed(f"U{number}") for number in range(9))), cluster)
    assert [sent.properties["UNIQ_KEY"] for sent, _ in cluster.sent] == [f"U{n}" for n in range(9)]


async def test_what_the_cluster_holds_is_left_out_so_it_may_be_begun_again(tmp_path: Path) -> None:
    cut = make_cut(tmp_path, *(keyed(f"U{number}") for number in range(9)))
    cluster = Cluster(present={"U2"}, refuses_after=4)
    with pytest.raises(SendRefused):
        await recovered(cut, cluster)
    cluster.refuses_after = 1 << 30
    tally = await recovered(cut, cluster)
    assert (tally.counts[Fate.SENT], tally.counts[Fate.PRESENT]) == (4, 5)
    keys = [sent.properties["UNIQ_KEY"] for sent, _ in cluster.sent]
    assert sorted(keys) == [f"U{number}" for number in range(9) if number != 2]


async def test_a_dry_run_sends_nothing_and_counts(tmp_path: Path) -> None:
    cluster = Cluster(present={"U0"})
    tally = await recovered(make_cut(tmp_path, keyed("U0"), keyed("U1")), cluster, dry_run=True)
    assert cluster.sent == []
    assert (tally.counts[Fate.SENT], tally.counts[Fate.PRESENT]) == (1, 1)
    assert tally.topics == {"T": 1}


async def test_half_transactions_are_left_out_and_committed_ones_sent(tmp_path: Path) -> None:
    puts = [message(b"half", sys_flag=0x4), message(b"rolled back", sys_flag=0xC)]
    puts.append(message(b"committed", sys_flag=0x8))
    cluster = Cluster()
    tally = await recovered(make_cut(tmp_path, *puts), cluster)
    assert [(sent.body, sent.sys_flag) for sent, _ in cluster.sent] == [(b"committed", 0)]
    assert tally.counts[Fate.UNDECIDED] == 2


async def test_a_compressed_body_stays_as_it_is(tmp_path: Path) -> None:
    cluster = Cluster()
    await recovered(make_cut(tmp_path, message(b"\x78\x9c", sys_flag=0x1)), cluster)
    assert cluster.sent[0][0].sys_flag == 0x1


async def test_a_delayed_message_waits_again_for_its_own_topic(tmp_path: Path) -> None:
    put = message(
        b"later",
        topic="SCHEDULE_TOPIC_XXXX",
        queue_id=2,
        properties=properties(REAL_TOPIC="T", REAL_QID="1", DELAY="3"),
    )
    cluster = Cluster()
    await recovered(make_cut(tmp_path, put), cluster)
    ((sent, queue),) = cluster.sent
    assert (sent.topic, queue) == ("T", MessageQueue("T", "broker-a", 1))
    assert sent.properties["DELAY"] == "3"
    assert "REAL_TOPIC" not in sent.properties


async def test_where_its_queue_or_topic_is_gone_it_goes_to_any_other(tmp_path: Path) -> None:
    puts = [keyed("U1", queue_id=5), message(b"x", topic="Gone")]
    cluster = Cluster()
    await recovered(make_cut(tmp_path, *puts), cluster)
    assert [queue for _, queue in cluster.sent] == [None, None]


async def test_a_record_that_came_half_is_counted_and_no_message(tmp_path: Path) -> None:
    cut = make_cut(tmp_path, keyed("U1"), keyed("U2"))
    (segment,) = cut.commitlog_path.iterdir()
    segment.write_bytes(segment.read_bytes()[:-20])
    tally = await recovered(cut, Cluster())
    assert (tally.counts[Fate.SENT], tally.counts[Fate.DAMAGED]) == (1, 1)


def test_the_note_alone_tells_the_counts(tmp_path: Path) -> None:
    cut = make_cut(tmp_path, keyed("U1"), keyed("U2"), keyed("U3", queue_id=1))
    assert list(count_messages(cut)) == [("T", 0, 2), ("T", 1, 1)]
