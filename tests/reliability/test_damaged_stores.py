"""Stores that were damaged while no broker ran: one clear line, and nothing lost or made up.

The damage is done to a stopped broker's files, then it is started again as an operator would.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from support.clusters.pair import Cluster
from support.histories.commitlog import end_of_log, stored_messages
from support.histories.load import Load, undisturbed
from support.histories.load_history import LoadHistory
from support.processes.admin import create_topic, request
from support.processes.faults import TINY_FILES, flip_byte
from support.processes.rig import Node, Processes, trioha_broker
from support.processes.status import check_sound, run_trioha, start_and_fail, wait_for_event

from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.slow

# So rarely that the recovery point stays at the start: everything behind it is a tail.
NEVER_FLUSHED: dict[str, object] = {
    "flushIntervalCommitLog": 600_000,
    "flushIntervalConsumeQueue": 600_000,
}


@attrs.define(eq=False)
class Filled:
    """A broker that was filled and stopped, and what it must hold."""

    cluster: Cluster
    history: LoadHistory

    @property
    def node(self) -> Node:
        return self.cluster.master

    @property
    def store(self) -> Path:
        assert self.node.store is not None
        return self.node.store

    @property
    def segments(self) -> list[Path]:
        return sorted(self.node.commitlog.iterdir())

    def start_fails(self, *words: str) -> str:
        """Start it: it must end by itself with one line that has these words."""
        (line,) = start_and_fail(self.node)
        for word in words:
            assert word in line, line
        return line


Fill = Callable[..., Filled]


@pytest.fixture
def filled(cluster: Cluster) -> Fill:
    """Start a broker, fill at least `segments` segments, stop it or kill it."""

    def fill(*, segments: int = 4, kill: bool = False, **settings: object) -> Filled:
        cluster.start(settings=settings)
        create_topic(cluster.master.address, cluster.namesrv, "T")
        load = Load(cluster.master.address, "T", seed=segments).start()
        while len(list(cluster.master.commitlog.iterdir())) < segments:
            load.wait_for_more(100)
        load.wait_for_more(20)
        load.stop()
        history = LoadHistory("T")
        history.add(load.sent)
        if kill:
            cluster.master.kill()
        else:
            assert cluster.master.stop() == 0
        return Filled(cluster, history)

    return fill


def test_a_flipped_byte_in_an_old_segment_is_found_by_verify(filled: Fill) -> None:
    it = filled()
    stored = list(stored_messages(it.node.commitlog, "T"))
    victim = next(m for m in stored if m.place.phy_offset > 256 * 1024 and m.size > 40)
    old = it.segments[1]
    flip_byte(old, victim.place.phy_offset - int(old.name) + 88 + 30)
    # The recovery point lies far beyond the damage: the broker starts, and `log verify` finds it.
    it.node.start()
    verified = run_trioha("log", "verify", str(it.store))
    assert verified.code == 1, verified
    assert str(old) in verified.out, verified
    assert f"offsets {victim.place.phy_offset} to" in verified.out, verified
    assert "1 finding(s)" in verified.out, verified
    assert it.node.stop() == 0


def test_a_flipped_byte_near_the_end_of_a_cleanly_stopped_log_stops_the_start(
    filled: Fill,
) -> None:
    it = filled()
    segment = it.segments[-1]
    of_segment = [
        one
        for one in stored_messages(it.node.commitlog, "T")
        if one.place.phy_offset >= int(segment.name)
    ]
    last = of_segment[-3:][0]
    flip_byte(segment, last.place.phy_offset - int(segment.name) + 88 + 10)
    line = it.start_fails(str(segment), "damaged at byte", "Copy the store from its replica")
    assert str(last.place.phy_offset) in line
    # The damage mended, it goes on as if nothing had been.
    flip_byte(segment, last.place.phy_offset - int(segment.name) + 88 + 10)
    it.node.start()
    it.history.check(it.node.commitlog)
    check_sound(it.node)


@pytest.mark.parametrize("cut", [1, 40, 95])
def test_a_zeroed_end_of_the_last_record_is_cut_and_the_broker_serves(
    filled: Fill, cut: int
) -> None:
    """Fault A13."""
    it = filled(segments=3, kill=True, **NEVER_FLUSHED)
    end = end_of_log(it.node.commitlog)
    before = list(stored_messages(it.node.commitlog, "T"))
    segment = it.segments[-1]
    with open(segment, "r+b") as file:
        file.seek(end.offset - int(segment.name) - cut)
        file.write(bytes(cut))
    it.node.start()
    finished = wait_for_event(it.node, "recovery_finished", clean=False)
    assert finished["max_phy_offset"] == before[-1].place.phy_offset
    assert list(stored_messages(it.node.commitlog, "T")) == before[:-1]
    check_sound(it.node)
    # The place is given anew, and the offset in the queue continues.
    load = Load(it.node.address, "T", seed=77, label="after").start()
    load.wait_for_acked(50)
    load.stop()
    check_sound(it.node)


def test_a_torn_tail_in_the_middle_of_a_header_is_cut(filled: Fill) -> None:
    it = filled(segments=2, kill=True, **NEVER_FLUSHED)
    end = end_of_log(it.node.commitlog)
    segment = it.segments[-1]
    with open(segment, "r+b") as file:
        file.seek(end.offset - int(segment.name))
        file.write((300).to_bytes(4, "big") + bytes.fromhex("daa320a7") + b"torn")
    it.node.start()
    assert wait_for_event(it.node, "recovery_finished", clean=False)["cut_bytes"] == 12
    it.history.check(it.node.commitlog)
    check_sound(it.node)


def test_a_segment_of_another_size_is_named_with_the_cure(filled: Fill) -> None:
    it = filled(segments=2)
    with open(it.segments[0], "r+b") as file:
        file.truncate(100_000)
    it.start_fails(str(it.segments[0]), "has 100000 bytes, not 262144", "mappedFileSizeCommitLog")


def test_a_missing_segment_is_named(filled: Fill) -> None:
    it = filled(segments=4)
    gone = it.segments[1]
    gone.rename(it.store / "moved away")
    it.start_fails(str(gone), "is missing", "put it back")
    (it.store / "moved away").rename(gone)
    it.node.start()
    it.history.check(it.node.commitlog)


def test_a_foreign_file_among_the_segments_is_named(filled: Fill) -> None:
    it = filled(segments=2)
    (it.node.commitlog / "notes.txt").write_text("mine")
    it.start_fails("notes.txt", "does not belong here", "move it away")


def test_an_unreadable_table_falls_back_and_without_a_copy_stops_the_start(filled: Fill) -> None:
    it = filled(segments=2)
    table = it.store / "config" / "topics.json"
    backup = table.with_name("topics.json.bak")
    good = table.read_bytes()
    table.write_bytes(good[: len(good) // 2])
    backup.write_bytes(good)
    it.node.start()
    assert it.node.stop() == 0
    table.write_bytes(b"{ this is no table")
    backup.unlink(missing_ok=True)
    it.start_fails("topics.json", "restore it from a slave or move it away")
    table.write_bytes(good)
    it.node.start()
    it.history.check(it.node.commitlog)


TABLES = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")
SHAPES = (
    b"{ this is no table",
    b"[1, 2, 3]",
    b'"text"',
    b'{"topicConfigTable": 5, "subscriptionGroupTable": 5, "offsetTable": 5}',
    b'{"topicConfigTable":{"T":5}, "subscriptionGroupTable":{"g":5}, "offsetTable":{"T@g":5}}',
    b"\xff\xfe\x00",
)


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_a_table_of_nonsense_is_named_with_the_cure(cluster: Cluster, shape: bytes) -> None:
    cluster.start()
    create_topic(cluster.master.address, cluster.namesrv, "T")
    assert cluster.master.stop() == 0
    it = Filled(cluster, LoadHistory("T"))
    for name in TABLES:
        table = it.store / "config" / f"{name}.json"
        backup = table.with_name(f"{name}.json.bak")
        kept = {path: path.read_bytes() for path in (table, backup) if path.exists()}
        for path in (table, backup):
            path.write_bytes(shape)
        if name == "delayOffset" and shape.startswith(b'{"'):
            continue  # its own key has another name there, or is as lenient as Java's
        it.start_fails(f"{name}.json", "move it away")
        for path in (table, backup):
            path.unlink()
        for path, data in kept.items():
            path.write_bytes(data)


def test_deleted_queues_and_index_are_made_again_from_the_log(filled: Fill) -> None:
    it = filled(segments=3)
    it.store.joinpath("consumequeue").rename(it.store.parent / "old-queues")
    it.store.joinpath("index").rename(it.store.parent / "old-index")
    it.node.start()
    it.history.check(it.node.commitlog)
    check_sound(it.node)


def test_a_port_in_use_disturbs_nobody(cluster: Cluster, processes: Processes) -> None:
    cluster.start()
    create_topic(cluster.master.address, cluster.namesrv, "T")
    host, port = cluster.master.address.rsplit(":", 1)
    with undisturbed(cluster.master, "T"):
        for listen, ha_listen in ((cluster.master.address, ""), ("", cluster.master.ha_address)):
            done = run_trioha(
                *("run", "broker", "--name", "second", "--store", str(processes.root / "second")),
                *("--listen", listen or f"{host}:0", "--ha-listen", ha_listen or f"{host}:0"),
                *("--namesrv", cluster.namesrv),
            )
            assert done.code == 1, done
            (line,) = [line for line in done.err.splitlines() if line.startswith("trioha: ")]
            assert f"cannot listen on {listen or ha_listen}" in line
    info = request(cluster.namesrv, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
    assert b"second" not in info.body_bytes()
    with socket.create_connection((host, int(port)), 5.0):
        pass


def test_a_locked_store_is_named_and_its_owner_goes_on(
    cluster: Cluster, processes: Processes
) -> None:
    cluster.start()
    create_topic(cluster.master.address, cluster.namesrv, "T")
    with undisturbed(cluster.master, "T"):
        second = trioha_broker(
            processes,
            cluster.namesrv,
            name="second",
            store=cluster.master.store,
            settings=TINY_FILES,
        )
        (line,) = start_and_fail(second)
        assert str(cluster.master.store) in line
        assert "in use by another process" in line
    assert cluster.master.stop() == 0
    check_sound(cluster.master)
