"""Carries out a failover: facts, plan, facts again, the steps, and what to say of the end.

Theory of operation (docs/decisions/0012). Every step is one request that can be repeated under the
ticket; an answer that is lost is asked for again. Before the target may begin its term, all members
but one have promised it (`trioha.ha.quorum`): no older term gathers acknowledgements after that,
whichever node stops at whichever step. The target is the point of decision:

* before the master hands over, whatever fails is given up: tickets go back, and where that cannot
  be said the pause and the ticket end by themselves. Nothing has changed;
* after it, the target promotes; if it says that it did not and gives its ticket back, the old
  master takes over again. If it cannot be asked, nobody knows: the old master stays fenced and goes
  on asking the target by itself, and we say so;
* once the target is master, the rest (followers, name servers, records) is told again or finds out
  by registration. What is not done by then is a note, not a failure.

A second attempt starts from the facts as they are then, so it repairs whatever a first one left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from trioha.errors import RemoteProtocolError
from trioha.failover.asking import Answer, Ask, Failed, Flow, Reply, ask, ask_all, pause
from trioha.failover.facts import Make, ReplicaFacts, SetFacts
from trioha.failover.gathering import brokers_listed, gather_facts
from trioha.failover.outcome import Outcome, Result, Step, plan_as_dict
from trioha.failover.plan import Kind, Plan, Refusal, make_plan
from trioha.ha.mastership import Standing
from trioha.ha.quorum import missing_promises
from trioha.wire.codes import RequestCode, ResponseCode

TICKET_MS = 30_000
"""How long an attempt may take that is never heard of again."""
PAUSE_MS = 5_000
"""How long writes wait at most; a stock producer's own patience is 3 s."""
CATCH_UP_MS = 3_000
PROMOTE_PATIENCE_S = 5.0
"""A target that caught up in bulk has queues to build first."""
ATTEMPTS = 3
RELEASE_ATTEMPTS = 2
_RETRY_S = 0.1
VERIFY_ROUNDS = 40
VERIFY_PAUSE_S = 0.05

Fields = dict[str, Any]


@attrs.frozen(kw_only=True)
class Order:
    """What an operator wants."""

    broker_name: str
    namesrvs: tuple[str, ...]
    ticket_id: str
    """16 hexadecimal digits, random: it becomes the nonce of the new term."""
    operator: str
    """``anna@ops-1``"""
    to: int | None = None
    force: bool = False
    confirmed: Plan | None = None
    """The plan that was agreed to: should the facts now lead to another, nothing is done."""
    patience_s: float = 3.0

    @property
    def target_id(self) -> int | None:
        """Who is to be promoted: as named, else as agreed to; None for the best.

        Under load two slaves in sync take turns at being the furthest. That is no reason to promote
        another than was agreed to; if it matters, the plan for this one has a refusal.
        """
        if self.to is None and self.confirmed is not None and self.confirmed.target is not None:
            return self.confirmed.target.home_id
        return self.to


class _GivenUp(Exception):
    """Nothing has changed and nothing will: a node said no, or could not be asked in time."""

    def __init__(self, message: str, result: Result = Result.REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.result = result


class _Lost(Exception):
    """A step that may or may not have happened."""


def dry_run(order: Order) -> Flow[Plan]:
    """The plan for the facts of the moment; asks, and changes nothing."""
    facts = yield from gather_facts(order.broker_name, order.namesrvs, patience_s=order.patience_s)
    return make_plan(facts, to=order.to, force=order.force)


class FailoverEngine:
    """One attempt. `run` is a generator as `trioha.failover.asking` says."""

    def __init__(
        self,
        order: Order,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        on_step: Callable[[Step], None] = lambda step: None,
    ) -> None:
        self.order = order
        self.steps: list[Step] = []
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._on_step = on_step
        self._started_wall_ms = wall_ms()
        self._notes: list[str] = []
        self._ticketed: list[ReplicaFacts] = []

    def run(self) -> Flow[Outcome]:
        """Gather the facts, and do what they allow."""
        order = self.order
        facts = yield from self._gather()
        plan = make_plan(facts, to=order.target_id, force=order.force)
        why_not = self._obstacle(facts, plan)
        if why_not is not None:
            return self._outcome(plan, *why_not)
        try:
            if plan.kind is Kind.PLANNED:
                outcome = yield from self._planned(plan, facts)
            else:
                outcome = yield from self._forced(plan, facts)
        except _GivenUp as error:
            notes = yield from self._give_back(plan, error.message)
            self._notes += notes
            return self._outcome(plan, error.result, error.message)
        return outcome

    # Before anything is done.

    def _gather(self) -> Flow[SetFacts]:
        order = self.order
        return (
            yield from gather_facts(
                order.broker_name,
                order.namesrvs,
                own_ticket=order.ticket_id,
                patience_s=order.patience_s,
            )
        )

    def _obstacle(self, facts: SetFacts, plan: Plan) -> tuple[Result, str] | None:
        """Why this plan is not carried out, if it is not."""
        if plan.nobody_answers:
            told = "; ".join(f"{one.address}: {one.error}" for one in facts.namesrvs)
            return Result.UNREACHABLE, f"no name server answers: {told}"
        confirmed = self.order.confirmed
        if confirmed is not None and (shift := _shift(confirmed, plan)):
            return Result.REFUSED, f"the facts have changed since the plan was made: {shift}"
        if not plan.may_run:
            return Result.REFUSED, "; ".join(map(str, plan.refusals)) or "nobody to promote"
        return None

    # Both ends are alive.

    def _planned(self, plan: Plan, facts: SetFacts) -> Flow[Outcome]:
        target, master = plan.target, plan.master
        assert target is not None, "a plan that may run has a target"
        assert master is not None, "a planned switch has a master"
        told = yield from self._take_ticket(target)
        _expect(told, Standing.SLAVE, epoch=target.epoch, who=target)
        told = yield from self._take_ticket(master)
        _expect(told, Standing.MASTER, epoch=master.epoch, who=master)
        others = yield from self._take_tickets_of(_others(facts, target, master))

        paused = yield from self._pause(master)
        held = yield from self._catch_up(target, master, paused)
        try:
            yield from self._hand_over(plan, master, target, held)
        except _Lost as error:
            # Perhaps it is fenced, perhaps it has never heard of it: the target decides.
            why = f"{master.name} did not say whether it handed over: {error}"
            return (yield from self._take_back(plan, master, target, why))
        end, sync = int(paused["max_phy_offset"]), paused.get("sync")
        promised = [master.home_id]
        if missing_promises(plan.members, [target.home_id, *promised]):
            promised += yield from self._promises_of(plan, others)
        promoted = yield from self._promote(plan, target, end, sync, promised)
        if isinstance(promoted, str):
            return (yield from self._take_back(plan, master, target, promoted))
        yield from self._tell_followers(plan, promoted, [master, *others])
        return (yield from self._finish(plan, facts))

    def _pause(self, master: ReplicaFacts) -> Flow[Fields]:
        try:
            return (
                yield from self._step(
                    "pause", master, RequestCode.PAUSE_WRITES, {"pause_ms": PAUSE_MS}
                )
            )
        except _Lost as error:
            raise _GivenUp(
                f"{master.name} could not be paused ({error}); if it was, it goes on by itself "
                f"within {PAUSE_MS / 1000:g} s",
                Result.UNREACHABLE,
            ) from None

    def _catch_up(self, target: ReplicaFacts, master: ReplicaFacts, paused: Fields) -> Flow[Fields]:
        """What the target says it holds: all that the master has."""
        end = int(paused["max_phy_offset"])
        body = self._ticket_body() | {
            "log_offset": end,
            "metadata_position": paused.get("metadata_position", 0),
            "wait_ms": CATCH_UP_MS,
        }
        patience_s = CATCH_UP_MS / 1000 + self.order.patience_s
        try:
            told = yield from self._step(
                "catch up", target, RequestCode.FAILOVER_TICKET, body, patience_s=patience_s
            )
        except _Lost as error:
            raise _GivenUp(
                f"{target.name} did not confirm that it holds the master's log: {error}",
                Result.UNREACHABLE,
            ) from None
        if int(told["max_phy_offset"]) < end:
            behind = end - int(told["max_phy_offset"])
            raise _GivenUp(
                f"{target.name} was still {behind} bytes behind {master.name} after "
                f"{CATCH_UP_MS / 1000:g} s; look at the link with `trioha ha status`"
            )
        position = int(paused.get("metadata_position", 0))
        if position and int(told.get("metadata_position", -1)) < position:
            raise _GivenUp(
                f"{target.name} was still without {master.name}'s last changes of topics, groups "
                f"or offsets after {CATCH_UP_MS / 1000:g} s; look at the link with "
                "`trioha ha status`"
            )
        return {"log_offset": end, "metadata_position": max(position, 0)}

    def _hand_over(
        self, plan: Plan, master: ReplicaFacts, target: ReplicaFacts, held: Fields
    ) -> Flow[None]:
        body = {"epoch": plan.epoch, **held, **_peer(target)}
        yield from self._step("hand over", master, RequestCode.HAND_OVER, body)

    def _promises_of(self, plan: Plan, replicas: Sequence[ReplicaFacts]) -> Flow[list[int]]:
        """Ask members to promise the term; the home ids of those that did."""
        promised = []
        for replica in replicas:
            try:
                yield from self._step(
                    "promise", replica, RequestCode.PROMISE, {"epoch": plan.epoch}
                )
            except (_Lost, _GivenUp) as error:
                self._notes.append(f"{replica.name} did not promise epoch {plan.epoch}: {error}")
                continue
            promised.append(replica.home_id)
        return promised

    def _promote(
        self,
        plan: Plan,
        target: ReplicaFacts,
        log_offset: int,
        sync: object,
        promised: Sequence[int],
    ) -> Flow[Fields | str]:
        """What the new master says of itself, or why it is not yet known to be one."""
        body = {
            "epoch": plan.epoch,
            "log_offset": log_offset,
            "sync": sync,
            "planned": plan.kind is Kind.PLANNED,
            "promised": list(promised),
            "written_off": list(plan.written_off),
            "members": {
                str(home_id): address
                for home_id, address in plan.members.items()
                if home_id != target.home_id
            },
        }
        try:
            return (
                yield from self._step(
                    "promote", target, RequestCode.PROMOTE, body, patience_s=PROMOTE_PATIENCE_S
                )
            )
        except (_Lost, _GivenUp) as error:
            return str(error)

    def _take_back(
        self, plan: Plan, master: ReplicaFacts, target: ReplicaFacts, why: str
    ) -> Flow[Outcome]:
        """The target may not have become master: if it says so, the old one goes on."""
        try:
            told = yield from self._step("give back", target, RequestCode.RELEASE, {})
        except (_Lost, _GivenUp) as error:
            return (yield from self._undecided(plan, master, target, f"{why}; {error}"))
        if told.get("used"):
            # Its answer was lost, and more than the answer was not.
            yield from self._tell_followers(plan, told, self._but(target))
            message = f"{target.name} did become master, late ({why}); see `trioha ha status`"
            yield from self._release(self._ticketed, self._record(plan, message))
            return self._outcome(plan, Result.UNKNOWN, message)
        body = self._record(plan, why, result=Result.REFUSED, resume=True)
        yield from self._release(self._but(target, master), body)
        try:
            told = yield from self._step("take back", master, RequestCode.RELEASE, body)
        except (_Lost, _GivenUp) as error:
            told = {"standing": f"silent: {error}"}
        if told.get("standing") != Standing.MASTER.value:
            return self._outcome(
                plan,
                Result.UNKNOWN,
                f"{target.name} was not promoted ({why}), and {master.name}, which should go on, "
                f"is {told.get('standing')}; see `trioha ha status`, then try again",
            )
        return self._outcome(
            plan,
            Result.REFUSED,
            f"{target.name} was not promoted ({why}); {master.name} goes on as master, "
            "nothing is lost",
        )

    def _undecided(
        self, plan: Plan, master: ReplicaFacts | None, target: ReplicaFacts, why: str
    ) -> Flow[Outcome]:
        """The target may have become master, and cannot be asked whether it did."""
        message = f"it is not known whether {target.name} is master of epoch {plan.epoch} ({why})"
        yield from self._release(self._but(target), self._record(plan, message))
        if master is None:
            message += "; see `trioha ha status`, and try again once it answers"
        else:
            message += (
                f"; {master.name} takes no writes until {target.name} can be asked, and asks by "
                "itself; bring that back, or try again with --force"
            )
        return self._outcome(plan, Result.UNKNOWN, message)

    # The master does not answer.

    def _forced(self, plan: Plan, facts: SetFacts) -> Flow[Outcome]:
        target = plan.target
        assert target is not None, "a plan that may run has a target"
        # From here on no replica acknowledges anything to the old master, wherever that may be.
        yield from self._take_ticket(target, forced=True)
        others = yield from self._take_tickets_of(_others(facts, target), forced=True)
        again = yield from self._gather()
        now = make_plan(again, to=target.home_id, force=self.order.force)
        if shift := _shift(plan, now):
            raise _GivenUp(f"the facts have changed since the plan was made: {shift}")
        if not now.may_run:
            raise _GivenUp("; ".join(map(str, now.refusals)))
        plan = now
        assert plan.target is not None, "a plan that may run has a target"
        promised = yield from self._promises_of(plan, others)
        end = plan.target.max_phy_offset or 0
        promoted = yield from self._promote(plan, target, end, None, promised)
        if isinstance(promoted, str):
            why = promoted
            try:
                promoted = yield from self._step("give back", target, RequestCode.RELEASE, {})
            except (_Lost, _GivenUp):
                return (yield from self._undecided(plan, None, target, why))
            if not promoted.get("used"):
                raise _GivenUp(why)
        yield from self._tell_followers(plan, promoted, others)
        return (yield from self._finish(plan, facts))

    # Steps of both.

    def _take_ticket(self, replica: ReplicaFacts, *, forced: bool = False) -> Flow[Fields]:
        # Counted before it is asked for: an answer that is lost may have been a yes.
        self._ticketed.append(replica)
        try:
            return (
                yield from self._step(
                    "ticket",
                    replica,
                    RequestCode.FAILOVER_TICKET,
                    self._ticket_body() | {"forced": forced},
                )
            )
        except _Lost as error:
            raise _GivenUp(f"{replica.name} does not answer: {error}", Result.UNREACHABLE) from None

    def _take_tickets_of(
        self, replicas: Sequence[ReplicaFacts], *, forced: bool = False
    ) -> Flow[list[ReplicaFacts]]:
        """Of those that can be had: who cannot be asked finds out by registration."""
        taken = []
        for replica in replicas:
            try:
                yield from self._take_ticket(replica, forced=forced)
            except _GivenUp as error:
                if error.result is not Result.UNREACHABLE:
                    raise
                self._notes.append(f"{error.message}; it finds the new master by itself")
                continue
            taken.append(replica)
        return taken

    def _tell_followers(
        self, plan: Plan, promoted: Fields, replicas: Sequence[ReplicaFacts]
    ) -> Flow[None]:
        """Name the new master to everybody else, so that nobody waits for a registration."""
        assert plan.target is not None, "a plan that may run has a target"
        body = {
            "epoch": promoted.get("epoch", plan.epoch),
            "nonce": bytes.fromhex(self.order.ticket_id),
            **_peer(plan.target),
        }
        for replica in replicas:
            try:
                yield from self._step("follow", replica, RequestCode.FOLLOW, body)
            except (_Lost, _GivenUp) as error:
                self._notes.append(
                    f"{replica.name} was not told of its new master ({error}); it learns of it "
                    "from a name server, or when it comes back"
                )

    def _finish(self, plan: Plan, facts: SetFacts) -> Flow[Outcome]:
        target = plan.target
        assert target is not None, "a plan that may run has a target"
        namesrvs = [one.address for one in facts.namesrvs if not one.error]
        started_ms, started_wall_ms = self._now_ms(), self._wall_ms()
        late = yield from self._late_namesrvs(namesrvs, target)
        done = f"{target.name} is master of {plan.broker_name} since epoch {plan.epoch}"
        result = Result.DONE
        if late and len(late) == len(namesrvs):
            result = Result.UNKNOWN
            done += (
                f", but no name server says so yet ({', '.join(late)}); see `trioha ha status`: "
                "its registration may still be on its way"
            )
        elif late:
            self._notes.append(f"name server {', '.join(late)} does not list the new master yet")
        self._say("verify", "name servers", started_ms, started_wall_ms, "; ".join(late), not late)
        record = self._record(plan, done, result=result)
        yield from self._release(self._ticketed, record)
        return self._outcome(plan, result, done)

    def _late_namesrvs(self, namesrvs: Sequence[str], target: ReplicaFacts) -> Flow[list[str]]:
        """Those that do not route to the target after a while."""
        late = list(namesrvs)
        for round_number in range(VERIFY_ROUNDS):
            if round_number:
                yield from pause(VERIFY_PAUSE_S)
            replies = yield from ask_all(
                *(
                    Ask(
                        address,
                        RequestCode.GET_BROKER_CLUSTER_INFO,
                        None,
                        self.order.patience_s,
                    )
                    for address in late
                )
            )
            late = [
                address
                for address, reply in zip(late, replies, strict=True)
                if not _routes_to(target, brokers_listed(self.order.broker_name, reply))
            ]
            if not late:
                break
        return late

    # The end.

    def _give_back(self, plan: Plan, message: str) -> Flow[list[str]]:
        """Give every ticket back; what could not be said ends by itself."""
        record = self._record(plan, message, result=Result.REFUSED)
        silent = yield from self._release(self._ticketed, record)
        return [
            f"{one.name} could not be told; its ticket expires within {TICKET_MS / 1000:g} s"
            for one in silent
        ]

    def _release(
        self, replicas: Sequence[ReplicaFacts], body: dict[str, object]
    ) -> Flow[list[ReplicaFacts]]:
        """End the tickets and leave the record, all at once; who did not say that it has it."""
        silent = list(dict.fromkeys(replicas))
        for attempt in range(RELEASE_ATTEMPTS):
            if attempt and silent:
                yield from pause(_RETRY_S)
            started_ms, started_wall_ms = self._now_ms(), self._wall_ms()
            replies = yield from ask_all(
                *(self._request(one, RequestCode.RELEASE, body) for one in silent)
            )
            asked, silent = silent, []
            for replica, reply in zip(asked, replies, strict=True):
                problem = _problem_of(reply)
                self._say("record", replica.name, started_ms, started_wall_ms, problem, not problem)
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

    def _record(
        self,
        plan: Plan,
        message: str,
        *,
        result: Result = Result.UNKNOWN,
        resume: bool = False,
    ) -> dict[str, object]:
        """What the nodes keep of this attempt, as the body of a RELEASE."""
        order = self.order
        record = {
            "ticket_id": order.ticket_id,
            "broker": order.broker_name,
            "operator": order.operator,
            "forced": order.force,
            "started_wall_ms": self._started_wall_ms,
            "ended_wall_ms": self._wall_ms(),
            "plan": plan_as_dict(plan),
            "steps": [step.as_dict() for step in self.steps],
            "result": result.value,
            "message": message,
        }
        return {"audit": record, "resume": resume}

    def _but(self, *excepted: ReplicaFacts) -> list[ReplicaFacts]:
        """Those with a ticket of ours, but these."""
        return [one for one in self._ticketed if one not in excepted]

    def _outcome(self, plan: Plan, result: Result, message: str) -> Outcome:
        return Outcome(
            result=result,
            message=message,
            plan=plan,
            steps=tuple(self.steps),
            notes=tuple(self._notes),
        )

    # One request.

    def _ticket_body(self) -> dict[str, object]:
        return {
            "broker_name": self.order.broker_name,
            "operator": self.order.operator,
            "ttl_ms": TICKET_MS,
        }

    def _step(
        self,
        name: str,
        replica: ReplicaFacts,
        code: RequestCode,
        body: dict[str, object],
        *,
        patience_s: float | None = None,
    ) -> Flow[Fields]:
        """Ask until there is an answer, a few times at most; its fields.

        Errors: _GivenUp for a no, _Lost when nothing is known.
        """
        request = self._request(replica, code, body, patience_s)
        started_ms, started_wall_ms = self._now_ms(), self._wall_ms()
        reply: Reply = Failed("not asked")
        for attempt in range(ATTEMPTS):
            if attempt:
                yield from pause(_RETRY_S * attempt)
            reply = yield from ask(request)
            if isinstance(reply, Answer) and reply.code != ResponseCode.SYSTEM_BUSY:
                break
        problem = _problem_of(reply)
        self._say(name, replica.name, started_ms, started_wall_ms, problem, not problem)
        if isinstance(reply, Failed) or reply.code == ResponseCode.SYSTEM_BUSY:
            raise _Lost(problem)
        if problem:
            raise _GivenUp(f"{replica.name}: {problem}")
        return reply.fields()

    def _say(
        self,
        name: str,
        node: str,
        started_ms: int,
        started_wall_ms: int,
        problem: str,
        ok: bool,
    ) -> None:
        step = Step(
            name=name,
            node=node,
            started_wall_ms=started_wall_ms,
            elapsed_ms=self._now_ms() - started_ms,
            result=problem or "ok",
            ok=ok,
        )
        self.steps.append(step)
        self._on_step(step)


def _problem_of(reply: Reply) -> str:
    """Why a reply is not the answer that was hoped for; "" if it is."""
    if isinstance(reply, Failed):
        return reply.reason
    if not reply.is_success:
        return reply.remark or f"code {reply.code}"
    try:
        reply.fields()
    except RemoteProtocolError as error:
        return str(error)
    return ""


def _others(facts: SetFacts, *taken: ReplicaFacts) -> list[ReplicaFacts]:
    """The rest of those that answer and that we can tell anything."""
    return [
        one
        for one in facts.replicas
        if one.answers and one.make is Make.TRIOHA and one not in taken
    ]


def _expect(told: Fields, standing: Standing, *, epoch: int | None, who: ReplicaFacts) -> None:
    """Are the facts still those of the plan?"""
    if told.get("standing") != standing.value or told.get("epoch") != epoch:
        raise _GivenUp(
            f"the facts have changed since the plan was made: {who.name} is now "
            f"{told.get('standing')} in epoch {told.get('epoch')}"
        )


def _shift(before: Plan, now: Plan) -> str:
    """In what the two plans differ, in words; "" if it does not matter."""
    if before.kind is not now.kind:
        return f"it was to be {before.kind.value}, now it would be {now.kind.value}"
    if before.newest_epoch != now.newest_epoch:
        return f"epoch {before.epoch} was to begin, now it would be {now.epoch}"
    first, second = before.target, now.target
    if first is not None and (second is None or first.home_id != second.home_id):
        return f"{first.name} was to be promoted, now it would be " + (
            second.name if second is not None else f"nobody ({_refusals(now.refusals)})"
        )
    if before.may_run and not now.may_run:
        return _refusals(now.refusals)
    if before.loss is not None and now.loss is not None and now.loss.exceeds(before.loss):
        return f"it would lose {now.loss}, not {before.loss}"
    return ""


def _refusals(refusals: Sequence[Refusal]) -> str:
    return "; ".join(map(str, refusals))


def _routes_to(target: ReplicaFacts, brokers: object) -> bool:
    return isinstance(brokers, dict) and brokers.get(0) == target.address


def _peer(replica: ReplicaFacts) -> dict[str, object]:
    return {
        "home_id": replica.home_id,
        "address": replica.address,
        "ha_address": replica.ha_address,
    }
