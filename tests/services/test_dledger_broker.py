"""Whole members of a DLEDGER group: real stores, real sockets on loopback, quick timers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from support.live_group import NAME, SUCCESS, LiveGroup, live_group

from trioha.client import open_admin
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand


def max_offset(topic: str = "T", queue_id: int = 0) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})


def holds(status: dict[str, Any], end: int) -> bool:
    """Committed as far as it knows, and in its queues, up to here?"""
    return min(status["raft"]["committed_offset"], status["dispatched_offset"]) >= end


async def broker_addresses(group: LiveGroup) -> dict[int, str]:
    """What name servers tell clients of the group: brokerId → address."""
    async with open_admin(group.namesrv) as admin:
        data = (await admin.cluster_info()).broker_addr_table.get(NAME)
        return dict(data.broker_addrs) if data is not None else {}


async def test_three_members_elect_one_that_takes_messages(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        answer = await leader.send()
        assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, 0)
        end = (await leader.status())["max_phy_offset"]
        for member in group.members:
            status = await member.wait(lambda it: holds(it, end))
            assert status["raft"]["leader_id"] == leader.id
            assert (await member.ask(max_offset())).ext_int("offset") == 1


async def test_name_servers_list_the_leader_as_0_and_followers_as_slaves(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        wanted = {0: leader.address} | {
            int(member.id[1:]) + 1: member.address for member in group.besides(leader)
        }
        while await broker_addresses(group) != wanted:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_follower_passes_on_what_is_sent_to_it(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        follower = group.besides(leader)[0]
        await follower.wait(lambda it: it["follows"] == leader.address)
        assert (await follower.send()).code == SUCCESS
        assert (await leader.status())["put_total"] >= 1


async def test_a_leader_that_breaks_off_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        first = await group.leader()
        for number in range(5):
            answer = await first.send(b"%d" % number)
            assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, number)
        term = (await first.status())["raft"]["term"]
        await first.break_off()
        second = await group.leader(*group.besides(first))
        assert (await second.status())["raft"]["term"] > term
        assert (await second.ask(max_offset())).ext_int("offset") == 5
        answer = await second.send(b"5")
        assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, 5)
        await first.start()
        status = await second.status()
        await first.wait(
            lambda it: (
                it["raft"]["committed_offset"] >= status["max_phy_offset"]
                and it["standing"] == "SLAVE"
            )
        )
        assert (await first.ask(max_offset())).ext_int("offset") == 6


async def test_a_leader_that_is_stopped_hands_over_first(tmp_path: Path) -> None:
    async with live_group(tmp_path, d_leger_election_timeout_max=5_000) as group:
        await group.start()
        first = await group.leader()
        assert (await first.send()).code == SUCCESS
        with trio.fail_after(3):
            await first.stop()
            second = await group.leader(*group.besides(first))
        reasons = [str(row["reason"]) for row in second.events.of("raft_role")]
        assert any("hands over" in reason for reason in reasons), reasons
        answer = await second.send()
        assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, 1)


async def test_offsets_and_topics_survive_the_leader(tmp_path: Path) -> None:
    progress = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    async with live_group(tmp_path) as group:
        await group.start()
        first = await group.leader()
        await first.send()
        commit = RemotingCommand(
            RequestCode.UPDATE_CONSUMER_OFFSET, {**progress, "commitOffset": 1}
        )
        assert (await first.ask(commit)).code == SUCCESS
        await first.break_off()
        second = await group.leader(*group.besides(first))
        query = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, progress)
        answer = await second.ask(query)
        assert (answer.code, answer.ext_int("offset")) == (SUCCESS, 1)


async def test_without_a_majority_nothing_is_acknowledged(tmp_path: Path) -> None:
    async with live_group(tmp_path, slave_timeout=300) as group:
        await group.start()
        leader = await group.leader()
        for member in group.besides(leader):
            await member.break_off()
        answer = await leader.send()
        assert answer.code != SUCCESS
        status = await leader.wait(lambda it: it["standing"] == "SLAVE")
        assert status["raft"]["role"] != "LEADER"


async def test_a_group_of_one_serves_and_comes_back(tmp_path: Path) -> None:
    async with live_group(tmp_path, 1) as group:
        await group.start()
        only = await group.leader()
        assert (await only.send()).code == SUCCESS
        await only.stop()
        await only.start()
        again = await group.leader()
        answer = await again.send()
        assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, 1)
