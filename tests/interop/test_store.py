"""A store changes hands: from us to a Java broker, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.peers.clients import Clients
from support.peers.java import SMALL_STORE, java_broker, java_namesrv
from support.processes.admin import Fields, create_topic, request
from support.processes.rig import Processes
from support.stores.small import (
    crash,
    dispatch_all,
    message,
    open_store,
    projection_of,
    queues_of,
    records_of,
)

from trioha.store.inspect import verify_store
from trioha.store.message_store import FileMessageStore, StoreConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import RemotingCommand

QUEUES = 4


def store_config(root: Path) -> StoreConfig:
    def size(key: str) -> int:
        value = SMALL_STORE[key]
        assert isinstance(value, int)
        return value

    return StoreConfig(
        root=root,
        commitlog_path=root / "commitlog",
        # Small, so that a Java broker meets blanks and several files.
        segment_bytes=256 * 1024,
        queue_file_bytes=size("mappedFileSizeConsumeQueue"),
        hash_slot_count=size("maxHashSlotNum"),
        index_entry_count=size("maxIndexNum"),
    )


def fill(store: FileMessageStore, count: int) -> list[tuple[str, int]]:
    """Put messages; returns the key and the place of each."""
    placed = []
    for number in range(count):
        key = f"key-{store.max_phy_offset}"
        put = message(
            b"%d:" % number + bytes(number % 700),
            queue_id=number % QUEUES,
            tags="TagA",
            keys=(key,),
        )
        placed.append((key, store.put_message(put, 1_700_000_000_000 + number).phy_offset))
    return placed


def max_offset(address: str, queue_id: int) -> int:
    fields: Fields = {"topic": "T", "queueId": queue_id}
    answer = request(address, RemotingCommand(RequestCode.GET_MAX_OFFSET, fields))
    return answer.ext_int("offset")


@pytest.mark.parametrize("clean", [True, False])
def test_a_java_broker_takes_over_our_store_and_we_take_it_back(
    tmp_path: Path, processes: Processes, clients: Clients, clean: bool
) -> None:
    config = store_config(tmp_path / "store")
    store = open_store(config)
    placed = fill(store, 1500)
    dispatch_all(store)
    store.flush_queues()
    placed += fill(store, 100)
    expected = [store.max_offset_in_queue("T", queue_id) for queue_id in range(QUEUES)]
    if clean:
        store.close()
    else:
        crash(store)

    namesrv = java_namesrv(processes).start()
    settings = {"mappedFileSizeCommitLog": config.segment_bytes}
    broker = java_broker(processes, namesrv.address, store=config.root, settings=settings).start()
    create_topic(broker.address, namesrv.address, "T", QUEUES)
    assert [max_offset(broker.address, queue_id) for queue_id in range(QUEUES)] == expected
    for key, phy_offset in placed[::100]:
        answer = request(
            broker.address,
            RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": phy_offset}),
        )
        (record,) = decode_records(answer.body_bytes())
        assert record.keys == [key]
        fields: Fields = {"topic": "T", "key": key, "maxNum": 8, "beginTimestamp": 0}
        fields["endTimestamp"] = 1 << 60
        answer = request(broker.address, RemotingCommand(RequestCode.QUERY_MESSAGE, fields))
        assert answer.code == ResponseCode.SUCCESS, (key, answer.remark)
        assert phy_offset in [found.phy_offset for found in decode_records(answer.body_bytes())]

    producer = clients.producer("js", namesrv.address)
    for number in range(40):
        producer.send("T", f"java {number}", tags="TagB", keys=f"java-{number}")
    if clean:
        broker.stop()
    else:
        broker.kill()

    report = verify_store(config.root)
    assert report.damage == []
    store = open_store(config)
    assert queues_of(store) == projection_of(records_of(config))
    assert sum(store.max_offset_in_queue("T", queue_id) for queue_id in range(QUEUES)) == 1640
    dispatch_all(store)
    for key in ("java-0", "java-39", placed[0][0], placed[-1][0]):
        found, _, _ = store.query_message("T", key, 8, 0, 1 << 62)
        assert len(found) == 1, key
    fill(store, 10)
    store.close()
    assert verify_store(config.root).sound
