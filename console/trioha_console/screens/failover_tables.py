"""Tables and texts of the wizard: members and candidates, steps, plan, outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from textual.content import Content

from trioha.failover.facts import ReplicaFacts, SetFacts
from trioha.failover.outcome import Outcome, Result, Step
from trioha.failover.plan import Plan
from trioha.failover.ranking import Candidate
from trioha.ha.mastership import Standing
from trioha.times import moment_in_words
from trioha.words import size_in_words
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import NOTHING, Cell, GridColumn, cell
from trioha_console.roles import content_of


@attrs.frozen
class SetMember:
    """One member of the set, in its place among the candidates."""

    facts: ReplicaFacts
    candidate: Candidate | None
    is_target: bool
    is_planned: bool
    """True while there is a plan; after the switch there is none, and no candidate."""


def _choice(row: SetMember, _: int) -> Cell:
    if row.is_target:
        return (("▶ new", "accent"),)
    if row.facts.standing is Standing.MASTER:
        return (("master", "strong"),)
    if not row.is_planned:
        return ()
    if row.candidate is None or not row.candidate.eligible:
        return (("✖ out", "bad"),)
    return ((f"  {row.candidate.rank}.", ""),)


def _standing(row: SetMember, _: int) -> Cell:
    if not row.facts.answers:
        return (("unreachable", "bad"),)
    standing = row.facts.standing
    return NOTHING if standing is None else cell(standing.value)


def _in_sync(row: SetMember, _: int) -> Cell:
    if row.facts.standing is Standing.MASTER or row.facts.in_sync is None:
        return NOTHING
    return cell("● yes", "good") if row.facts.in_sync else cell("▲ no", "warn")


def _why(row: SetMember, _: int) -> Cell:
    if not row.facts.answers:
        return cell(row.facts.error, "bad")
    if row.candidate is not None:
        return cell(row.candidate.reason, "dim")
    if row.facts.standing is Standing.MASTER:
        return cell("would step down" if row.is_planned else "takes writes", "dim")
    return cell(f"follows {row.facts.follows}" if row.facts.follows else "follows nobody", "dim")


MEMBERS: Shape[SetMember] = Shape(
    name="failover",
    identity=lambda row: row.facts.address,
    search=lambda row: row.facts.address,
    columns=(
        GridColumn(title="CHOICE", cell=_choice, width=6),
        columns.count("ID", lambda row: row.facts.home_id, 2),
        columns.text("ADDRESS", lambda row: row.facts.address, 15, width_max=22, role="strong"),
        GridColumn(title="ROLE", cell=_standing, width=11),
        columns.count("EPOCH", lambda row: row.facts.log_epoch, 5),
        columns.count("LOG ENDS", lambda row: row.facts.max_phy_offset, 10),
        GridColumn(title="IN SYNC", cell=_in_sync, width=7),
        GridColumn(title="WHY", cell=_why, width=12, width_max=120),
    ),
)

STEPS: Shape[Step] = Shape(
    name="steps",
    identity=lambda step: (step.name, step.node, step.started_wall_ms),
    search=lambda step: f"{step.name} {step.node}",
    columns=(
        columns.text("AT (UTC)", lambda step: moment_in_words(step.started_wall_ms)[11:], 12),
        columns.count("MS", lambda step: step.elapsed_ms, 6),
        columns.text("STEP", lambda step: step.name, 10, role="accent"),
        columns.text("NODE", lambda step: step.node, 20, width_max=30),
        GridColumn(
            title="RESULT",
            cell=lambda step, _: cell(
                f"● {step.result}" if step.ok else f"✖ {step.result}", "good" if step.ok else "bad"
            ),
            key=lambda step: step.result,
            width=20,
            width_max=120,
        ),
    ),
)


def place_of(row: SetMember) -> tuple[int, int, int]:
    """Return the sort key: the master, then candidates by rank, then all other members."""
    rank = row.candidate.rank if row.candidate is not None else 0
    is_master = row.facts.standing is Standing.MASTER
    return 0 if is_master else 1 if rank else 2, rank, row.facts.home_id


def plan_words(plan: Plan, facts: SetFacts, force: bool, armed: bool) -> Content:
    """Return the plan in words: its steps, its cost, what forbids it, the keys to press."""
    lines: list[Cell] = []
    if plan.target is not None:
        who = f"{plan.target.name} becomes master of epoch {plan.epoch}"
        steps_down = f", {plan.master.name} steps down" if plan.master is not None else ""
        lines.append((("plan       ", "dim"), (f"{who}{steps_down}", "strong")))
        chosen = next((one for one in plan.candidates if one.replica is plan.target), None)
        if chosen is not None:
            lines.append((("because    ", "dim"), (chosen.reason, "")))
    if plan.loss is not None:
        role = "good" if plan.loss.is_none else "bad"
        mark = "●" if plan.loss.is_none else "✖"
        size = f" ({size_in_words(plan.loss.bytes)})" if plan.loss.bytes else ""
        lines.append((("data loss  ", "dim"), (f"{mark} {plan.loss}{size}", role)))
    for namesrv in facts.namesrvs:
        words = namesrv.error or f"routes to {namesrv.master or 'no master'}"
        role = "bad" if namesrv.error else ""
        lines.append((("name server", "dim"), (f" {namesrv.address} {words}", role)))
    for refusal in plan.refusals:
        lines.append((("✖ ", "bad"), (refusal.what, "bad"), (f"; {refusal.cure}", "")))
    by_force = [one for one in plan.refusals if one.by_force]
    if by_force and len(by_force) == len(plan.refusals):
        lines.append((("f", "accent"), (" accepts that risk", "")))
    if force:
        lines.append((("▲ the risk is accepted; f takes that back", "warn"),))
    if plan.may_run:
        if armed:
            lines.append((("c", "accent"), (" goes on; the broker's name is asked for", "")))
        else:
            lines.append((("This console only looks: start it with --write to go on.", "warn"),))
    return Content("\n").join(content_of(line) for line in lines)


def outcome_words(outcome: Outcome, record: Mapping[str, Any] | None) -> Content:
    """Return the outcome in words: result, notes, and the audit record that the nodes keep."""
    done = outcome.result is Result.DONE
    mark, role = ("●", "good") if done else ("✖", "bad")
    lines: list[Cell] = [((f"{mark} {outcome.result.value}: {outcome.message}", role),)]
    lines += [((f"▲ {note}", "warn"),) for note in outcome.notes]
    if record is not None:
        took = int(record.get("ended_wall_ms", 0)) - int(record.get("started_wall_ms", 0))
        words = f"{record.get('operator')}, {took} ms, ticket {record.get('ticket_id')}"
        lines.append((("audit      ", "dim"), (f"{record.get('result')}: {words}", "")))
    lines.append((("escape goes back to the cluster", "dim"),))
    return Content("\n").join(content_of(line) for line in lines)
