"""Carries out a failover: facts, plan, facts again, the steps, and the outcome.

Theory of operation (docs/decisions/0012-epochs-and-failover.md). Every step is one request that can
be repeated under the ticket (`trioha.failover.attempt`). Before the target may begin its term, all
members but one have promised it (`trioha.ha.quorum`): no older term gathers acknowledgements after
that, whichever node stops at whichever step. The target is the point of decision:

* Before the master hands over, the engine gives up at any failure and returns the tickets. A node
  that it cannot reach ends the pause and the ticket by itself. Nothing has changed.
* After the master has handed over, the engine promotes the target. If the target answers that it
  did not become master and returns its ticket, the old master takes over again. If the target
  cannot be asked, the outcome is unknown: the old master stays fenced and goes on asking the target
  by itself.
* Once the target is master, the engine tells followers, name servers and records. Nodes that it
  cannot reach learn of the new master from their registration. That is a note, not a failure.

A second attempt starts from the facts as they are then, so it repairs whatever a first one left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trioha.failover.asking import Flow, ask_each, pause
from trioha.failover.attempt import Attempt, Fields, GivenUp, Lost, Order
from trioha.failover.facts import Make, ReplicaFacts, SetFacts
from trioha.failover.gathering import brokers_listed, gather_facts
from trioha.failover.outcome import Outcome, Result, Step
from trioha.failover.plan import Kind, Plan, difference, make_plan
from trioha.ha.mastership import Standing
from trioha.ha.quorum import missing_promises
from trioha.wire.codes import RequestCode

PAUSE_MS = 5_000
"""Longest time for which writes wait; a stock producer's send timeout is 3 s."""
CATCH_UP_MS = 3_000
PROMOTE_PATIENCE_S = 5.0
"""Patience for the promotion: a target that caught up in bulk builds its queues first."""
VERIFY_ROUNDS = 40
VERIFY_PAUSE_S = 0.05

__all__ = ["FailoverEngine", "Order", "dry_run"]


def dry_run(order: Order) -> Flow[Plan]:
    """Return the plan for the present facts; changes nothing."""
    facts = yield from gather_facts(order.broker_name, order.namesrvs, patience_s=order.patience_s)
    return make_plan(facts, to=order.to, force=order.force)


class FailoverEngine:
    """One failover. `run` is a generator as `trioha.failover.asking` describes."""

    def __init__(
        self,
        order: Order,
        *,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        on_step: Callable[[Step], None] = lambda step: None,
    ) -> None:
        self.order = order
        self._attempt = Attempt(order, now_ms=now_ms, wall_ms=wall_ms, on_step=on_step)

    def run(self) -> Flow[Outcome]:
        """Gather the facts, make the plan and carry it out if it may run."""
        order = self.order
        facts = yield from self._gather()
        plan = make_plan(facts, to=order.target_id, force=order.force)
        why_not = self._obstacle(facts, plan)
        if why_not is not None:
            return self._attempt.outcome(plan, *why_not)
        try:
            if plan.kind is Kind.PLANNED:
                outcome = yield from self._planned(plan, facts)
            else:
                outcome = yield from self._forced(plan, facts)
        except GivenUp as error:
            notes = yield from self._attempt.give_back(plan, error.message)
            self._attempt.notes += notes
            return self._attempt.outcome(plan, error.result, error.message)
        return outcome

    # Before the first change.

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
        """Return the reason not to carry out this plan; None if there is none."""
        if plan.nobody_answers:
            told = "; ".join(f"{one.address}: {one.error}" for one in facts.namesrvs)
            return Result.UNREACHABLE, f"no name server answers: {told}"
        confirmed = self.order.confirmed
        if confirmed is not None and (shift := difference(confirmed, plan)):
            return Result.REFUSED, f"the facts have changed since the plan was made: {shift}"
        if not plan.may_run:
            return Result.REFUSED, "; ".join(map(str, plan.refusals)) or "no member can be promoted"
        return None

    # Planned: master and target answer.

    def _planned(self, plan: Plan, facts: SetFacts) -> Flow[Outcome]:
        target, master = plan.target, plan.master
        assert target is not None, "a plan that may run has a target"
        assert master is not None, "a planned switch has a master"
        told = yield from self._attempt.take_ticket(target)
        _expect(told, Standing.SLAVE, epoch=target.epoch, who=target)
        told = yield from self._attempt.take_ticket(master)
        _expect(told, Standing.MASTER, epoch=master.epoch, who=master)
        others = yield from self._attempt.take_tickets(_others(facts, target, master))

        paused = yield from self._pause(master)
        held = yield from self._catch_up(target, master, paused)
        try:
            yield from self._hand_over(plan, master, target, held)
        except Lost as error:
            # The master may be fenced, or may not have got the request: the target decides.
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
                yield from self._attempt.step(
                    "pause", master, RequestCode.PAUSE_WRITES, {"pause_ms": PAUSE_MS}
                )
            )
        except Lost as error:
            raise GivenUp(
                f"{master.name} could not be paused ({error}); if it was, it goes on by itself "
                f"within {PAUSE_MS / 1000:g} s",
                Result.UNREACHABLE,
            ) from None

    def _catch_up(self, target: ReplicaFacts, master: ReplicaFacts, paused: Fields) -> Flow[Fields]:
        """Wait until the target holds the master's log and metadata; return both positions."""
        end = int(paused["max_phy_offset"])
        body = self._attempt.ticket_body() | {
            "log_offset": end,
            "metadata_position": paused.get("metadata_position", 0),
            "wait_ms": CATCH_UP_MS,
        }
        patience_s = CATCH_UP_MS / 1000 + self.order.patience_s
        try:
            told = yield from self._attempt.step(
                "catch up", target, RequestCode.FAILOVER_TICKET, body, patience_s=patience_s
            )
        except Lost as error:
            raise GivenUp(
                f"{target.name} did not confirm that it holds the master's log: {error}",
                Result.UNREACHABLE,
            ) from None
        if int(told["max_phy_offset"]) < end:
            behind = end - int(told["max_phy_offset"])
            raise GivenUp(
                f"{target.name} was still {behind} bytes behind {master.name} after "
                f"{CATCH_UP_MS / 1000:g} s; look at the link with `trioha ha status`"
            )
        position = int(paused.get("metadata_position", 0))
        if position and int(told.get("metadata_position", -1)) < position:
            raise GivenUp(
                f"{target.name} still lacked {master.name}'s last changes of topics, groups "
                f"or offsets after {CATCH_UP_MS / 1000:g} s; look at the link with "
                "`trioha ha status`"
            )
        return {"log_offset": end, "metadata_position": max(position, 0)}

    def _hand_over(
        self, plan: Plan, master: ReplicaFacts, target: ReplicaFacts, held: Fields
    ) -> Flow[None]:
        body = {"epoch": plan.epoch, **held, **_peer(target)}
        yield from self._attempt.step("hand over", master, RequestCode.HAND_OVER, body)

    def _promises_of(self, plan: Plan, replicas: Sequence[ReplicaFacts]) -> Flow[list[int]]:
        """Ask members to promise the term; return the home ids of those that did."""
        promised = []
        for replica in replicas:
            try:
                yield from self._attempt.step(
                    "promise", replica, RequestCode.PROMISE, {"epoch": plan.epoch}
                )
            except (Lost, GivenUp) as error:
                self._attempt.notes.append(
                    f"{replica.name} did not promise epoch {plan.epoch}: {error}"
                )
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
        """Promote the target; return its answer, or the reason why it may not be master."""
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
                yield from self._attempt.step(
                    "promote", target, RequestCode.PROMOTE, body, patience_s=PROMOTE_PATIENCE_S
                )
            )
        except (Lost, GivenUp) as error:
            return str(error)

    def _take_back(
        self, plan: Plan, master: ReplicaFacts, target: ReplicaFacts, why: str
    ) -> Flow[Outcome]:
        """Ask a target that may not have become master; if it has not, the old master goes on."""
        try:
            told = yield from self._attempt.step("give back", target, RequestCode.RELEASE, {})
        except (Lost, GivenUp) as error:
            return (yield from self._undecided(plan, master, target, f"{why}; {error}"))
        if told.get("used"):
            # Only the answer to the promotion was lost: the target has become master.
            yield from self._tell_followers(plan, told, self._attempt.but(target))
            message = f"{target.name} did become master, late ({why}); see `trioha ha status`"
            record = self._attempt.record(plan, message)
            yield from self._attempt.release(self._attempt.ticketed, record)
            return self._attempt.outcome(plan, Result.UNKNOWN, message)
        body = self._attempt.record(plan, why, result=Result.REFUSED, resume=True)
        yield from self._attempt.release(self._attempt.but(target, master), body)
        try:
            told = yield from self._attempt.step("take back", master, RequestCode.RELEASE, body)
        except (Lost, GivenUp) as error:
            told = {"standing": f"not answering: {error}"}
        if told.get("standing") != Standing.MASTER.value:
            return self._attempt.outcome(
                plan,
                Result.UNKNOWN,
                f"{target.name} was not promoted ({why}), and {master.name}, which should go "
                f"on as master, is {told.get('standing')}; see `trioha ha status`, then try again",
            )
        return self._attempt.outcome(
            plan,
            Result.REFUSED,
            f"{target.name} was not promoted ({why}); {master.name} goes on as master, "
            "nothing is lost",
        )

    def _undecided(
        self, plan: Plan, master: ReplicaFacts | None, target: ReplicaFacts, why: str
    ) -> Flow[Outcome]:
        """Return the outcome if the target may have become master and does not answer."""
        message = f"it is not known whether {target.name} is master of epoch {plan.epoch} ({why})"
        record = self._attempt.record(plan, message)
        yield from self._attempt.release(self._attempt.but(target), record)
        if master is None:
            message += "; see `trioha ha status`, and try again once it answers"
        else:
            message += (
                f"; {master.name} takes no writes until {target.name} answers, and asks it by "
                f"itself; bring {target.name} back, or try again with --force"
            )
        return self._attempt.outcome(plan, Result.UNKNOWN, message)

    # Forced: the master does not answer.

    def _forced(self, plan: Plan, facts: SetFacts) -> Flow[Outcome]:
        target = plan.target
        assert target is not None, "a plan that may run has a target"
        # From here on no replica acknowledges anything to the old master, if that still runs.
        yield from self._attempt.take_ticket(target, forced=True)
        others = yield from self._attempt.take_tickets(_others(facts, target), forced=True)
        again = yield from self._gather()
        now = make_plan(again, to=target.home_id, force=self.order.force)
        if shift := difference(plan, now):
            raise GivenUp(f"the facts have changed since the plan was made: {shift}")
        if not now.may_run:
            raise GivenUp("; ".join(map(str, now.refusals)))
        plan = now
        assert plan.target is not None, "a plan that may run has a target"
        promised = yield from self._promises_of(plan, others)
        end = plan.target.max_phy_offset or 0
        promoted = yield from self._promote(plan, target, end, None, promised)
        if isinstance(promoted, str):
            why = promoted
            try:
                promoted = yield from self._attempt.step(
                    "give back", target, RequestCode.RELEASE, {}
                )
            except (Lost, GivenUp):
                return (yield from self._undecided(plan, None, target, why))
            if not promoted.get("used"):
                raise GivenUp(why)
        yield from self._tell_followers(plan, promoted, others)
        return (yield from self._finish(plan, facts))

    # Steps of both kinds.

    def _tell_followers(
        self, plan: Plan, promoted: Fields, replicas: Sequence[ReplicaFacts]
    ) -> Flow[None]:
        """Name the new master to the other replicas, so that they need not wait to register."""
        assert plan.target is not None, "a plan that may run has a target"
        body = {
            "epoch": promoted.get("epoch", plan.epoch),
            "nonce": bytes.fromhex(self.order.ticket_id),
            **_peer(plan.target),
        }
        for replica in replicas:
            try:
                yield from self._attempt.step("follow", replica, RequestCode.FOLLOW, body)
            except (Lost, GivenUp) as error:
                self._attempt.notes.append(
                    f"{replica.name} does not know of its new master yet ({error}); it learns of "
                    "it from a name server, or when it comes back"
                )

    def _finish(self, plan: Plan, facts: SetFacts) -> Flow[Outcome]:
        target = plan.target
        assert target is not None, "a plan that may run has a target"
        namesrvs = [one.address for one in facts.namesrvs if not one.error]
        started = self._attempt.start()
        late = yield from self._late_namesrvs(namesrvs, target)
        done = f"{target.name} is master of {plan.broker_name} since epoch {plan.epoch}"
        result = Result.DONE
        if late and len(late) == len(namesrvs):
            result = Result.UNKNOWN
            done += (
                f", but no name server lists it yet ({', '.join(late)}); its registration may "
                "still be on its way: see `trioha ha status`"
            )
        elif late:
            self._attempt.notes.append(
                f"name server {', '.join(late)} does not list the new master yet"
            )
        self._attempt.say("verify", "name servers", started, "; ".join(late))
        record = self._attempt.record(plan, done, result=result)
        yield from self._attempt.release(self._attempt.ticketed, record)
        return self._attempt.outcome(plan, result, done)

    def _late_namesrvs(self, namesrvs: Sequence[str], target: ReplicaFacts) -> Flow[list[str]]:
        """Return the name servers that do not route to the target after `VERIFY_ROUNDS`."""
        late = list(namesrvs)
        for round_number in range(VERIFY_ROUNDS):
            if round_number:
                yield from pause(VERIFY_PAUSE_S)
            replies = yield from ask_each(
                late, RequestCode.GET_BROKER_CLUSTER_INFO, self.order.patience_s
            )
            late = [
                address
                for address, reply in replies.items()
                if not _routes_to(target, brokers_listed(self.order.broker_name, reply))
            ]
            if not late:
                break
        return late


def _others(facts: SetFacts, *taken: ReplicaFacts) -> list[ReplicaFacts]:
    """Return the trioha replicas that answer, except `taken`."""
    return [
        one
        for one in facts.replicas
        if one.answers and one.make is Make.TRIOHA and one not in taken
    ]


def _expect(told: Fields, standing: Standing, *, epoch: int | None, who: ReplicaFacts) -> None:
    """Check that the facts are still those of the plan. Errors: GivenUp."""
    if told.get("standing") != standing.value or told.get("epoch") != epoch:
        raise GivenUp(
            f"the facts have changed since the plan was made: {who.name} is now "
            f"{told.get('standing')} in epoch {told.get('epoch')}"
        )


def _routes_to(target: ReplicaFacts, brokers: object) -> bool:
    return isinstance(brokers, dict) and brokers.get(0) == target.address


def _peer(replica: ReplicaFacts) -> dict[str, object]:
    return {
        "home_id": replica.home_id,
        "address": replica.address,
        "ha_address": replica.ha_address,
    }
