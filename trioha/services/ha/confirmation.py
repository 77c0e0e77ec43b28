"""Asks the members of the set whether this node may be master (see `ha.confirmation`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from trioha.config import BrokerRole
from trioha.ha.events import Term

if TYPE_CHECKING:
    from trioha.ha.hello import HelloAnswer
    from trioha.services.ha.master_slave_node import MasterSlaveNode

PATIENCE_S = 2.0  # of each question: a node that lives answers in milliseconds
AGAIN_MIN_S, AGAIN_MAX_S = 0.02, 0.5  # members started together come up one after the other


async def confirm_mastership(
    node: MasterSlaveNode, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Whenever it is not known whether the node may be master: ask until it is. Runs as long as it.

    It has started when the doubt that the node started with is settled, or after
    `haRestartPatience`: so a node is ready as what it is, if that can be found out soon.
    """
    await _settle_doubt(node, task_status)
    while True:
        await node.roles.in_doubt.wait()
        node.roles.in_doubt = trio.Event()
        await _settle_doubt(node)


async def _settle_doubt(
    node: MasterSlaveNode, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    if not _is_in_doubt(node):
        task_status.started()
        return
    started_s, again_s, waiting = trio.current_time(), AGAIN_MIN_S, True
    moment_s = started_s + node.config.ha_restart_patience / 1000
    patience_s = started_s + node.config.ha_confirm_patience / 1000
    while _is_in_doubt(node):
        answers = await _hear_members(node)
        moment_over = trio.current_time() >= moment_s
        term = node.roles.members_said(
            answers,
            remembered=node.registration.remembers_claim_before(started_s),
            moment_over=moment_over,
            patience_over=trio.current_time() >= patience_s,
        )
        if term is not None:
            await _begin_anew(node, term)
        if waiting and (moment_over or not _is_in_doubt(node)):
            waiting = False
            _settled(node, task_status)
        await trio.sleep(again_s)
        again_s = min(2 * again_s, AGAIN_MAX_S)
    if waiting:  # somebody else has told us while this task slept
        _settled(node, task_status)


def _settled(node: MasterSlaveNode, task_status: trio.TaskStatus[None]) -> None:
    if node.role is BrokerRole.SLAVE:
        node.roles.say_role()
    task_status.started()


def _is_in_doubt(node: MasterSlaveNode) -> bool:
    return node.mastership.unconfirmed


async def _begin_anew(node: MasterSlaveNode, term: Term) -> None:
    """Begin a new term once a quorum has promised it; the next round of questions tries again."""
    await node.flush.flush_log()
    answers = await _hear_members(node, term)
    if node.roles.has_promises(term, answers):
        node.roles.begin_anew(term)


async def _hear_members(
    node: MasterSlaveNode, wants: Term | None = None
) -> dict[int, HelloAnswer | None]:
    """What each member answers; None if it is not there, or is another node by now."""
    answers: dict[int, HelloAnswer | None] = {}

    async def ask(home_id: int, address: str) -> None:
        answers[home_id] = None
        with trio.move_on_after(PATIENCE_S):
            answer = await node.handshake.ask_member(address, wants=wants)
            if answer is not None and (answer.broker_name, answer.home_id) == (
                node.config.broker_name,
                home_id,
            ):
                answers[home_id] = answer

    async with trio.open_nursery() as nursery:
        for home_id, address in node.mastership.members.items():
            nursery.start_soon(ask, home_id, address, name=f"confirmation[{address}]")
    return answers
