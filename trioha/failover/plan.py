"""The plan of a failover: its target, its cost, and the reasons against it.

Theory of operation. A plan is a value, made from facts before anything is changed. `--dry-run`
prints it, the console shows it, and the engine carries out the same one. The engine gathers the
facts again right before it acts, and makes the plan anew; `difference` compares both.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs

from trioha.failover.facts import Make, ReplicaFacts, SetFacts
from trioha.failover.ranking import (
    Candidate,
    LossWindow,
    best_of,
    is_ahead,
    loss_of,
    missing_logs,
    rank_candidates,
)
from trioha.ha.mastership import Standing
from trioha.ha.quorum import MISSING_MAX, next_epoch


class Kind(enum.Enum):
    """PLANNED: master and target answer, nothing is lost. FORCED: the master does not answer."""

    PLANNED = "planned"
    FORCED = "forced"


@attrs.frozen
class Refusal:
    """A reason why a plan cannot be carried out, and its cure."""

    what: str
    cure: str
    by_force: bool = False
    """`--force` overrides it."""

    def __str__(self) -> str:
        return f"{self.what}; {self.cure}"


@attrs.frozen(kw_only=True)
class Plan:
    """A failover that can be carried out, or the reasons against it."""

    broker_name: str
    kind: Kind
    epoch: int
    """The epoch that the new master would begin."""
    newest_epoch: int = 0
    """The newest epoch that any member knew of or had promised."""
    master: ReplicaFacts | None
    """The master that steps down; None if it does not answer."""
    target: ReplicaFacts | None
    candidates: tuple[Candidate, ...]
    loss: LossWindow | None
    refusals: tuple[Refusal, ...]
    members: Mapping[int, str] = MappingProxyType({})
    """Addresses of the whole set by home id."""
    written_off: tuple[int, ...] = ()
    """Home ids of the silent members that the operator gives up by force."""
    nobody_answers: bool = False
    """No name server answered: the reason may be the network between here and them."""

    @property
    def may_run(self) -> bool:
        return self.target is not None and not self.refusals


def make_plan(facts: SetFacts, *, to: int | None = None, force: bool = False) -> Plan:
    """Make the plan for these facts. `to` is the target's home id; None takes the best slave.

    `force` drops the refusals that `--force` may override.
    """
    candidates = rank_candidates(facts)
    masters = facts.masters
    master = masters[0] if len(masters) == 1 else None
    kind = Kind.PLANNED if master is not None else Kind.FORCED
    refusals: list[Refusal] = []
    target = _target(facts, candidates, to, refusals)
    if len(masters) > 1:
        names = " and ".join(one.name for one in masters)
        refusals.append(
            Refusal(f"{names} both say that they are master", "stop the wrong one first")
        )
    nobody_answers = not facts.replicas and all(one.error for one in facts.namesrvs)
    if not facts.replicas and not nobody_answers:
        refusals.append(
            Refusal(f"no broker named {facts.broker_name} is registered", "see `trioha ha status`")
        )
    refusals += _held_elsewhere(facts)
    if nobody_answers:
        told = "; ".join(f"{one.address}: {one.error}" for one in facts.namesrvs)
        refusals.append(
            Refusal(f"no name server answers: {told}", "bring one back, or name others")
        )
    else:
        refusals += _unheard_namesrvs(facts)
    loss = None
    if target is not None and target.max_phy_offset is not None:
        if master is not None:
            loss = LossWindow(0, exact=True, acknowledged=False)
            refusals += _unfit_for_planned(facts, master, target)
        else:
            loss = loss_of(facts, target)
            refusals += _unfit_for_forced(facts, candidates, target, loss)
    if force:
        refusals = [refusal for refusal in refusals if not refusal.by_force]
    if any(one.is_raft for one in facts.replicas):
        # The other refusals are about master-slave sets only.
        what = f"{facts.broker_name} is a DLEDGER group: it elects its master itself"
        cure = f"`trioha raft transfer {facts.broker_name}` hands over to another member"
        refusals, target, loss = [Refusal(what, cure)], None, None
    return Plan(
        broker_name=facts.broker_name,
        kind=kind,
        epoch=_epoch_of(facts, target),
        newest_epoch=facts.newest_epoch,
        master=master,
        target=target,
        candidates=candidates,
        loss=loss,
        refusals=tuple(refusals),
        members={one.home_id: one.address for one in facts.replicas},
        written_off=tuple(one.home_id for one in facts.silent) if force else (),
        nobody_answers=nobody_answers,
    )


def difference(before: Plan, now: Plan) -> str:
    """Return how the two plans differ, in words; "" if the difference does not matter."""
    if before.kind is not now.kind:
        return f"the plan was {before.kind.value}, now it would be {now.kind.value}"
    if before.newest_epoch != now.newest_epoch:
        return f"the plan was to begin epoch {before.epoch}, now it would be {now.epoch}"
    first, second = before.target, now.target
    if first is not None and (second is None or first.home_id != second.home_id):
        return f"the plan was to promote {first.name}, now it would be " + (
            second.name if second is not None else f"no member ({_refusals(now.refusals)})"
        )
    if before.may_run and not now.may_run:
        return _refusals(now.refusals)
    if before.loss is not None and now.loss is not None and now.loss.exceeds(before.loss):
        return f"it would lose {now.loss}, not {before.loss}"
    return ""


def _refusals(refusals: Sequence[Refusal]) -> str:
    return "; ".join(map(str, refusals))


def _target(
    facts: SetFacts,
    candidates: tuple[Candidate, ...],
    to: int | None,
    refusals: list[Refusal],
) -> ReplicaFacts | None:
    if to is None:
        best = best_of(candidates)
        if best is None and facts.replicas:
            told = "; ".join(f"{one.replica.name} {one.reason}" for one in candidates)
            refusals.append(
                Refusal(
                    f"no member can be promoted ({told or 'there is no slave'})", "start a slave"
                )
            )
        return None if best is None else best.replica
    replica = facts.by_id(to)
    if replica is None:
        ids = ", ".join(str(one.home_id) for one in facts.replicas)
        refusals.append(Refusal(f"there is no id {to} in {facts.broker_name}", f"there are {ids}"))
        return None
    if replica.standing is Standing.MASTER:
        refusals.append(Refusal(f"{replica.name} is the master", "name another id"))
        return None
    chosen = next(one for one in candidates if one.replica is replica)
    if not chosen.eligible:
        refusals.append(Refusal(f"{replica.name} {chosen.reason}", "choose another"))
        return None
    return replica


def _epoch_of(facts: SetFacts, target: ReplicaFacts | None) -> int:
    if target is None:
        return facts.newest_epoch + 1
    others = [one.home_id for one in facts.replicas if one is not target]
    return next_epoch(facts.newest_epoch, target.home_id, others, silent=len(facts.silent))


def _held_elsewhere(facts: SetFacts) -> list[Refusal]:
    for replica in facts.replicas:
        ticket = replica.ticket
        if ticket is not None:
            return [
                Refusal(
                    f"{ticket.operator} has been running a failover for {ticket.age_s:.0f} s",
                    f"talk to them, or wait {ticket.left_s:.0f} s until that attempt expires",
                )
            ]
    return []


def _unheard_namesrvs(facts: SetFacts) -> list[Refusal]:
    return [
        Refusal(
            f"name server {one.address} cannot be reached: {one.error}",
            "it would go on routing to the old master; bring it back, or use --force",
            by_force=True,
        )
        for one in facts.namesrvs
        if one.error
    ]


def _unfit_for_planned(
    facts: SetFacts, master: ReplicaFacts, target: ReplicaFacts
) -> list[Refusal]:
    if master.make is Make.JAVA:
        return [
            Refusal(
                f"{master.name} is RocketMQ's own broker and cannot step down while it runs",
                "stop it, then fail over",
            )
        ]
    if master.make is not Make.TRIOHA or master.epoch is None:
        return [Refusal(f"{master.name} is of a version that knows no epochs", "upgrade it first")]
    if target.epoch != master.epoch:
        return [
            Refusal(
                f"{target.name} knows epoch {target.epoch}, the master's is {master.epoch}",
                "let it follow the master first",
            )
        ]
    if not target.in_sync:
        return [Refusal(f"{target.name} is not in sync", "wait until `trioha ha status` says so")]
    return _missing(facts, target)


def _missing(facts: SetFacts, target: ReplicaFacts) -> list[Refusal]:
    """Refuse for each missing member that may hold acknowledged messages the target lacks.

    One may be missing (`trioha.ha.quorum`), the lost master first.
    """
    return [
        Refusal(
            f"{one.name} does not answer and may hold more"
            if not one.answers
            else f"{one.name} lost power since it was last up to date, and may have held more",
            "bring it back, or use --force"
            if not one.answers
            else "bring the old master back, or use --force",
            by_force=True,
        )
        for one in missing_logs(facts)[MISSING_MAX:]
        if one is not target
    ]


def _unfit_for_forced(
    facts: SetFacts,
    candidates: tuple[Candidate, ...],
    target: ReplicaFacts,
    loss: LossWindow,
) -> list[Refusal]:
    refusals: list[Refusal] = []
    best = best_of(candidates)
    if best is not None and best.replica is not target and is_ahead(best.replica, target):
        refusals.append(
            Refusal(
                f"{best.replica.name} is the better candidate ({best.reason})",
                f"use --to {best.replica.home_id}, or --force",
                by_force=True,
            )
        )
    refusals += _missing(facts, target)
    if not loss.is_none:
        refusals.append(Refusal(f"would lose {loss}", "use --force to accept that", by_force=True))
    return refusals
