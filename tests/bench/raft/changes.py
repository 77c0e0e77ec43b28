"""Leaders that die or hand over, and members that lost their disk, while a client sends."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
from bench.peer.load_clients import open_load_client
from bench.raft.hammer import Hammer
from bench.raft.samples import Sample, Strangers, now_text
from bench.raft.sides import TOPIC, Scene
from support.clusters.raft_group import START_S
from support.processes.admin import request
from support.processes.rig import Node
from support.processes.status import node_status, wait_until

from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

CALM_S = 1.0
JAVA_CALM_S = 8.0
"""A Java follower that came back is told of topics after three seconds, and elected sooner."""
KILL_WITHIN_S = 1.0
LEVEL_S = 120.0
PACED_RATE = 50
POLL_S = 0.025
"""Between two looks at a member that fills: each costs it a millisecond of work."""
MB = 1_000_000


def kill_leaders(scene: Scene, kills: int, number: int) -> Iterator[Sample]:
    """kill -9 of one leader after the other, each brought back before the next one dies.

    What a death costs depends on how long ago the leader's last heartbeat was. The group comes to
    rest at a heartbeat, so a fixed pause after that would always kill at the same distance from
    one. Each kill comes at a moment drawn from a second in place of it.
    """
    assert scene.group is not None
    moments = random.Random(f"kills of round {number}")
    addresses = [node.address for node in scene.nodes]
    hammer = Hammer(addresses, scene.leader.address)
    try:
        for _ in range(kills):
            leader = scene.leader
            hammer.wait_for_stored(time.monotonic(), 20)
            time.sleep(moments.uniform(0.0, KILL_WITHIN_S))
            strangers = Strangers(scene.processes)
            with strangers.watched():
                killed_s = time.monotonic()
                leader.kill()
                first_s = hammer.wait_for_stored(killed_s)
            yield Sample(
                row="kill",
                side=scene.side.name,
                round=number,
                figures={"first_ms": (first_s - killed_s) * 1000},
                strangers=strangers.average,
                at=now_text(),
            )
            scene.group.wait_for_leader(other_than=leader)
            leader.start(START_S)
            scene.group.wait_for_followers()
            _calm_down(scene)
    finally:
        hammer.stop()


def kill_leader_under_java_client(scene: Scene, number: int) -> Iterator[Sample]:
    """Kill the leader under a default Java producer, which asks for routes every 30 s."""
    assert scene.group is not None
    client = open_load_client(
        "java", "ROCKETMQ", scene.processes, scene.namesrv.address, lambda: {}
    )
    client.begin("paced", {"topic": TOPIC, "bytes": 128, "rate": PACED_RATE})
    client.wait_until_measuring()
    time.sleep(3 * CALM_S)
    strangers = Strangers(scene.processes)
    with strangers.watched():
        killed_ms = time.time() * 1000
        scene.leader.kill()
        # Longer than the thirty seconds between two questions for the route.
        time.sleep(45)
    client.finish()
    outcome = client.outcome(60)
    ends = [began + took for began, took, status in outcome.figures["sends"] if status == "SEND_OK"]
    after = [end for end in ends if end > killed_ms]
    before = [end for end in ends if end <= killed_ms]
    figures = {"gap_ms": min(after) - max(before)} if after else {}
    yield Sample(
        row="kill/java-client",
        side=scene.side.name,
        round=number,
        figures=figures,
        errors=outcome.errors,
        failed=None if after else "the producer never stored anything again",
        strangers=strangers.average,
        at=now_text(),
    )


def transfer(scene: Scene, times: int, number: int) -> Iterator[Sample]:
    """Planned transfers of the leadership, in turn to each follower."""
    assert scene.group is not None
    hammer = Hammer([node.address for node in scene.nodes], scene.leader.address)
    try:
        for turn in range(times):
            leader = scene.leader
            target = scene.group.followers_of(leader)[turn % 2]
            hammer.wait_for_stored(time.monotonic(), 50)
            strangers = Strangers(scene.processes)
            with strangers.watched():
                began_s = time.monotonic()
                failed = _hand_over(leader, f"n{scene.nodes.index(target)}")
                hammer.wait_for_stored(time.monotonic(), 50)
            yield Sample(
                row="transfer",
                side=scene.side.name,
                round=number,
                figures={"gap_ms": hammer.longest_gap_s(began_s) * 1000},
                failed=failed,
                strangers=strangers.average,
                at=now_text(),
            )
            scene.group.wait_for_leader(other_than=leader)
            _calm_down(scene)
    finally:
        hammer.stop()


def refill(scene: Scene, mebibytes: int, number: int) -> Iterator[Sample]:
    """A follower that lost its store gets everything again, while a producer sends on."""
    assert scene.group is not None
    client = open_load_client(
        "java", "ROCKETMQ", scene.processes, scene.namesrv.address, lambda: {}
    )
    batch = 32
    count = mebibytes * (1 << 20) // 1150 // batch * batch
    fill = {"topic": TOPIC, "threads": 4, "batch": batch, "bytes": 1024, "messages": count}
    client.begin("send", fill)
    client.outcome(600)
    leader = scene.leader
    lost = scene.group.followers_of(leader)[0]
    wait_until("level", lambda: _end_of(lost) >= _end_of(leader), LEVEL_S)
    lost.kill()
    assert lost.store is not None
    shutil.rmtree(lost.store)
    client.begin("paced", {"topic": TOPIC, "bytes": 128, "rate": PACED_RATE})
    client.wait_until_measuring()
    strangers = Strangers(scene.processes)
    with strangers.watched():
        target = _end_of(leader)
        began_s = time.monotonic()
        lost.start(START_S)
        first_s = done_s = 0.0
        while not done_s:
            end = _end_of(lost)
            if end > 0 and not first_s:
                first_s, first_end = time.monotonic(), end
            if end >= target:
                done_s = time.monotonic()
            assert time.monotonic() - began_s < LEVEL_S, f"at {end:,} of {target:,} bytes"
            time.sleep(POLL_S)
    client.finish()
    outcome = client.outcome(60)
    took = sorted(took_ms for _, took_ms, status in outcome.figures["sends"] if status == "SEND_OK")
    yield Sample(
        row="refill",
        side=scene.side.name,
        round=number,
        figures={
            "mb_per_s": (target - first_end) / MB / (done_s - first_s),
            "mb_per_s_from_start": target / MB / (done_s - began_s),
            "bytes": float(target),
            "send_p50_ms": took[len(took) // 2],
            "send_max_ms": took[-1],
            "plain_mb_per_s": _write_plainly(lost.store.parent / "plain", target),
        },
        errors=outcome.errors,
        strangers=strangers.average,
        at=now_text(),
    )


def _write_plainly(path: Path, size: int) -> float:
    """Write a new file of so many bytes, without an fsync; MB/s.

    A refill writes as many. Some virtual machines give free memory back to their host: there the
    pages of every new file cost time for any process.
    """
    piece = b"x" * (1 << 20)
    began_s = time.monotonic()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(piece)):
            file.write(piece)
    took_s = time.monotonic() - began_s
    path.unlink()
    return size / MB / took_s


def _hand_over(leader: Node, member: str) -> str | None:
    """Ask the leader; why it did not, in its words."""
    body = msgpack.packb({"do": "transfer", "member": member})
    command = RemotingCommand(RequestCode.TRIOHA_RAFT_ADMIN, body=body)
    answer = request(leader.address, command)
    return None if answer.code == ResponseCode.SUCCESS else f"{answer.code} {answer.remark}"


def _calm_down(scene: Scene) -> None:
    """Wait until every member holds what the leader holds now; for Java, a fixed time."""
    if scene.side.is_java:
        time.sleep(JAVA_CALM_S)
        return
    end = _end_of(scene.leader)

    def level() -> object:
        ends = [_end_of(node) for node in scene.nodes]
        return min(ends) >= end or str(ends)

    wait_until("level", level, LEVEL_S)
    time.sleep(CALM_S)


def _end_of(node: Node) -> int:
    try:
        return int(node_status(node)["max_phy_offset"])
    except OSError:
        return 0
