"""The tasks of a member of a Raft group, and the waits of those who use it.

    raft.link[peer]       connect, greet, exchange notes (links.py)
    raft.alarm            wakes the core at its deadline

What each message calls is in `member`.
"""

from __future__ import annotations

import trio

from trioha.dledger.ready import Role
from trioha.services.loop.ringing import ring
from trioha.services.raft.member import RaftMember


async def run_member(
    member: RaftMember, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Take part until cancelled; has started once peers may greet it.

    Errors: StoreError if the disk fails.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.peers.links.run, name="raft.links")
        task_status.started()
        await member.bootstrap.run()
        member.begin()
        nursery.start_soon(ring, member.alarm, name="raft.alarm")


async def hand_over(member: RaftMember) -> bool:
    """Hand the leadership to the fittest voter. Return True once this member does not lead.

    Returns False if no voter is fit. The caller limits the wait by a cancel scope.
    """
    while member.node is not None and not member.has_failed and member.role is Role.LEADER:
        followers = member.node.status().followers
        fit = sorted((one.gap_bytes, one.member_id) for one in followers if one.is_voter)
        if all(member.transfer(other) for _, other in fit):
            return False
        while member.role is Role.LEADER and member.transfer_outcome[0]:
            member.changed = trio.Event()
            await member.changed.wait()
    return True
