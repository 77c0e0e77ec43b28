"""A broker's ``config/``: what a killed process, another broker or a full disk leave of it."""

from __future__ import annotations

import random
from pathlib import Path

import attrs
import pytest
import trio
from support.handlers.sending import FakeReplicas, at
from support.memory.store import MemoryStore

from trioha.broker.core import BrokerCore
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import DiskFull, StoreError
from trioha.services.node.metadata_files import MetadataFiles
from trioha.store.metadata_wal import MetadataWal
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import TopicConfig


class Broker:
    """Tables and their files; a new one on the same root is what comes after kill -9."""

    def __init__(self, root: Path, role: BrokerRole = BrokerRole.ASYNC_MASTER) -> None:
        self.config = attrs.evolve(
            BrokerConfig(),
            broker_ip1="127.0.0.1",
            broker_role=role,
            store_path_root_dir=str(root),
            flush_interval_commit_log=10,
        )
        self.events = RecordedEvents()
        self.core = BrokerCore(
            self.config,
            MemoryStore(),
            FakeReplicas(),
            self.events,
            random.Random(1),
            at(),
            lambda _: {},
            write_metadata=lambda position, body: self.files.keep(position, body),
        )
        self.synced: list[int] = []
        self.files = MetadataFiles(self.config, self.core, self.events, self.synced.append, {})
        self.files.load()
        self.offsets = self.core.offsets

    def commit(self, offset: int, queue_id: int = 0) -> None:
        self.offsets.commit("g", "T", queue_id, offset)
        self.core.metadata.flush()

    def progress(self, queue_id: int = 0) -> int:
        return self.offsets.query("g", "T", queue_id)


def test_changes_survive_without_a_single_save(tmp_path: Path) -> None:
    before = Broker(tmp_path)
    before.core.topics.put(TopicConfig("New", 2, 2), 5)
    before.core.groups.find("fresh", 5)
    before.commit(7)
    after = Broker(tmp_path)
    assert after.core.topics.get("New") == TopicConfig("New", 2, 2)
    assert after.core.topics.data_version == before.core.topics.data_version
    assert after.core.groups.get("fresh") is not None
    assert after.progress() == 7
    assert after.core.metadata.position == before.core.metadata.position


async def test_a_save_and_what_came_after_it_are_put_together(tmp_path: Path) -> None:
    before = Broker(tmp_path)
    before.commit(7)
    before.commit(3, queue_id=1)
    await before.files.persist.save_all()
    before.commit(5)
    after = Broker(tmp_path)
    assert (after.progress(0), after.progress(1)) == (5, 3), "a rewind is a change like others"


async def test_positions_go_on_when_everything_is_saved(tmp_path: Path) -> None:
    before = Broker(tmp_path)
    before.commit(7)
    await before.files.persist.save_all()
    assert list((tmp_path / "config" / "metadata.wal").iterdir()) == []
    after = Broker(tmp_path)
    assert after.core.metadata.position == before.core.metadata.position == 1
    assert after.core.metadata.synced_position == 1


async def test_what_another_broker_wrote_afterwards_stands(tmp_path: Path) -> None:
    """A Java broker ran on the store that a killed trioha had left."""
    before = Broker(tmp_path)
    before.commit(7)
    await before.files.persist.save_all()
    before.commit(8)
    path = tmp_path / "config" / "consumerOffset.json"
    path.write_bytes(b'{\n\t"offsetTable":{"T@g":{0:20\n\t\t}\n\t}\n}')
    after = Broker(tmp_path)
    assert after.progress() == 20
    assert after.offsets.dirty, "the file is to get our position before anything changes"
    await after.files.persist.save_all()
    after.commit(21)
    assert Broker(tmp_path).progress() == 21


def test_commits_to_a_slave_outlive_its_becoming_master(tmp_path: Path) -> None:
    before = Broker(tmp_path, BrokerRole.SLAVE)
    before.commit(7)
    after = Broker(tmp_path, BrokerRole.ASYNC_MASTER)
    assert after.progress() == 7
    assert after.offsets.commits_to_tell() == []


def test_a_log_of_a_later_version_is_an_error_with_a_cure(tmp_path: Path) -> None:
    wal = MetadataWal(tmp_path / "config" / "metadata.wal")
    list(wal.read())
    wal.append(1, b"\x92\x02\xc0")
    with pytest.raises(StoreError, match=r"metadata\.wal.*start that one, or move the folder"):
        Broker(tmp_path)


async def test_a_full_disk_is_told_once_and_the_tables_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(tmp_path)

    def full(wal: MetadataWal, position: int, body: bytes) -> None:
        raise DiskFull("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(MetadataWal, "append", full)
        broker.commit(1)
        broker.commit(2)
    assert broker.events.names() == ["task_failed"]
    broker.commit(3)
    assert Broker(tmp_path).progress() == 3
    await broker.files.persist.save_all()
    assert Broker(tmp_path).progress() == 3


async def test_the_log_is_brought_to_disk_as_it_grows(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.files.flush_wal)
        broker.commit(1)
        broker.files.grown_nowait(urgent=True)
        with trio.fail_after(60):
            while broker.synced != [1]:
                await trio.lowlevel.checkpoint()
        broker.commit(2)
        with trio.fail_after(60):
            while broker.synced != [1, 2]:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert broker.files.wal.synced_position == 2
