"""The task that promotes a member of a group once it is elected, and the waits before its shutdown.

What a pass calls is in `role`. It is compiled, which no task can be.
"""

from __future__ import annotations

import trio

from trioha.errors import DiskFull
from trioha.services.raft.role import GroupRole

_SLICE_BYTES = 262_144
CATCH_UP_S_MAX = 10
"""Longest time to bring the queues up to the log: usually they are milliseconds behind."""


async def run_role(role: GroupRole) -> None:
    """Promote the node whenever it is elected, until cancelled."""
    node = role.node
    if not role.serving and not node.forwarding.master:
        role.park()
    while True:
        await role.elected.wait()
        if role.serving:
            continue
        if node.stopping:
            node.member.resign("the broker is shutting down")
        elif await _catch_up(role):
            role.serve()


async def _catch_up(role: GroupRole) -> bool:
    """Bring the queues up to the log; return False if that fails or another member leads."""
    member = role.node.member
    term, reason = member.term, f"the queues are not up to the log after {CATCH_UP_S_MAX} s"
    with trio.move_on_after(CATCH_UP_S_MAX):
        try:
            reason = await _dispatch(role, term)
        except DiskFull as error:
            reason = f"no room to bring the queues up to the log: {error}"
    leads = member.is_serving and member.term == term
    if leads and reason:
        member.resign(reason)
    return leads and not reason


async def _dispatch(role: GroupRole, term: int) -> str:
    store, member = role.node.store, role.node.member
    while store.dispatched_offset < store.max_phy_offset:
        store.dispatch(_SLICE_BYTES)
        await trio.lowlevel.checkpoint()
        if member.term != term or not member.is_serving:
            break
    metadata = role.node.raft_metadata
    metadata.on_dispatched()
    return "" if metadata.is_current else "there is no room for what the tables need"


async def wait_led(role: GroupRole) -> None:
    """Wait until all parked requests were forwarded to the new leader."""
    while role.node.gate.parked_count:
        await _wait_for_pass(role)


async def wait_answered(role: GroupRole) -> None:
    """Wait until no request waits for a commit any more."""
    core = role.node.core
    while core.pipeline.waiter_count or core.metadata_waits.waiter_count:
        await _wait_for_pass(role)


async def _wait_for_pass(role: GroupRole) -> None:
    if role.moved is None:
        role.moved = trio.Event()
    await role.moved.wait()
