"""Asks the members of the set whether this node may be master again (see `ha.confirmation`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import trio

from trioha.config import BrokerRole
from trioha.ha.confirmation import Answer, Finding, MemberWord, Returning, judge
from trioha.ha.epochs import NONCE_BYTES

if TYPE_CHECKING:
    from trioha.services.master_slave_node import MasterSlaveNode

PATIENCE_S = 2.0  # of each question: a node that lives answers in milliseconds
AGAIN_MIN_S, AGAIN_MAX_S = 0.02, 0.5  # members started together come up one after the other


async def confirm_mastership(
    node: MasterSlaveNode, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Ask until it is known whether the node may be master; at once done if there is no doubt.

    It has started when that is settled, or after `haRestartPatience`: so a node is ready as what
    it is, if that can be found out soon.
    """
    if not _is_in_doubt(node):
        task_status.started()
        return
    started_s, again_s, waiting = trio.current_time(), AGAIN_MIN_S, True
    moment_s = started_s + node.config.ha_restart_patience / 1000
    patience_s = started_s + node.config.ha_confirm_patience / 1000
    while _is_in_doubt(node):
        words = await _ask_members(node)
        moment_over = trio.current_time() >= moment_s
        if _is_in_doubt(node):  # else somebody else has told us
            finding = judge(
                _returning(node),
                words,
                node.mastership.members,
                remembered=node.registration.remembers_claim_before(started_s),
                moment_over=moment_over,
                patience_over=trio.current_time() >= patience_s,
            )
            await _act(node, finding, moment_over=moment_over)
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


def _returning(node: MasterSlaveNode) -> Returning:
    mastership, end = node.mastership, node.store.max_phy_offset
    newest = mastership.newest
    assert newest is not None, "a node without a term was no master"
    return Returning(
        broker_name=node.config.broker_name,
        home_id=mastership.home_id,
        epoch=mastership.epoch,
        log_epoch=mastership.history.epoch_at(end),
        end=end,
        may_have_lost=mastership.may_have_lost,
        sync=newest.sync,
    )


async def _act(node: MasterSlaveNode, finding: Finding, *, moment_over: bool) -> None:
    mastership = node.mastership
    match finding.answer:
        case Answer.CONFIRMED:
            if mastership.confirm():
                node.events.event("confirmed", epoch=mastership.epoch, reason=finding.words)
                node.roles.confirmed()
        case Answer.ANEW:
            await node.flush.flush_log()
            if _is_in_doubt(node):
                node.roles.begin_anew(os.urandom(NONCE_BYTES))
        case Answer.NEWER:
            if mastership.hear(finding.known_epoch, b"", finding.words):
                node.on_fenced(mastership.fenced_by)
        case Answer.AHEAD:
            mastership.fence(finding.words)
            node.on_fenced(finding.words)
        case Answer.WAIT:
            if moment_over and finding.words != mastership.fenced_by:
                mastership.wait_for(finding.words)
                node.events.event("fenced", epoch=mastership.known_epoch, reason=finding.words)


async def _ask_members(node: MasterSlaveNode) -> dict[int, MemberWord | None]:
    words: dict[int, MemberWord | None] = {}

    async def ask(home_id: int, address: str) -> None:
        words[home_id] = None
        with trio.move_on_after(PATIENCE_S):
            words[home_id] = await _ask(node, home_id, address)

    async with trio.open_nursery() as nursery:
        for home_id, address in node.mastership.members.items():
            nursery.start_soon(ask, home_id, address, name=f"confirmation[{address}]")
    return words


async def _ask(node: MasterSlaveNode, home_id: int, address: str) -> MemberWord | None:
    """What the member says of itself; None if it is not there, or is somebody else by now."""
    answer = await node.handshake.ask_member(address)
    if answer is None or (answer.broker_name, answer.home_id) != (node.config.broker_name, home_id):
        return None
    log = answer.log
    return MemberWord(answer.known_epoch, log.history.epoch_at(log.end), log.end)
