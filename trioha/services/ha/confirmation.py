"""Asks the members of the set whether this node may be master (see `ha.confirmation`)."""

from __future__ import annotations

from collections.abc import Callable

import trio

from trioha.config import BrokerConfig
from trioha.ha.events import Term
from trioha.ha.hello import HelloAnswer
from trioha.services.ha.handshake import Handshake
from trioha.services.ha.role_control import RoleControl
from trioha.services.node.log_flush import LogFlush
from trioha.services.node.namesrv_registration import NamesrvRegistration

PATIENCE_S = 2.0  # of each question: a node that lives answers in milliseconds
AGAIN_MIN_S, AGAIN_MAX_S = 0.02, 0.5  # members started together come up one after the other


class Confirmation:
    """Asks the members whenever this node is in doubt, until the doubt is settled."""

    def __init__(
        self,
        config: BrokerConfig,
        roles: RoleControl,
        handshake: Handshake,
        registration: NamesrvRegistration,
        flush: LogFlush,
        tell_role: Callable[[], None],
    ) -> None:
        """`tell_role` reports to the journal the role of a node that came back as a slave."""
        self._config = config
        self._roles = roles
        self._mastership = roles.mastership
        self._handshake = handshake
        self._registration = registration
        self._flush = flush
        self._tell_role = tell_role

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run as long as the node.

        It has started when the doubt that the node started with is settled, or after
        `haRestartPatience`: so a node knows its role when it is ready, unless that takes longer.
        """
        roles = self._roles
        await self._settle_doubt(task_status)
        while True:
            await roles.in_doubt.wait()
            await self._settle_doubt()

    async def _settle_doubt(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        if not self._is_in_doubt():
            task_status.started()
            return
        started_s, again_s, waiting = trio.current_time(), AGAIN_MIN_S, True
        moment_s = started_s + self._config.ha_restart_patience / 1000
        patience_s = started_s + self._config.ha_confirm_patience / 1000
        while self._is_in_doubt():
            answers = await self._hear_members()
            moment_over = trio.current_time() >= moment_s
            term = self._roles.members_said(
                answers,
                remembered=self._registration.remembers_claim_before(started_s),
                moment_over=moment_over,
                patience_over=trio.current_time() >= patience_s,
            )
            if term is not None:
                await self._begin_anew(term)
            if waiting and (moment_over or not self._is_in_doubt()):
                waiting = False
                self._settled(task_status)
            await trio.sleep(again_s)
            again_s = min(2 * again_s, AGAIN_MAX_S)
        if waiting:  # a hello or a name server settled the doubt while this task slept
            self._settled(task_status)

    def _settled(self, task_status: trio.TaskStatus[None]) -> None:
        if not self._roles.is_master:
            self._tell_role()
        task_status.started()

    def _is_in_doubt(self) -> bool:
        return self._mastership.unconfirmed

    async def _begin_anew(self, term: Term) -> None:
        """Begin a new term once a quorum has promised it; else the next round tries again."""
        await self._flush.flush_log()
        answers = await self._hear_members(term)
        if self._roles.has_promises(term, answers):
            self._roles.begin_anew(term)

    async def _hear_members(self, wants: Term | None = None) -> dict[int, HelloAnswer | None]:
        """Ask every member; None for one that is silent, or whose address is another node's now."""
        answers: dict[int, HelloAnswer | None] = {}

        async def ask(home_id: int, address: str) -> None:
            answers[home_id] = None
            with trio.move_on_after(PATIENCE_S):
                answer = await self._handshake.ask_member(address, wants=wants)
                if answer is not None and (answer.broker_name, answer.home_id) == (
                    self._config.broker_name,
                    home_id,
                ):
                    answers[home_id] = answer

        async with trio.open_nursery() as nursery:
            for home_id, address in self._mastership.members.items():
                nursery.start_soon(ask, home_id, address, name=f"confirmation[{address}]")
        return answers
