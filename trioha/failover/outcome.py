"""What became of a failover: step by step, and in the end."""

from __future__ import annotations

import enum

import attrs

from trioha.failover.plan import Plan


class Result(enum.Enum):
    """How it ended."""

    DONE = "done"
    REFUSED = "refused"
    """Nothing has changed, and the message says why."""
    UNREACHABLE = "unreachable"
    """Nothing has changed: who would have to be asked did not answer."""
    UNKNOWN = "unknown"
    """It may or may not have happened; the message says what to look at."""


@attrs.frozen(kw_only=True)
class Step:
    """One request to one node, with its repetitions, and what came of it."""

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
    """The end of it."""

    result: Result
    message: str
    plan: Plan
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    """What is done and yet not as it should be."""

    def as_dict(self) -> dict[str, object]:
        """For `-o json`."""
        return {
            "plan": plan_as_dict(self.plan),
            "steps": [step.as_dict() for step in self.steps],
            "result": self.result.value,
            "message": self.message,
            "notes": list(self.notes),
        }


def plan_as_dict(plan: Plan) -> dict[str, object]:
    """A plan for programs: what `--dry-run -o json` prints and the audit record keeps."""
    target, master, loss = plan.target, plan.master, plan.loss
    return {
        "broker": plan.broker_name,
        "kind": plan.kind.value,
        "epoch": plan.epoch,
        "master": None
        if master is None
        else {"home_id": master.home_id, "address": master.address},
        "target": None
        if target is None
        else {
            "home_id": target.home_id,
            "address": target.address,
            "epoch": target.log_epoch,
            "max_phy_offset": target.max_phy_offset,
        },
        "candidates": [
            {
                "rank": one.rank,
                "home_id": one.replica.home_id,
                "address": one.replica.address,
                "reason": one.reason,
            }
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
