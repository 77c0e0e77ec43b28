"""Files of a store that are gone when its broker starts: a disk not mounted, a file removed.

A node whose log is missing says so in one line with the cure, and does not serve. It tells no
operator to set the only copy aside. A consume queue is rebuilt. No offset is given out twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest
from support.clusters.replica_set import BROKER, SETTINGS, ReplicaSet
from support.processes.admin import create_topic, request
from support.processes.rig import Node, Processes, trioha_broker, trioha_namesrv
from support.processes.status import check_sound, journal, node_status, run_trioha, start_and_fail

from trioha.store.inspect import iter_records
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.record import Record
from trioha.wire.remoting_command import ExtValue, RemotingCommand

pytestmark = pytest.mark.slow
TOPIC = "T"
COUNT = 92
STORED = (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)


def send(node: Node, count: int = 1, label: str = "m") -> list[int]:
    """Send to queue 0, all stored; returns the queue offsets."""
    offsets = []
    for number in range(count):
        fields: dict[str, ExtValue] = {"a": "pg", "b": TOPIC, "c": "TBW102", "d": 1, "e": 0, "f": 0}
        fields |= {"g": 1000, "h": 0, "i": f"UNIQ_KEY\x01{label}{number}"}
        body = f"{label}{number}".encode()
        answer = request(
            node.address, RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body), 10.0
        )
        assert answer.code in STORED, f"{answer.code} {answer.remark}"
        offsets.append(int(answer.ext_str("queueOffset")))
    return offsets


def bodies(node: Node) -> list[bytes]:
    return [item.body for item in iter_records(node.commitlog) if isinstance(item, Record)]


@attrs.define(eq=False)
class Lone:
    """A broker that was filled and stopped in order."""

    node: Node

    @property
    def queue_file(self) -> Path:
        assert self.node.store is not None
        return self.node.store / "consumequeue" / TOPIC / "0" / ("0" * 20)

    def start_fails(self, *words: str) -> None:
        (line,) = start_and_fail(self.node)
        for word in words:
            assert word in line, line
        assert "Traceback" not in self.node.process.tail()


@pytest.fixture
def lone(processes: Processes) -> Lone:
    namesrv = trioha_namesrv(processes).start()
    node = trioha_broker(processes, namesrv.address, settings=SETTINGS).start()
    create_topic(node.address, namesrv.address, TOPIC, 1)
    assert send(node, COUNT) == list(range(COUNT))
    assert node.stop() == 0
    return Lone(node)


def test_a_commitlog_that_is_gone_stops_the_start(lone: Lone) -> None:
    node = lone.node
    unmounted = node.commitlog.with_name("unmounted")
    node.commitlog.rename(unmounted)
    for makes_directory in (False, True):
        if makes_directory:
            node.commitlog.mkdir()
        lone.start_fails(
            str(node.commitlog), "is empty", "mount its disk", "trioha log accept-loss"
        )
    # The disk is mounted: all is there.
    node.commitlog.rmdir()
    unmounted.rename(node.commitlog)
    node.start()
    assert send(node) == [COUNT]
    assert node.stop() == 0
    # It never comes back: the operator says so, and offsets go on.
    end = node_end(node)
    shutil.rmtree(node.commitlog)
    lone.start_fails("is empty")
    arguments = ("log", "accept-loss", str(node.store))
    settings = [word for key in SETTINGS for word in ("--set", f"{key}={SETTINGS[key]}")]
    planned = run_trioha(*arguments, *settings, "--dry-run")
    assert (planned.code, "missing" in planned.out) == (0, True), planned
    lone.start_fails("is empty")
    done = run_trioha(*arguments, *settings, "--yes")
    assert done.code == 0, done
    node.start()
    assert node_status(node)["max_phy_offset"] >= end
    assert send(node) == [COUNT + 1]
    assert node.stop() == 0


def node_end(node: Node) -> int:
    *_, last = [item for item in iter_records(node.commitlog) if isinstance(item, Record)]
    return last.phy_offset + last.size


def _unlink(path: Path) -> None:
    path.unlink()


def _unlink_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:70])


def check_rebuilt(lone: Lone, damages: Sequence[Callable[[Path], None]]) -> None:
    node, path = lone.node, lone.queue_file
    for round_, damage in enumerate(damages, 1):
        whole = path.read_bytes()
        damage(path)
        node.start()
        assert path.read_bytes() == whole
        assert send(node) == [COUNT + round_ - 1]
        assert node.stop() == 0
        told = [event.fields["first"] for event in journal(node, "queues_rebuilt")]
        assert told == [f"{TOPIC}/0"] * round_
        check_sound(node)
    assert len(set(bodies(node)[:COUNT])) == COUNT


def test_a_queue_file_that_is_gone_is_rebuilt(lone: Lone) -> None:
    check_rebuilt(lone, [_unlink, _unlink_directory])


def test_an_empty_queue_file_is_rebuilt(lone: Lone) -> None:
    check_rebuilt(lone, [_empty])


def test_a_short_queue_file_is_rebuilt(lone: Lone) -> None:
    check_rebuilt(lone, [_shorten])


@pytest.mark.parametrize("kill", [False, True])
def test_in_a_pair_a_node_whose_commitlog_is_gone_never_leads(
    processes: Processes, kill: bool
) -> None:
    set_ = ReplicaSet(processes).start()
    first, second = set_.nodes
    create_topic(first.address, set_.namesrv, TOPIC, 1)
    assert send(first, COUNT) == list(range(COUNT))
    set_.wait_level()
    kept = bodies(second)
    assert len(kept) == COUNT
    for node in (first, second):
        if kill:
            node.kill()
        else:
            assert node.stop() == 0
    unmounted = first.commitlog.with_name("unmounted")
    first.commitlog.rename(unmounted)
    for with_second in (False, True):
        if with_second:
            second.start()
        (line,) = start_and_fail(first)
        assert "mount its disk or put its files back" in line
    assert node_status(second)["standing"] == "SLAVE"
    shown = run_trioha("ha", "status", "-n", set_.namesrv)
    assert "resync" not in shown.out + shown.err, shown
    assert bodies(second) == kept
    # The operator makes the one that has all of it master.
    switched = set_.fail_over("--to", "1", "--force")
    assert switched.result == "done", switched
    assert send(second) == [COUNT]
    # The other one's disk does not come back. It begins empty and copies.
    arguments = ("log", "accept-loss", str(first.store), "--yes")
    settings = [word for key in SETTINGS for word in ("--set", f"{key}={SETTINGS[key]}")]
    done = run_trioha(*arguments, *settings)
    assert done.code == 0, done
    first.start()
    set_.wait_whole()
    set_.wait_level()
    assert set_.master_id() == 1, set_.describe()
    assert send(second) == [COUNT + 1]
    set_.stop()
    set_.check_equal_logs()
    assert BROKER in shown.out
