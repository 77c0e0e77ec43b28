"""Beginnings of groups, and members that may not vote: whole members."""

from __future__ import annotations

import pytest
import trio
from support.nodes.raft_members import elected, member_group

from trioha.dledger.membership import ChangeKind
from trioha.dledger.ready import Control, Role
from trioha.sim.raft.disk import DATA, encode, encode_control
from trioha.testing.virtual_time import run_on_virtual_time

pytestmark = pytest.mark.trio(run=run_on_virtual_time)


async def test_a_founder_that_is_missing_is_waited_for_by_name_and_once() -> None:
    async with member_group(3) as rig:
        await rig.start("n0", "n1")
        first = rig["n0"]
        await rig.wait(lambda: any("waits for n2" in str(one) for one in first.events.events))
        await trio.sleep(20)
        told = [one["reason"] for one in first.events.of("raft_waiting")]
        assert len(told) == len(set(told)) <= 3
        assert not first.begun
        assert first.member is not None
        waiting = first.member.status()
        assert "waits for n2" in str(waiting["bootstrap"])
        await rig.start("n2")
        await rig.leader()
        status = first.member.status()
        assert status["bootstrap"] == ""
        offsets = {f"{name}_offset" for name in ("begin", "committed", "held", "end")}
        assert status.keys() - waiting.keys() == {*offsets, "lease_until_ms"}


async def test_members_that_start_one_after_the_other_found_one_group() -> None:
    async with member_group(3) as rig:
        for name in rig.founders:
            await rig.start(name)
            await trio.sleep(2)
        await rig.leader(within_s=5)
        await rig.wait_level()
        assert not any(machine.node.state.impaired for machine in rig.machines.values())


@pytest.mark.parametrize("seed", range(10))
async def test_a_founder_that_dies_while_the_group_begins_still_votes(seed: int) -> None:
    async with member_group(3, seed) as rig:
        await rig.start("n0", "n1", "n2")
        await rig.wait(lambda: rig["n0"].begun or rig["n2"].begun)
        await rig.stop("n1")
        await rig.start("n1")
        await rig.wait_level()
        assert not rig["n1"].node.state.impaired


async def test_a_wiped_member_of_a_living_group_is_a_copy_without_a_vote() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        put = leader.put()
        await rig.wait(lambda: put.safe)
        wiped = next(one for one in rig.machines.values() if one is not leader)
        await rig.stop(wiped.member_id)
        wiped.wipe()
        await rig.start(wiped.member_id)
        await rig.wait_level()
        assert wiped.node.state.impaired
        assert "new dLegerSelfId" in str(wiped.events.of("raft_impaired")[0]["reason"])
        # Its vote is never counted again: without the other follower there is no leader.
        other = next(one for one in rig.machines.values() if one not in (leader, wiped))
        await rig.stop(leader.member_id)
        await trio.sleep(20)
        assert not other.is_leader
        assert wiped.node.state.role is Role.FOLLOWER
        # And it is still one after a restart.
        await rig.stop(wiped.member_id)
        await rig.start(wiped.member_id, leader.member_id)
        await rig.leader()
        assert wiped.node.state.impaired
        assert wiped.member is not None
        assert "without a vote" in str(wiped.member.status()["bootstrap"])


async def test_a_wiped_follower_of_an_idle_group_is_refilled() -> None:
    async with elected(3) as rig:
        leader = await rig.leader()
        puts = [leader.put() for _ in range(100)]
        await rig.wait(lambda: all(put.safe for put in puts))
        await rig.wait_level()
        wiped = next(one for one in rig.machines.values() if one is not leader)
        await rig.stop(wiped.member_id)
        wiped.wipe()
        await rig.start(wiped.member_id)
        await rig.wait_level(within_s=5)


async def test_two_founders_with_messages_begin_nothing() -> None:
    async with member_group(3) as rig:
        for name in ("n0", "n1"):
            disk = rig[name].disk
            disk.append(encode_control(Control(1, ""), 0))
            disk.append(encode(DATA, name.encode()))
        await rig.start()
        third = rig["n2"]
        await rig.wait(
            lambda: any("n0 and n1 have messages" in str(one) for one in third.events.events)
        )
        assert not any(machine.begun for machine in rig.machines.values())


async def test_a_converted_store_is_nobody_s_to_cut_and_the_others_are_promoted() -> None:
    async with member_group(3) as rig:
        seed = rig["n1"]
        seed.disk.append(encode_control(Control(1, ""), 0))
        for number in range(50):
            seed.disk.append(encode(DATA, b"%d" % number))
        seed.disk.synced_offset = end = seed.disk.end_offset
        await rig.start()
        leader = await rig.leader()
        assert leader is seed
        await rig.wait(lambda: leader.node.state.configuration.voters == rig.founders)
        await rig.wait_level()
        assert all(machine.disk.chain_at(end) != -1 for machine in rig.machines.values())
        # The promoted learner votes.
        await rig.stop("n1")
        await rig.leader(other_than="n1")


async def test_who_joins_finds_a_leader_that_is_no_founder() -> None:
    async with elected(3, extra=("n3", "n4")) as rig:
        leader = await rig.leader()
        await rig.start("n3")
        await rig.wait(lambda: rig["n3"].begun)
        member = leader.member
        assert member is not None
        await rig.wait(lambda: not member.change(ChangeKind.ADD_LEARNER, "n3", "n3:1"))
        await rig.wait(lambda: not member.change(ChangeKind.PROMOTE, "n3"))
        await rig.wait(lambda: not member.transfer("n3"))
        await rig.wait(lambda: rig["n3"].is_leader)
        await rig.start("n4")
        await rig.wait(lambda: rig["n4"].begun)


async def test_who_replaces_a_founder_may_live_where_that_lived() -> None:
    async with elected(3, extra=("n3",)) as rig:
        leader = await rig.leader()
        gone = next(one for one in rig.founders if one != leader.member_id)
        await rig.stop(gone)
        member, successor = leader.member, rig["n3"]
        assert member is not None
        await rig.wait(lambda: not member.change(ChangeKind.REMOVE, gone))
        successor.overrides["address"] = f"{gone}:1"
        await rig.start("n3")
        rig.network.listeners[gone] = rig.network.listeners["n3"]
        await rig.wait(lambda: successor.begun)
        await rig.wait(lambda: not member.change(ChangeKind.ADD_LEARNER, "n3", f"{gone}:1"))
        await rig.wait(lambda: not member.change(ChangeKind.PROMOTE, "n3"))
        await rig.wait_level("n3", leader.member_id)
        assert not successor.events.of("raft_refused")


async def test_one_that_is_added_later_waits_copies_and_is_promoted() -> None:
    async with elected(3, extra=("n3",)) as rig:
        leader = await rig.leader()
        await rig.start("n3")
        joining = rig["n3"]
        await rig.wait(lambda: joining.begun)
        assert joining.member is not None
        assert "n3 is no member of g" in str(joining.member.status()["bootstrap"])
        assert leader.member is not None
        assert leader.member.change(ChangeKind.ADD_LEARNER, "n3", "n3:1") == ""
        await rig.wait_level()
        member = leader.member
        await rig.wait(lambda: not member.change(ChangeKind.PROMOTE, "n3"))
        await rig.wait(lambda: "n3" in rig["n3"].node.state.configuration.voters)
        assert joining.member.status()["bootstrap"] == ""
        await rig.stop("n0" if leader.member_id != "n0" else "n1")
        put = leader.put()
        await rig.wait(lambda: put.safe)
