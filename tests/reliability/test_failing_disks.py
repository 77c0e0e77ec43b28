"""Disks that are full, fail, or are cut off in the middle of a call (family A of the known faults).

System calls fail, or kill their process, at named points: see `support.processes.faults.Failpoint`.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest
from support.clusters.pair import Cluster
from support.histories.commitlog import end_of_log
from support.histories.load import Load, Mix
from support.histories.load_history import LoadHistory
from support.processes.admin import Fields, create_topic, request, topic_command
from support.processes.faults import TINY_FILES, Failpoint, fill_disk, set_failpoints, small_disk
from support.processes.rig import REPO, Node, Processes, trioha_broker
from support.processes.status import (
    check_sound,
    journal,
    node_status,
    start_and_fail,
    told_lines,
    wait_for_event,
    wait_in_sync,
    wait_level,
    wait_until,
)

from trioha.store.inspect import diff_logs
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.slow

MIB = 1 << 20


def pull_first(node: Node, queue_id: int = 0) -> list[bytes]:
    """The bodies of the first messages of a queue."""
    fields: Fields = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": queue_id,
        "queueOffset": 0,
        "maxMsgNums": 8,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
    }
    answer = request(node.address, RemotingCommand(RequestCode.PULL_MESSAGE, fields))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [bytes(record.body) for record in decode_records(answer.body_bytes())]


def history_of(*loads: Load) -> LoadHistory:
    history = LoadHistory("T")
    for load in loads:
        history.add(load.sent)
    return history


def test_a_full_disk_refuses_writes_serves_reads_and_recovers_by_itself(
    cluster: Cluster, processes: Processes, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small", 24 * MIB) as disk:
        cluster.start_namesrv()
        cluster.master_node = trioha_broker(
            processes, cluster.namesrv, store=disk / "store", settings=TINY_FILES
        ).start()
        create_topic(cluster.master.address, cluster.namesrv, "T")
        load = Load(cluster.master.address, "T", seed=1, senders=2, pace_s=0.002).start()
        load.wait_for_acked(200)
        first = pull_first(cluster.master)
        pid = cluster.master.process.pid
        for _ in range(2):
            filler = fill_disk(disk)

            def all_refused() -> object:
                last = {sent.code for sent in load.latest(50)}
                return last == {ResponseCode.SERVICE_NOT_AVAILABLE} or str(last)

            wait_until("refused with code 14", all_refused)
            assert node_status(cluster.master)["puts_waiting"] == 0, "a refused put waits"
            assert pull_first(cluster.master) == first
            assert node_status(cluster.master)["writable"] is False
            filler.unlink()
            wait_until("writable again", lambda: load.latest(1)[0].code == ResponseCode.SUCCESS)
            load.wait_for_more(200)
        load.stop()
        assert cluster.master.process.pid == pid, "no restart was needed"
        assert set(load.codes) == {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}, load
        history = history_of(load)
        history.check(cluster.master.commitlog)
        check_sound(cluster.master)
        refused = wait_for_event(cluster.master, "write_refused")
        assert "full" in refused["reason"], refused
        wait_for_event(cluster.master, "write_resumed")
        # It also stops in order, and starts again, on a disk without a byte to spare: as in
        # RocketMQ the oldest segments then make room, whatever their age.
        filler = fill_disk(disk)
        assert cluster.master.stop() == 0
        cluster.master.start()
        gone = wait_for_event(cluster.master, "segment_deleted")
        assert gone["reason"] == "disk 100% full", gone
        check_sound(cluster.master)
        filler.unlink()
        assert cluster.master.stop() == 0


def test_a_start_on_a_full_disk_is_one_clear_line(processes: Processes, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 4 * MIB) as disk:
        fill_disk(disk)
        node = trioha_broker(processes, "127.0.0.1:1", store=disk / "store", settings=TINY_FILES)
        journal_line, line = start_and_fail(node)
        assert "journal: cannot write" in journal_line
        assert "No space left on device" in line, line


def test_the_disk_that_counts_is_the_one_the_log_is_on(
    processes: Processes, tmp_path: Path
) -> None:
    """Fault C9."""
    with small_disk(tmp_path / "small", 24 * MIB) as disk:
        settings = {
            **TINY_FILES,
            "storePathCommitLog": str(disk / "commitlog"),
            "diskSpaceWarningLevelRatio": 90,
            "diskMaxUsedSpaceRatio": 80,
            "cleanResourceInterval": 200,
        }
        node = trioha_broker(processes, "127.0.0.1:1", settings=settings).start()
        low = node_status(node)["disk_ratio"]
        assert low < 0.2, low
        filler = disk / "filler"
        with open(filler, "wb") as file:
            file.write(bytes(23 * MIB))
        wait_until("over the warning level", lambda: not node_status(node)["writable"])
        assert node_status(node)["disk_ratio"] > 0.9
        filler.unlink()
        wait_until("writable again", lambda: node_status(node)["writable"])


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_failed_fsync_acknowledges_nothing_and_ends_the_node(
    cluster: Cluster, processes: Processes, flush: str, number: int
) -> None:
    """Fault A11."""
    cluster.start(settings={"flushDiskType": flush, "flushIntervalCommitLog": 100})
    create_topic(cluster.master.address, cluster.namesrv, "T")
    cluster.master.stop()
    armed = processes.root / "disk-is-broken"
    point = Failpoint(call="fdatasync", path="commitlog", errno=number, armed_by=str(armed))
    set_failpoints(cluster.master, processes.root / "failpoints", point)
    cluster.master.start()
    load = Load(cluster.master.address, "T", seed=11, senders=2).start()
    load.wait_for_acked(100)
    load.stop()
    armed.touch()
    late = Load(cluster.master.address, "T", seed=12, label="late").start()
    # It ends by itself: a disk that lied once is not asked again.
    assert cluster.master.process.wait() == 1
    late.join()
    if flush == "SYNC_FLUSH":
        assert ResponseCode.SUCCESS not in late.codes, late
    (line,) = told_lines(cluster.master)
    assert "fsync of" in line, line
    assert "commitlog" in line, line
    armed.unlink()
    cluster.master.start()
    history_of(load, late).check(cluster.master.commitlog)
    check_sound(cluster.master)


TRUNCATED = """
import os, signal, sys
from pathlib import Path
from trioha.journal import NullSink
from trioha.store.inspect import iter_records
from trioha.store.message_store import FileMessageStore, StoreConfig
root = Path(sys.argv[1])
config = StoreConfig(root=root, commitlog_path=root / "commitlog", segment_bytes=262144,
                     queue_file_bytes=6000, hash_slot_count=500, index_entry_count=2000)
store = FileMessageStore.open(config, NullSink(), wall_ms=1)
offsets = [record.phy_offset for record in iter_records(root / "commitlog")]
cut = offsets[len(offsets) // 3]
store.truncate_log(cut)
print(cut, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_truncated_stays_gone_after_kill(cluster: Cluster) -> None:
    """Fault A10."""
    cluster.start()
    create_topic(cluster.master.address, cluster.namesrv, "T")
    load = Load(cluster.master.address, "T", seed=10).start()
    load.wait_for_acked(1500)
    load.stop()
    cluster.master.stop()
    before = end_of_log(cluster.master.commitlog)
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATED, str(cluster.master.store)],
        capture_output=True,
        text=True,
        cwd=REPO,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    cut = int(done.stdout)
    assert cut < before.offset
    cluster.master.start()
    assert node_status(cluster.master)["max_phy_offset"] == cut
    check_sound(cluster.master)
    # Nor does the next kill bring anything back.
    cluster.master.kill()
    cluster.master.start()
    assert node_status(cluster.master)["max_phy_offset"] == cut
    check_sound(cluster.master)


MASTER_POINTS = {
    "segment made, not sized": Failpoint(call="ftruncate", path="commitlog", action="die before"),
    "segment sized": Failpoint(call="ftruncate", path="commitlog", action="die after"),
    "third segment made": Failpoint(call="ftruncate", path="commitlog", nth=3, action="die before"),
    "third segment sized": Failpoint(call="ftruncate", path="commitlog", nth=3, action="die after"),
    "segment to be reserved": Failpoint(
        call="posix_fallocate", path="commitlog", nth=2, action="die before"
    ),
    "segment reserved": Failpoint(
        call="posix_fallocate", path="commitlog", nth=2, action="die after"
    ),
    "queue file made": Failpoint(call="ftruncate", path="consumequeue", nth=6, action="die before"),
    "queue file sized": Failpoint(call="ftruncate", path="consumequeue", nth=6, action="die after"),
    "index file made": Failpoint(call="ftruncate", path="/index/", action="die before"),
    "second index file": Failpoint(call="ftruncate", path="/index/", nth=2, action="die after"),
    "fsync of the log": Failpoint(call="fdatasync", path="commitlog", nth=2, action="die before"),
    "log synced": Failpoint(call="fdatasync", path="commitlog", nth=2, action="die after"),
    "checkpoint to be written": Failpoint(
        call="pwrite", path="/checkpoint", nth=2, action="die before"
    ),
    "checkpoint half written": Failpoint(
        call="pwrite", path="/checkpoint", nth=2, action="die within"
    ),
    "table written, not renamed": Failpoint(
        call="replace", path="topics.json", nth=1, action="die before"
    ),
    "old table renamed": Failpoint(call="replace", path="topics.json", nth=2, action="die after"),
}


@pytest.mark.parametrize("point", MASTER_POINTS.values(), ids=MASTER_POINTS.keys())
def test_a_master_that_dies_at_a_named_point_comes_back_whole(
    cluster: Cluster, processes: Processes, point: Failpoint
) -> None:
    """Fault A13."""
    settings = {**TINY_FILES, "flushIntervalCommitLog": 50, "flushIntervalConsumeQueue": 100}
    cluster.start_namesrv()
    node = trioha_broker(processes, cluster.namesrv, settings=settings)
    armed = processes.root / "armed"
    set_failpoints(node, processes.root / "failpoints", *[_armed_by(point, armed)])
    cluster.master_node = node.start()
    create_topic(node.address, cluster.namesrv, "T")
    armed.touch()
    load = Load(node.address, "T", seed=13, senders=2, pace_s=0.0005).start()
    if "json" in point.path:
        for number in range(3):
            if node.running:
                _create_unless_dead(node, f"more-{number}")
    load.join()
    assert node.process.wait() == -signal.SIGKILL, "it should have died at the point"
    armed.unlink()
    node.start()
    history = history_of(load)
    history.check(node.commitlog)
    check_sound(node)
    again = Load(node.address, "T", seed=14, label="again").start()
    again.wait_for_acked(200)
    again.stop()
    history.add(again.sent)
    history.check(node.commitlog)
    check_sound(node)
    topics = request(node.address, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
    assert "T" in json.loads(topics.body_bytes())["topicConfigTable"]


def _armed_by(point: Failpoint, armed: Path) -> Failpoint:
    return attrs.evolve(point, armed_by=str(armed))


def _create_unless_dead(node: Node, topic: str) -> None:
    try:
        request(node.address, topic_command(topic))
    except OSError:
        return  # it died at the point
    wait_until(
        "written or dead",
        lambda: not node.running or topic in _topics_text(node),
    )


def _topics_text(node: Node) -> str:
    assert node.store is not None
    path = node.store / "config" / "topics.json"
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


SLAVE_POINTS = {
    "half of a read appended": Failpoint(
        call="pwrite", path="commitlog", nth=5, action="die within"
    ),
    "a read appended": Failpoint(call="pwrite", path="commitlog", nth=5, action="die after"),
    "segment made, not sized": Failpoint(
        call="ftruncate", path="commitlog", nth=2, action="die before"
    ),
    "segment sized": Failpoint(call="ftruncate", path="commitlog", nth=2, action="die after"),
}


@pytest.mark.parametrize("point", SLAVE_POINTS.values(), ids=SLAVE_POINTS.keys())
def test_a_slave_that_dies_at_a_named_point_becomes_equal_again(
    cluster: Cluster, processes: Processes, point: Failpoint
) -> None:
    """Fault A13."""
    cluster.start("SYNC_MASTER", slave=True, settings={"slaveTimeout": 1000})
    create_topic(cluster.master.address, cluster.namesrv, "T")
    wait_in_sync(cluster.master)
    assert cluster.slave.stop() == 0
    armed = processes.root / "armed"
    set_failpoints(cluster.slave, processes.root / "failpoints", _armed_by(point, armed))
    cluster.slave.start()
    wait_in_sync(cluster.master)
    armed.touch()
    load = Load(cluster.master.address, "T", seed=15, senders=2, pace_s=0.001).start()
    assert cluster.slave.process.wait() == -signal.SIGKILL, "it should have died at the point"
    armed.unlink()
    cluster.slave.start()
    load.wait_for_more(200)
    load.stop()
    wait_level(cluster.master, cluster.slave)
    for node in (cluster.master, cluster.slave):
        check_sound(node)
    assert diff_logs(cluster.master.commitlog, cluster.slave.commitlog).equal
    history = history_of(load)
    history.check(cluster.master.commitlog)
    history.check_replica(cluster.slave.commitlog)


@pytest.mark.parametrize("action", ["die before", "die after"])
def test_a_broker_that_dies_while_it_deletes_segments_starts_behind_them(
    cluster: Cluster, processes: Processes, action: str
) -> None:
    """Fault A13."""
    settings = {
        **TINY_FILES,
        "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
        "fileReservedTime": 1,
        "cleanResourceInterval": 200,
    }
    cluster.start_namesrv()
    node = trioha_broker(processes, cluster.namesrv, settings=settings)
    point = Failpoint(call="unlink", path="commitlog", nth=2, action=action)
    set_failpoints(node, processes.root / "failpoints", point)
    cluster.master_node = node.start()
    create_topic(node.address, cluster.namesrv, "T")
    load = Load(node.address, "T", seed=16, mix=Mix(large_chance=0.3)).start()
    wait_until("five segments", lambda: len(list(node.commitlog.iterdir())) >= 5)
    load.stop()
    two_hours_ago = time.time() - 7200
    for segment in sorted(node.commitlog.iterdir())[:-1]:
        os.utime(segment, (two_hours_ago, two_hours_ago))
    assert node.process.wait() == -signal.SIGKILL
    set_failpoints(node, processes.root / "failpoints")
    node.start()
    check_sound(node)
    again = Load(node.address, "T", seed=17, label="again").start()
    again.wait_for_acked(200)
    again.stop()
    check_sound(node)
    assert node_status(node)["min_phy_offset"] > 0
    assert not journal(node, "task_failed")
