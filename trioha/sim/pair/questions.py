"""Questions of a simulated node to the others: the master, and the result of a hand-over."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from trioha.ha.candidacy import Answers
from trioha.ha.hello import Hello, HelloAnswer
from trioha.ha.role_states import State
from trioha.sim.pair.views import SimProcess
from trioha.wire.codes import RequestCode

INTERVAL_MS = 300
RESTART_PATIENCE_MS = 1500
CONFIRM_PATIENCE_MS = 3000


class Questions:
    """The questions of one node, asked again until they are answered."""

    def __init__(self, node: SimProcess) -> None:
        self.remembered = False
        """The name server remembers this node's claim from before the doubt."""
        self._node = node
        self._doubts_since_ms = node.now_ms
        self._asks_target = False
        """The operator's attempt is over, and did not say which master to follow."""
        self._ask_at_ms = 0

    def on_time(self) -> None:
        node, state = self._node, self._node.roles.state
        asks_target = self._asks_target and state is State.HANDED_OVER
        if node.now_ms >= self._ask_at_ms and (asks_target or state is State.UNCONFIRMED):
            self._ask_at_ms = node.now_ms + INTERVAL_MS
            if asks_target:
                self._ask_target()
            else:
                self._hear_members(node.hello(), self._conclude)

    def doubt(self) -> None:
        """Count from now how long members have been asked."""
        self._doubts_since_ms = self._node.now_ms

    def ask_target(self) -> None:
        """Ask the target of a hand-over from now on."""
        self._asks_target = True

    def announce(self) -> None:
        """Tell every member that this node is master."""
        hello = attrs.evolve(self._node.hello(), ha_address=self._node.host)
        for host in self._node.members.values():
            self._node.ask(host, hello, lambda answer: None)

    def _conclude(self, answers: Answers) -> None:
        """Do what the members allow: go on as master, or begin a term that they promise."""
        node, roles = self._node, self._node.roles
        waited_ms = node.now_ms - self._doubts_since_ms
        term = roles.members_said(
            answers,
            remembered=self.remembered,
            moment_over=waited_ms > RESTART_PATIENCE_MS,
            patience_over=waited_ms > CONFIRM_PATIENCE_MS,
        )
        if term is None:
            return

        def begin(answers: Answers) -> None:
            if roles.has_promises(term, answers):
                node.machine.file.flush()
                roles.begin_anew(term)

        wish = attrs.evolve(node.hello(), wants_epoch=term.epoch, wants_nonce=term.nonce)
        self._hear_members(wish, begin)

    def _hear_members(self, hello: Hello, conclude: Callable[[Answers], None]) -> None:
        node, roles = self._node, self._node.roles
        answers: dict[int, HelloAnswer | None] = {}
        members = dict(roles.mastership.members)

        def hear(home_id: int, answer: object) -> None:
            is_it = isinstance(answer, HelloAnswer) and answer.home_id == home_id
            answers[home_id] = answer if is_it else None  # type: ignore[assignment]
            if len(answers) == len(members) and roles.state is State.UNCONFIRMED:
                conclude(answers)

        for home_id, host in members.items():
            node.ask(host, hello, lambda answer, home_id=home_id: hear(home_id, answer))  # type: ignore[misc]

    def _ask_target(self) -> None:
        """Ask whether the target has begun its term; if not, it never will."""
        roles = self._node.roles
        handed_over = roles.handed_over
        assert handed_over is not None, "only a hand-over has a target"

        def hear(answer: object) -> None:
            fields = self._node.fields_of(answer)
            if fields is not None and roles.handed_over is handed_over:
                roles.target_said(used=bool(fields["used"]))

        request = self._node.request(RequestCode.RELEASE, {"ticket_id": handed_over.ticket_id})
        self._node.ask(handed_over.target.address, request, hear)
