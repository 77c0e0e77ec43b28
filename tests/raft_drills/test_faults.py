"""A member whose disk fails ends by itself, unless another fault of the same round stops it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest
from raft_drills.faults import fsync_fails, stop_in_order, votes_cannot_be_saved
from raft_drills.hurt_group import HurtGroup, Member
from support.processes.rig import Node, Process

WAITS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up", flush=True)
sys.stdin.read()
"""


@attrs.define
class Pair:
    """A leader and a follower, in place of a group of brokers."""

    members: list[Member]

    def leader_or_none(self) -> Member | None:
        return next((one for one in self.members if one.running), None)

    def others(self, *these: Member) -> list[Member]:
        return [one for one in self.members if one not in these]

    def start_all(self, members: Sequence[Member]) -> None:
        for one in members:
            if not one.running:
                one.node.start()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[HurtGroup]:
    members = []
    for index, name in enumerate(("leader", "follower")):
        process = Process(name, [sys.executable, "-c", WAITS], tmp_path / f"{name}.log")
        node = Node(process, "127.0.0.1:1", "up").start()
        files = (tmp_path / f"{name}.{what}" for what in ("broken", "slow", "forgetful", "synced"))
        members.append(Member(name, node, index, *files))
    pair: HurtGroup = Pair(members)  # type: ignore[assignment]
    yield pair
    for one in members:
        one.kill()


def test_a_member_that_a_second_fault_stops_need_not_end_by_itself(group: HurtGroup) -> None:
    rng = random.Random(1)
    heal = votes_cannot_be_saved(group, rng)
    stop_in_order(group, rng)  # no process runs but that of the victim
    heal()
    assert all(one.running for one in group.members)


def test_a_member_that_ends_in_order_though_its_vote_was_not_saved_is_a_fault(
    group: HurtGroup,
) -> None:
    heal = votes_cannot_be_saved(group, random.Random(1))
    victim = group.members[1].node.process
    victim.close_stdin()
    victim.wait()
    with pytest.raises(AssertionError, match="by itself, not with 0"):
        heal()


def test_a_disk_that_two_faults_of_one_round_break_is_healed_once(group: HurtGroup) -> None:
    victim = group.members[1]
    heals = [fsync_fails(group, victim), fsync_fails(group, victim)]
    victim.kill()  # its disk has ended it
    for heal in heals:
        heal()
    assert victim.running
    assert not victim.broken.exists()
