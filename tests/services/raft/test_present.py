"""No member of a group answers the past as the present: whole members on a MockClock."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from support.nodes.live_node import SUCCESS, send_request
from support.nodes.virtual_group import (
    PROGRESS,
    VirtualGroup,
    VirtualMember,
    virtual_group,
    without_threads,
)

from trioha.errors import Unreachable
from trioha.wire.codes import PullSysFlag, RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

QUERY = RequestCode.QUERY_CONSUMER_OFFSET
MAX = RequestCode.GET_MAX_OFFSET
PULL = RequestCode.PULL_MESSAGE


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)


@attrs.define
class Answers:
    """Answers of members that were asked all the time."""

    told: list[tuple[str, RequestCode, int, int]] = attrs.Factory(list)
    """Member, request, answer, and what had been acknowledged before the question."""
    rejected: list[tuple[str, RequestCode, int | None]] = attrs.Factory(list)
    """Member, request, code; None where the connection was closed."""
    acknowledged: dict[RequestCode, int] = attrs.Factory(lambda: {QUERY: 0, MAX: 0, PULL: 0})
    """Newest acknowledged value; for a pull, the offset that its client has reached."""

    def stale(self) -> list[tuple[str, RequestCode, int, int]]:
        return [one for one in self.told if one[2] < one[3]]

    async def ask(self, member: VirtualMember, code: RequestCode) -> None:
        """Ask one member once."""
        before = self.acknowledged[code]
        fields = {**PROGRESS, **(pull_fields(before) if code == PULL else {})}
        try:
            answer = await member.ask(RemotingCommand(code, fields))
        except (Unreachable, ConnectionRefusedError):
            self.rejected.append((member.id, code, None))
            return
        if "nextBeginOffset" in answer.ext_fields:
            self.told.append((member.id, code, answer.ext_int("nextBeginOffset"), before))
        elif answer.code == SUCCESS:
            self.told.append((member.id, code, answer.ext_int("offset"), before))
        else:
            self.rejected.append((member.id, code, answer.code))

    async def keep_asking(self, group: VirtualGroup, member: VirtualMember) -> None:
        """Ask every 50 ms until cancelled, without waiting for earlier answers."""
        async with trio.open_nursery() as nursery:
            while True:
                if member.is_up:
                    for code in (QUERY, MAX, PULL):
                        nursery.start_soon(self.ask, member, code)
                await trio.sleep(0.05)

    async def advance(self, leader: VirtualMember, offset: int) -> None:
        """Store one more message and commit the group's offset; both are acknowledged."""
        self.acknowledged[MAX] = self.acknowledged[PULL] = await leader.send() + 1
        await leader.commit(offset)
        self.acknowledged[QUERY] = offset


def pull_fields(offset: int) -> dict[str, ExtValue]:
    return {
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": PullSysFlag.SUBSCRIPTION,
        "commitOffset": 0,
        "subscription": "*",
        "subVersion": 0,
    }


async def test_a_leader_that_was_cut_off_never_answers_what_was_before(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_group(tmp_path) as group, trio.open_nursery() as nursery:
        answers = Answers()
        old = await group.leader()
        await answers.advance(old, 10)
        for member in group.members:
            nursery.start_soon(answers.keep_asking, group, member)
        await trio.sleep(1)
        group.isolate(old)
        new = await group.leader(*group.besides(old))
        await answers.advance(new, 40)
        await answers.advance(new, 40)
        await trio.sleep(5)
        await answers.advance(new, 41)
        await trio.sleep(1)
        assert answers.stale() == []
        group.heal()
        await group.wait(lambda: old.node.forwarding.master)
        await answers.ask(old, QUERY)
        assert answers.told[-1] == (old.id, QUERY, 41, 41)
        assert answers.stale() == []
        nursery.cancel_scope.cancel()


async def test_a_leader_that_starts_again_answers_nothing_before_it_hears_of_a_leader(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_group(tmp_path) as group, trio.open_nursery() as nursery:
        answers = Answers()
        old = await group.leader()
        await answers.advance(old, 10)
        await old.kill()
        new = await group.leader(*group.besides(old))
        await answers.advance(new, 40)
        group.isolate(old)
        await old.start()
        for member in group.members:
            nursery.start_soon(answers.keep_asking, group, member)
        await trio.sleep(5)
        assert answers.stale() == []
        assert (old.id, QUERY, None) in answers.rejected
        assert (old.id, MAX, ResponseCode.SERVICE_NOT_AVAILABLE) in answers.rejected
        group.heal()
        await group.wait(lambda: old.node.forwarding.master)
        await answers.ask(old, QUERY)
        assert answers.told[-1] == (old.id, QUERY, 40, 40)
        assert answers.stale() == []
        nursery.cancel_scope.cancel()


async def test_a_follower_never_tells_an_end_below_what_was_acknowledged(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_group(tmp_path) as group, trio.open_nursery() as nursery:
        answers = Answers()
        leader = await group.leader()
        await answers.advance(leader, 1)
        group.network.latency_ms_max = 40
        for member in group.members:
            nursery.start_soon(answers.keep_asking, group, member)
        for offset in range(2, 20):
            await answers.advance(leader, offset)
        assert answers.stale() == []
        assert {one[0] for one in answers.told} == {"n0", "n1", "n2"}
        nursery.cancel_scope.cancel()


async def test_a_send_that_did_not_get_through_in_time_is_not_stored_after_a_later_one(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_group(tmp_path) as group:
        leader = await group.leader()
        follower = group.besides(leader)[0]
        await group.wait(lambda: follower.node.forwarding.master)
        assert await follower.send() == 0
        async with follower.client() as client:
            assert (await client.request(send_request())).ext_int("queueOffset") == 1
            # Its way to the leader stays, and carries nothing for a while.
            group.network.set_cuts((follower.host, leader.host))
            with trio.move_on_after(0.4):
                await client.request(send_request(b"given up"))
        assert await leader.send() == 2
        group.heal()
        await trio.sleep(10)
        leader = await group.leader()
        assert await leader.send() == 3


async def test_a_send_that_was_parked_is_dropped_with_its_sender(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with virtual_group(tmp_path) as group:
        old = await group.leader()
        others = group.besides(old)
        assert await old.send() == 0
        for member in others:
            await member.kill()
        await group.wait(lambda: not old.leads)
        async with old.client() as client:
            with trio.move_on_after(1):
                await client.request(send_request(b"given up"))
        for member in others:
            await member.start()
        leader = await group.leader()
        await trio.sleep(5)
        assert await leader.send() == 1
