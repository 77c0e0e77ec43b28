"""The outcome of a failover and its steps."""

from __future__ import annotations

import enum

import attrs

from trioha.failover.facts import ReplicaFacts
from trioha.failover.plan import Plan


class Result(enum.Enum):
    """Result of a failover."""

    DONE = "done"
    REFUSED = "refused"
    """Nothing has changed, and the message says why."""
    UNREACHABLE = "unreachable"
    """Nothing has changed: a node that is needed did not answer."""
    UNKNOWN = "unknown"
    """The switch may or may not have happened; the message says what to look at."""


@attrs.frozen(kw_only=True)
class Step:
    """One request to one node, with its repetitions, and its result."""

    name: str
    node: str
    started_wall_ms: int
    elapsed_ms: int
    result: str
    ok: bool

    def as_dict(self) -> dict[str, object]:
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class Outcome:
    """Result of a failover, with the plan and all steps."""

    result: Result
    message: str
    plan: Plan
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences on what is done and yet not as it should be."""

    def as_dict(self) -> dict[str, object]:
        """Return the outcome as `-o json` prints it."""
        return {
            "plan": plan_as_dict(self.plan),
            "steps": [step.as_dict() for step in self.steps],
            "result": self.result.value,
            "message": self.message,
            "notes": list(self.notes),
        }


def plan_as_dict(plan: Plan) -> dict[str, object]:
    """Return a plan as `--dry-run -o json` prints it and the audit record keeps it."""
    target, master, loss = plan.target, plan.master, plan.loss
    return {
        "broker": plan.broker_name,
        "kind": plan.kind.value,
        "epoch": plan.epoch,
        "master": None if master is None else _place(master),
        "target": None
        if target is None
        else {
            **_place(target),
            "epoch": target.log_epoch,
            "max_phy_offset": target.max_phy_offset,
        },
        "candidates": [
            {"rank": one.rank, **_place(one.replica), "reason": one.reason}
            for one in plan.candidates
        ],
        "loss": None
        if loss is None
        else {
            "bytes": loss.bytes,
            "exact": loss.exact,
            "acknowledged": loss.acknowledged,
            "text": str(loss),
        },
        "refusals": [
            {"what": one.what, "cure": one.cure, "by_force": one.by_force} for one in plan.refusals
        ],
        "may_run": plan.may_run,
    }


def _place(replica: ReplicaFacts) -> dict[str, object]:
    return {"home_id": replica.home_id, "address": replica.address}
