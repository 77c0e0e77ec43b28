"""Whole members: elections, replication, and disks and processes that fail."""

from __future__ import annotations

import pytest
import trio
from support.nodes.raft_members import Put, elected, member_group

from trioha.dledger.ready import Role
from trioha.errors import StoreError
from trioha.services.raft.member_tasks import hand_over
from trioha.testing.virtual_time import run_on_virtual_time

pytestmark = pytest.mark.trio(run=run_on_virtual_time)


@pytest.mark.parametrize("size", [1, 3, 5])
async def test_a_group_elects_one_leader_that_commits(size: int) -> None:
    async with elected(size) as rig:
        leader = await rig.leader()
        put = leader.put()
        await rig.wait(lambda: put.safe)
        await rig.wait_level()
        assert len(rig.leaders()) == 1
        roles = leader.events.of("raft_role")
        assert roles[-1]["role"] == "LEADER"


@pytest.mark.parametrize("size", [3, 5])
async def test_ten_thousand_records_are_pipelined_and_every_log_is_equal(size: int) -> None:
    async with elected(size) as rig:
        leader = await rig.leader()
        puts = []
        for number in range(100):
            for _ in range(100):
                puts.append(leader.append(b"%d" % number * 20))
            assert leader.member is not None
            leader.member.log_grown()
            if number % 10 == 0:
                await rig.wait(lambda: puts[0].safe)
        await rig.wait(lambda: all(put.safe for put in puts))
        await rig.wait_level()
        assert {machine.disk.chains[-1] for machine in rig.machines.values()} == {
            leader.disk.chains[-1]
        }


async def test_a_leader_that_is_killed_is_followed_by_another_and_nothing_is_lost() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        puts = [leader.put() for _ in range(50)]
        await rig.wait(lambda: all(put.safe for put in puts))
        later = [leader.put() for _ in range(50)]
        await rig.stop(leader.member_id, power=True)
        assert all(put.unknown for put in later)
        successor = await rig.leader(other_than=leader.member_id, within_s=3)
        assert successor.disk.end_offset >= puts[-1].end_offset
        await rig.start(leader.member_id)
        put = successor.put()
        await rig.wait(lambda: put.safe)
        await rig.wait_level()


@pytest.mark.parametrize("count", [3, 5])
async def test_a_leader_whose_process_dies_is_replaced_within_three_heartbeats(count: int) -> None:
    """Its connections end with it. Only the promise in the last answers has to run out."""
    async with elected(count) as rig:
        leader = await rig.leader()
        await rig.stop(leader.member_id, power=False)
        await rig.leader(other_than=leader.member_id, within_s=0.45)


async def test_a_leader_without_a_majority_steps_down_and_says_unknown() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        rig.network.isolate(leader.member_id)
        put = leader.put()
        await rig.leader(other_than=leader.member_id, within_s=4)
        await rig.wait(lambda: put.unknown)
        assert not leader.is_leader
        rig.network.set_cuts()
        await rig.wait_level(within_s=5)


async def test_a_member_that_hears_but_is_not_heard_disturbs_nobody() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        deaf = next(one for one in rig.machines.values() if one is not leader)
        term = leader.node.state.term
        others = [name for name in rig.founders if name != deaf.member_id]
        rig.network.set_cuts(*((deaf.member_id, other) for other in others))
        puts = [leader.put() for _ in range(10)]
        await rig.wait(lambda: all(put.safe for put in puts))
        await trio.sleep(5)
        rig.network.set_cuts()
        await rig.wait_level(within_s=10)
        assert leader.node.state.term == term


async def test_one_way_cut_off_leader_is_replaced() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        others = [name for name in rig.founders if name != leader.member_id]
        rig.network.set_cuts(*((leader.member_id, other) for other in others))
        successor = await rig.leader(other_than=leader.member_id, within_s=5)
        put = successor.put()
        await rig.wait(lambda: put.safe)
        rig.network.set_cuts()
        await rig.wait_level(within_s=10)


async def test_slow_disks_delay_commits_and_cost_no_leadership() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        term = leader.node.state.term
        for machine in rig.machines.values():
            machine.fsync_ms = 400
        puts = [leader.put() for _ in range(20)]
        await rig.wait(lambda: all(put.safe for put in puts))
        assert leader.node.state.term == term


async def test_a_failed_fsync_ends_the_member_and_its_puts_are_unknown() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        leader.fsync_fails = True
        put = leader.put()
        await rig.wait(lambda: not leader.is_up)
        assert isinstance(leader.died, StoreError)
        # The followers have it on disk and may commit it; the client was not told.
        assert put.unknown
        assert not put.safe
        assert leader.events.of("raft_failed")[0]["reason"] == "fsync failed: Input/output error"
        await rig.leader(other_than=leader.member_id, within_s=4)


async def test_a_log_that_cannot_be_read_for_a_follower_ends_the_leader() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        name = next(one for one in rig.founders if one != leader.member_id)
        await rig.stop(name)
        put = leader.put()
        await rig.wait(lambda: put.safe)
        assert leader.log is not None
        leader.log.rotten = True
        await rig.start(name)
        await rig.wait(lambda: not leader.is_up)
        assert isinstance(leader.died, StoreError)
        assert leader.roles[-1].reason.startswith("disk failed")


async def test_a_vote_that_cannot_be_saved_is_not_given() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        first, second = (one for one in rig.machines.values() if one is not leader)
        first.slots.failing = True
        await rig.stop(leader.member_id)
        await rig.wait(lambda: not first.is_up)
        assert isinstance(first.died, StoreError)
        assert second.node.state.role is not Role.LEADER
        first.slots.failing = False
        await rig.start(first.member_id)
        await rig.leader()


async def test_a_leader_without_room_hands_over_and_a_follower_without_takes_nothing() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        leader.disk.room = 0
        successor = await rig.leader(other_than=leader.member_id, within_s=5)
        put = successor.put()
        await rig.wait(lambda: put.safe)
        assert leader.disk.end_offset < successor.disk.end_offset
        leader.disk.room = None
        await rig.wait_level()


async def test_what_the_broker_appends_while_it_is_told_of_a_commit_counts_after_the_pass() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        appended: list[Put] = []

        def deliver(committed_offset: int) -> None:
            if len(appended) < 5 and leader.member is not None and leader.member.may_append:
                appended.append(leader.append(b"delivered"))
                leader.member.log_grown()

        leader.on_commit_hook = deliver
        leader.put()
        await rig.wait(lambda: len(appended) == 5 and all(put.safe for put in appended))


async def test_what_the_end_of_a_batch_appends_counts_at_once() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        assert leader.server is not None
        member = leader.member
        assert member is not None
        late: list[Put] = []

        def before_answers() -> None:
            if not late and member.may_append:
                late.append(leader.append(b"a table has changed"))
                member.log_grown()

        leader.server.outboxes.before_answers = before_answers
        leader.put()
        assert leader.node.state.end_offset == leader.disk.end_offset
        await rig.wait(lambda: late and late[0].safe)


async def test_bytes_that_were_not_told_yet_count_before_anything_else_happens() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        put = leader.append(b"of this batch")
        assert leader.member is not None
        target = next(name for name in rig.founders if name != leader.member_id)
        assert leader.member.transfer(target) == ""
        await rig.leader(other_than=leader.member_id, within_s=3)
        assert rig[target].disk.end_offset >= put.end_offset


async def test_reads_are_answered_by_a_lease_and_refused_by_followers() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        put = leader.put()
        await rig.wait(lambda: put.safe)
        answers: list[int] = []
        assert leader.member is not None
        leader.member.read(answers.append)
        assert answers == [leader.node.state.committed_offset]
        follower = next(one for one in rig.machines.values() if one is not leader)
        assert follower.member is not None
        follower.member.read(answers.append)
        assert answers[1:] == [-1]


async def test_a_leader_hands_over_before_it_stops() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        assert leader.member is not None
        began_ms = rig.clock.now_ms()
        assert await hand_over(leader.member)
        await rig.leader(other_than=leader.member_id)
        assert rig.clock.now_ms() - began_ms < 500


async def test_nobody_to_hand_over_to() -> None:
    async with member_group(3) as rig:
        await rig.start()
        leader = await rig.leader()
        for name in rig.founders:
            if name != leader.member_id:
                await rig.stop(name)
        assert leader.member is not None
        # It stops leading before it could hand over (True), or no voter is fit (False).
        await hand_over(leader.member)
        assert leader.is_up


async def test_a_commit_that_does_not_come_is_in_the_journal_once() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        for machine in rig.machines.values():
            if machine is not leader:
                machine.fsync_ms = 20_000
        put = leader.put()
        await rig.wait(lambda: put.safe, within_s=60)
        assert len(leader.events.of("raft_commit_stalled")) == 1
        assert len(leader.events.of("raft_commit_resumed")) == 1


async def test_the_status_is_plain_and_says_what_there_is() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        put = leader.put()
        await rig.wait(lambda: put.safe)
        await rig.wait_level()
        assert leader.member is not None
        status = leader.member.status()
        assert status["role"] == "LEADER"
        assert status["leader_id"] == leader.member_id
        assert status["configuration"] == {"voters": ["n0", "n1", "n2"], "learners": []}
        assert status["bootstrap"] == ""
        assert status["refusals"] == []
        assert status["uncommitted_age_ms"] == 0
        followers = status["followers"]
        assert isinstance(followers, list)
        assert [one["phase"] for one in followers] == ["APPEND", "APPEND"]
        links = status["links"]
        assert isinstance(links, list)
        assert all(link["connected"] for link in links)
