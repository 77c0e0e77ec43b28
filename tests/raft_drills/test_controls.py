"""The rig on trial: a product that breaks its promises must be found out.

The faults are put into the product's own processes, so that what is proved is the way from there to
the verdict: senders, readers and keepers, the cuts, the log that is read in the end, the judge.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from raft_drills.drill import QUEUES, TOPIC, cut_group
from raft_drills.faults import isolate_leader_from_its_peers, net_of
from raft_drills.hurt_group import SETTINGS, HurtGroup, Member
from raft_drills.load import RaftLoad
from raft_drills.member_clients import Mix
from support.processes.admin import create_topic
from support.processes.rig import Processes
from support.processes.status import wait_until

pytestmark = pytest.mark.slow

COUNTS_ALONE = """
from trioha.services.raft.replication import GroupReplication
_log_grown = GroupReplication.log_grown

def log_grown(self):
    _log_grown(self)
    if self.member.may_append:
        self.on_commit(self.store.max_phy_offset)

GroupReplication.log_grown = log_grown
"""
"""Interpreted code calls what is changed here. Compiled code would call the old function."""
SHOWS_EVERYTHING = """
from trioha.broker.visibility import Visibility
_set_limit = Visibility.set_limit
Visibility.set_limit = lambda self, limit: _set_limit(self, 1 << 60)
"""
KEEPS_PROGRESS_TO_ITSELF = """
from trioha.broker.metadata_ops import OffsetsSet, decode_ops
from trioha.broker.raft.metadata import RaftMetadata
_append = RaftMetadata.append

def append(self, position, body):
    if self._leading and all(isinstance(op, OffsetsSet) for op in decode_ops(body)):
        self._replicas.push2slave_max_metadata = position
    else:
        _append(self, position, body)

RaftMetadata.append = append
"""

ANSWERS_FROM_ITS_TABLES = """
from trioha.dledger import answering
from trioha.dledger.answering import RequestKind, ServingState
from trioha.remoting.mode import Mode
answering.MODES = {**answering.MODES, RequestKind.PRESENT: dict.fromkeys(ServingState, Mode.SERVE)}
"""


@pytest.fixture
def broken(request: pytest.FixtureRequest, processes: Processes) -> Iterator[HurtGroup]:
    with cut_group(processes, breakage=request.param) as group:
        yield group


def load_of(group: HurtGroup) -> RaftLoad:
    create_topic(group.leader.address, group.namesrv, TOPIC, QUEUES)
    return RaftLoad(group, TOPIC, mix=Mix(window=1, large_chance=0.0)).start()


def test_a_group_that_acknowledges_before_it_is_on_disk_is_found(processes: Processes) -> None:
    """The setting says so itself: a power cut of a majority loses messages.

    Every page goes back that was not synced. A single member that happened to keep all of its
    pages would be elected, and nothing would be lost. While the disks are slow, an fsync takes
    longer than this test.
    """
    settings = {**SETTINGS, "dLegerReplicatedInMemory": True}
    group = HurtGroup(processes, settings=settings, keeps_synced=True, slow_s=600.0).start()
    load = load_of(group)
    for member in group.members:
        member.slow.touch()
    load.wait_for_progress()
    load.wait_for_progress()
    for member in group.members:
        member.kill()
    rng = random.Random(1)
    assert sum(member.lose_power(rng, page_lost=1.0) for member in group.members) > 0
    for member in group.members:
        member.slow.unlink()
    group.start_all(group.members)
    group.wait_whole()
    assert "was acknowledged to put-" in verdict(group, load)


def cut_off_and_kill(group: HurtGroup, load: RaftLoad) -> Member:
    """A leader without its peers for a while; its clients stay."""
    old = group.leader
    isolate_leader_from_its_peers(group, random.Random(1))
    load.wait_for_progress(30.0, old)
    old.kill()
    net_of(group).heal()
    old.node.start()
    group.wait_whole()
    return old


def verdict(group: HurtGroup, load: RaftLoad) -> str:
    """Stop the drill; return the judge's findings as one text."""
    load.stop_senders()
    end = group.wait_level()
    load.stop_readers()
    group.stop()
    return "\n".join(load.history().findings(group.check_logs(TOPIC, end)))


@pytest.mark.parametrize("broken", [COUNTS_ALONE], indirect=True, ids=[""])
def test_a_leader_that_takes_itself_for_a_majority_is_found(broken: HurtGroup) -> None:
    load = load_of(broken)
    old = cut_off_and_kill(broken, load)
    assert f"was acknowledged to put-{old.member_id}" in verdict(broken, load)


@pytest.mark.parametrize("broken", [SHOWS_EVERYTHING], indirect=True, ids=[""])
def test_a_member_that_shows_what_is_not_committed_is_found(broken: HurtGroup) -> None:
    load = load_of(broken)
    old = cut_off_and_kill(broken, load)
    assert f"read-{old.member_id} read " in verdict(broken, load)


@pytest.mark.parametrize("broken", [KEEPS_PROGRESS_TO_ITSELF], indirect=True, ids=[""])
def test_a_leader_that_keeps_its_groups_progress_to_itself_is_found(broken: HurtGroup) -> None:
    load = load_of(broken)
    old = broken.leader
    keeper = next(one for one in load.keepers if one.member == old.member_id)
    wait_until("progress", lambda: any(one.acknowledged for one in keeper.commits))
    old.kill()
    killed_s = time.monotonic()

    def looked() -> bool:
        return any(
            look.began_s > killed_s and look.key == old.member_id
            for one in load.keepers
            for look in one.looks
        )

    wait_until("looked at", looked)
    old.node.start()
    broken.wait_whole()
    assert f"{old.member_id} was " in verdict(broken, load)


@pytest.mark.parametrize("broken", [ANSWERS_FROM_ITS_TABLES], indirect=True, ids=[""])
def test_a_member_that_answers_the_past_as_the_present_is_found(broken: HurtGroup) -> None:
    load = load_of(broken)
    wait_until("looked at", lambda: all(keeper.looks for keeper in load.keepers))
    old = broken.leader
    isolate_leader_from_its_peers(broken, random.Random(1))
    load.wait_for_progress(30.0, old)
    looks = {keeper.member: keeper.looks for keeper in load.keepers}
    new = broken.leader
    count = len(looks[new.member_id])
    wait_until("progress at the new one", lambda: len(looks[new.member_id]) > count + 30)
    count = len(looks[old.member_id])
    wait_until("the old one was asked", lambda: len(looks[old.member_id]) > count + 30)
    net_of(broken).heal()
    broken.wait_whole()
    found = verdict(broken, load)
    stale = [line for line in found.splitlines() if line.endswith(f" at {old.member_id}")]
    assert any(", then " in line for line in stale), found
