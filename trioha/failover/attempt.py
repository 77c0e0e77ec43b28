"""One attempt at a failover: its order, its requests, and the record of its steps.

Theory of operation. Every request carries the attempt's ticket and can be repeated under it: a node
that has done it already answers again. `Attempt.step` repeats a request until it has an answer, and
sorts the failures: `GivenUp` if the node rejected it, `Lost` if it may or may not have happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from trioha.errors import RemoteProtocolError
from trioha.failover.asking import Answer, Ask, Failed, Flow, Reply, ask, ask_all, pause
from trioha.failover.facts import ReplicaFacts
from trioha.failover.outcome import Outcome, Result, Step, plan_as_dict
from trioha.failover.plan import Plan
from trioha.wire.codes import RequestCode, ResponseCode

TICKET_MS = 30_000
"""Lifetime of a ticket after its last step, in case the failover's process has died."""
ATTEMPTS = 3
RELEASE_ATTEMPTS = 2
_RETRY_S = 0.1

Fields = dict[str, Any]


@attrs.frozen(kw_only=True)
class Order:
    """An operator's order of a failover."""

    broker_name: str
    namesrvs: tuple[str, ...]
    ticket_id: str
    """16 random hexadecimal digits, which become the nonce of the new term."""
    operator: str
    """User and machine of the operator: ``anna@ops-1``."""
    to: int | None = None
    force: bool = False
    confirmed: Plan | None = None
    """The plan that the operator confirmed. If the facts now lead to another, nothing is done."""
    patience_s: float = 3.0

    @property
    def target_id(self) -> int | None:
        """Id of the slave to promote: the named one, else the confirmed one; None for the best.

        Under load two slaves in sync take turns at having the longest log. That is no reason to
        promote another than the confirmed one; if it matters, the plan for that has a refusal.
        """
        if self.to is None and self.confirmed is not None and self.confirmed.target is not None:
            return self.confirmed.target.home_id
        return self.to


class GivenUp(Exception):
    """Nothing has changed and nothing will: a node rejected a request or could not be asked."""

    def __init__(self, message: str, result: Result = Result.REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.result = result


class Lost(Exception):
    """No answer to a step: it may or may not have happened."""


class Attempt:
    """Sends the requests of one attempt and keeps its steps, notes and tickets."""

    def __init__(
        self,
        order: Order,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        on_step: Callable[[Step], None],
    ) -> None:
        self.order = order
        self.notes: list[str] = []
        """Sentences on what is done and yet not as it should be."""
        self.ticketed: list[ReplicaFacts] = []
        """Replicas that may hold a ticket of this attempt."""
        self._steps: list[Step] = []
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._on_step = on_step
        self._started_wall_ms = wall_ms()

    def take_ticket(self, replica: ReplicaFacts, *, forced: bool = False) -> Flow[Fields]:
        # Noted before the request: the node may give the ticket and its answer be lost.
        self.ticketed.append(replica)
        try:
            return (
                yield from self.step(
                    "ticket",
                    replica,
                    RequestCode.FAILOVER_TICKET,
                    self.ticket_body() | {"forced": forced},
                )
            )
        except Lost as error:
            raise GivenUp(f"{replica.name} does not answer: {error}", Result.UNREACHABLE) from None

    def take_tickets(
        self, replicas: Sequence[ReplicaFacts], *, forced: bool = False
    ) -> Flow[list[ReplicaFacts]]:
        """Take tickets of the replicas that answer; return those replicas.

        The others learn the new master from their next registration.
        """
        taken = []
        for replica in replicas:
            try:
                yield from self.take_ticket(replica, forced=forced)
            except GivenUp as error:
                if error.result is not Result.UNREACHABLE:
                    raise
                self.notes.append(f"{error.message}; it finds the new master by itself")
                continue
            taken.append(replica)
        return taken

    def step(
        self,
        name: str,
        replica: ReplicaFacts,
        code: RequestCode,
        body: dict[str, object],
        *,
        patience_s: float | None = None,
    ) -> Flow[Fields]:
        """Send a request, at most `ATTEMPTS` times until it is answered; return the fields.

        Errors: GivenUp if the node rejects it; Lost if it may or may not have happened.
        """
        request = self._request(replica, code, body, patience_s)
        started = self.start()
        reply: Reply = Failed("not asked")
        for attempt in range(ATTEMPTS):
            if attempt:
                yield from pause(_RETRY_S * attempt)
            reply = yield from ask(request)
            if isinstance(reply, Answer) and reply.code != ResponseCode.SYSTEM_BUSY:
                break
        problem = _problem_of(reply)
        self.say(name, replica.name, started, problem)
        if isinstance(reply, Failed) or reply.code == ResponseCode.SYSTEM_BUSY:
            raise Lost(problem)
        if problem:
            raise GivenUp(f"{replica.name}: {problem}")
        return reply.fields()

    def ticket_body(self) -> dict[str, object]:
        return {
            "broker_name": self.order.broker_name,
            "operator": self.order.operator,
            "ttl_ms": TICKET_MS,
        }

    def give_back(self, plan: Plan, message: str) -> Flow[list[str]]:
        """Give every ticket back; return a note on each replica that did not confirm it."""
        record = self.record(plan, message, result=Result.REFUSED)
        silent = yield from self.release(self.ticketed, record)
        return [
            f"{one.name} could not be reached; its ticket expires within {TICKET_MS / 1000:g} s"
            for one in silent
        ]

    def release(
        self, replicas: Sequence[ReplicaFacts], body: dict[str, object]
    ) -> Flow[list[ReplicaFacts]]:
        """End the tickets and leave the record at `replicas`; return those that did not confirm."""
        silent = list(dict.fromkeys(replicas))
        for attempt in range(RELEASE_ATTEMPTS):
            if attempt and silent:
                yield from pause(_RETRY_S)
            started = self.start()
            replies = yield from ask_all(
                *(self._request(one, RequestCode.RELEASE, body) for one in silent)
            )
            asked, silent = silent, []
            for replica, reply in zip(asked, replies, strict=True):
                problem = _problem_of(reply)
                self.say("record", replica.name, started, problem)
                if problem:
                    silent.append(replica)
        return silent

    def _request(
        self,
        replica: ReplicaFacts,
        code: RequestCode,
        body: dict[str, object],
        patience_s: float | None = None,
    ) -> Ask:
        return Ask(
            replica.address,
            code,
            {"ticket_id": self.order.ticket_id, **body},
            self.order.patience_s if patience_s is None else patience_s,
        )

    def record(
        self,
        plan: Plan,
        message: str,
        *,
        result: Result = Result.UNKNOWN,
        resume: bool = False,
    ) -> dict[str, object]:
        """Return the body of a RELEASE, with the record of this attempt that the nodes keep."""
        order = self.order
        record = {
            "ticket_id": order.ticket_id,
            "broker": order.broker_name,
            "operator": order.operator,
            "forced": order.force,
            "started_wall_ms": self._started_wall_ms,
            "ended_wall_ms": self._wall_ms(),
            "plan": plan_as_dict(plan),
            "steps": [step.as_dict() for step in self._steps],
            "result": result.value,
            "message": message,
        }
        return {"audit": record, "resume": resume}

    def but(self, *excepted: ReplicaFacts) -> list[ReplicaFacts]:
        """Return the replicas with a ticket of this attempt, except `excepted`."""
        return [one for one in self.ticketed if one not in excepted]

    def outcome(self, plan: Plan, result: Result, message: str) -> Outcome:
        return Outcome(
            result=result,
            message=message,
            plan=plan,
            steps=tuple(self._steps),
            notes=tuple(self.notes),
        )

    def start(self) -> tuple[int, int]:
        """Return the time for `say`: milliseconds of the monotonic clock and of the wall clock."""
        return self._now_ms(), self._wall_ms()

    def say(self, name: str, node: str, started: tuple[int, int], problem: str) -> None:
        """Note a step that has ended; `problem` is "" if it succeeded."""
        started_ms, started_wall_ms = started
        step = Step(
            name=name,
            node=node,
            started_wall_ms=started_wall_ms,
            elapsed_ms=self._now_ms() - started_ms,
            result=problem or "ok",
            ok=not problem,
        )
        self._steps.append(step)
        self._on_step(step)


def _problem_of(reply: Reply) -> str:
    """Return why a reply is no success; "" if it is one."""
    if isinstance(reply, Failed):
        return reply.reason
    if not reply.is_success:
        return reply.remark or f"code {reply.code}"
    try:
        reply.fields()
    except RemoteProtocolError as error:
        return str(error)
    return ""
