"""The wizard: facts, candidates, what would be lost, the name typed, each step, what became of it.

It stands over the same engine as `trioha failover`, and shows the plan before anything is done. A
console that was not armed shows all of it up to the point where something would change.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar

import attrs
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, Static

from trioha.errors import TriohaError
from trioha.failover.audit import audit_records
from trioha.failover.facts import ReplicaFacts, SetFacts
from trioha.failover.gathering import gather_facts
from trioha.failover.outcome import Outcome, Result, Step
from trioha.failover.plan import Kind, Plan, make_plan
from trioha.failover.ranking import Candidate
from trioha.ha.mastership import Standing
from trioha.times import moment_in_words
from trioha.words import size_in_words
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import NOTHING, Cell, Column, cell
from trioha_console.failing_over import drive, run_failover
from trioha_console.roles import content_of
from trioha_console.source import Source
from trioha_console.widgets.grid import Grid
from trioha_console.widgets.keys import KeysLine


class Stage(Enum):
    """Where the wizard is."""

    FACTS = "facts"
    PLAN = "plan"
    STEPS = "steps"
    END = "verified"


_STAGES = (
    (Stage.FACTS, "1 facts"),
    (Stage.PLAN, "2 plan and confirmation"),
    (Stage.STEPS, "3 steps"),
    (Stage.END, "4 verification"),
)


@attrs.frozen
class Member:
    """One member of the set, in its place among the candidates."""

    facts: ReplicaFacts
    candidate: Candidate | None
    is_target: bool
    is_planned: bool
    """Before the switch; afterwards nobody is a candidate."""


def _choice(row: Member, _: int) -> Cell:
    if row.is_target:
        return (("▶ new", "accent"),)
    if row.facts.standing is Standing.MASTER:
        return (("master", "strong"),)
    if not row.is_planned:
        return ()
    if row.candidate is None or not row.candidate.eligible:
        return (("✖ out", "bad"),)
    return ((f"  {row.candidate.rank}.", ""),)


def _standing(row: Member, _: int) -> Cell:
    if not row.facts.answers:
        return (("silent", "bad"),)
    standing = row.facts.standing
    return NOTHING if standing is None else cell(standing.value)


def _in_sync(row: Member, _: int) -> Cell:
    if row.facts.standing is Standing.MASTER or row.facts.in_sync is None:
        return NOTHING
    return cell("● yes", "good") if row.facts.in_sync else cell("▲ no", "warn")


def _why(row: Member, _: int) -> Cell:
    if not row.facts.answers:
        return cell(row.facts.error, "bad")
    if row.candidate is not None:
        return cell(row.candidate.reason, "dim")
    if row.facts.standing is Standing.MASTER:
        return cell("would step down" if row.is_planned else "takes writes", "dim")
    return cell(f"follows {row.facts.follows}" if row.facts.follows else "follows nobody", "dim")


MEMBERS: Shape[Member] = Shape(
    identity=lambda row: row.facts.address,
    search=lambda row: row.facts.address,
    columns=(
        Column(title="CHOICE", cell=_choice, width=6),
        columns.count("ID", lambda row: row.facts.home_id, 2),
        columns.text("ADDRESS", lambda row: row.facts.address, 15, width_max=22, role="strong"),
        Column(title="STANDING", cell=_standing, width=8),
        columns.count("EPOCH", lambda row: row.facts.log_epoch, 5),
        columns.count("LOG ENDS", lambda row: row.facts.max_phy_offset, 10),
        Column(title="IN SYNC", cell=_in_sync, width=7),
        Column(title="WHY", cell=_why, width=12, width_max=120),
    ),
)

STEPS: Shape[Step] = Shape(
    identity=lambda step: (step.name, step.node, step.started_wall_ms),
    search=lambda step: f"{step.name} {step.node}",
    columns=(
        columns.text("AT (UTC)", lambda step: moment_in_words(step.started_wall_ms)[11:], 12),
        columns.count("MS", lambda step: step.elapsed_ms, 6),
        columns.text("STEP", lambda step: step.name, 10, role="accent"),
        columns.text("NODE", lambda step: step.node, 20, width_max=30),
        Column(
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


class FailoverScreen(Screen[None]):
    """`F` on a set, or `:failover BROKER`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("f", "force", "Accept the risk"),
        Binding("r", "again", "Facts again"),
        Binding("c", "confirm", "Go on"),
    ]
    SCOPED_CSS = False
    DEFAULT_CSS = """
    FailoverScreen {
        & > #fo-title, & > #fo-stages { height: 1; padding: 0 1; text-wrap: nowrap;
            text-overflow: ellipsis; background: $panel; }
        & > #fo-stages { background: $surface; }
        & > #fo-members { height: auto; min-height: 4; max-height: 9; }
        & > #fo-plan { height: auto; padding: 1 1 0 1; }
        & > #fo-confirm { height: 3; border: round $warning; margin: 0 1; display: none; }
        & > #fo-steps { height: 1fr; margin-top: 1; }
        & > #fo-outcome { height: auto; max-height: 8; padding: 0 1; }
    }
    """

    class Planned(Message):
        """The facts are in, or why not."""

        def __init__(self, facts: SetFacts | None, error: str = "") -> None:
            super().__init__()
            self.facts = facts
            self.error = error

    class Stepped(Message):
        """A step is over."""

        def __init__(self, step: Step) -> None:
            super().__init__()
            self.step = step

    class Ended(Message):
        """It is over; `record` is what a node keeps of it."""

        def __init__(self, outcome: Outcome, record: Mapping[str, Any] | None) -> None:
            super().__init__()
            self.outcome = outcome
            self.record = record

    def __init__(
        self,
        source: Source,
        namesrvs: tuple[str, ...],
        broker_name: str,
        *,
        armed: bool,
        to: int | None = None,
    ) -> None:
        super().__init__()
        self.broker_name = broker_name
        self.stage = Stage.FACTS
        self.plan: Plan | None = None
        self._source = source
        self._namesrvs = namesrvs
        self._armed = armed
        self._to = to
        self._force = False
        self._facts: SetFacts | None = None
        self._steps: list[Step] = []

    @property
    def in_progress(self) -> bool:
        return self.stage is Stage.STEPS

    def compose(self) -> ComposeResult:
        yield Static(id="fo-title")
        yield Static(id="fo-stages")
        yield Grid(MEMBERS, empty="Asking name servers and members…", id="fo-members")
        yield Static(id="fo-plan", markup=False)
        yield Input(id="fo-confirm", placeholder=f"type {self.broker_name} and press enter")
        yield Grid(STEPS, empty="No step has been made.", id="fo-steps")
        yield Static(id="fo-outcome", markup=False)
        yield KeysLine()

    def on_mount(self) -> None:
        self._go(Stage.FACTS)
        self.query_one("#fo-members").focus()
        self._ask_facts()

    # Facts and plan.

    def _ask_facts(self) -> None:
        self.app.run_worker(self._gather(), group="failover-facts", exclusive=True)

    async def _gather(self) -> None:
        try:
            facts = await drive(gather_facts(self.broker_name, self._namesrvs), self._source)
        except TriohaError as error:
            self.post_message(self.Planned(None, str(error)))
        else:
            self.post_message(self.Planned(facts))

    @on(Planned)
    def _planned(self, event: Planned) -> None:
        event.stop()
        if event.facts is None:
            self.query_one("#fo-plan", Static).update(event.error)
            return
        self._facts = event.facts
        if self.stage is Stage.END:
            self._show_members(event.facts, None)
        else:
            self._make_plan()

    def _make_plan(self) -> None:
        facts = self._facts
        if facts is None or self.stage in (Stage.STEPS, Stage.END):
            return
        plan = self.plan = make_plan(facts, to=self._to, force=self._force)
        self._show_members(facts, plan)
        self.query_one("#fo-plan", Static).update(plan_words(plan, facts, self._force, self._armed))
        self._go(Stage.PLAN)

    def _show_members(self, facts: SetFacts, plan: Plan | None) -> None:
        """Who would take which place; without a plan, who has which now."""
        candidates = plan.candidates if plan is not None else ()
        by_address = {one.replica.address: one for one in candidates}
        target = plan.target.address if plan is not None and plan.target is not None else ""
        members = [
            Member(one, by_address.get(one.address), one.address == target, plan is not None)
            for one in facts.replicas
        ]
        members.sort(key=_place)
        grid = self.query_one("#fo-members", Grid)
        grid.empty = f"No broker named {self.broker_name} is known."
        grid.show_rows(members)

    def action_again(self) -> None:
        if not self.in_progress:
            self._steps = []
            self.query_one("#fo-steps", Grid).show_rows([])
            self.query_one("#fo-outcome", Static).update("")
            self._go(Stage.FACTS)
            self._ask_facts()

    def action_force(self) -> None:
        """What `--force` does: a loss, a silent candidate, a silent name server are accepted."""
        if self.stage is Stage.PLAN:
            self._force = not self._force
            self._make_plan()

    @on(Grid.Chosen, "#fo-members")
    def _chosen(self, event: Grid.Chosen) -> None:
        event.stop()
        if self.stage is Stage.PLAN:
            self._to = event.row.facts.home_id
            self._make_plan()

    # Confirmation.

    def action_confirm(self) -> None:
        plan = self.plan
        if plan is None or self.stage is not Stage.PLAN:
            return
        if not self._armed:
            self.notify(
                "This console only looks. Start it with --write to change anything.",
                severity="warning",
            )
        elif not plan.may_run:
            self.notify("This plan may not run; see why above.", severity="warning")
        else:
            box = self.query_one("#fo-confirm", Input)
            box.display = True
            box.value = ""
            box.focus()

    @on(Input.Submitted, "#fo-confirm")
    def _confirmed(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip() != self.broker_name:
            self._hide_confirmation()
            self.notify("That is another name; nothing has been done.", severity="warning")
            return
        self._hide_confirmation()
        self._go(Stage.STEPS)
        grid = self.query_one("#fo-steps", Grid)
        grid.empty = "The first step is on its way…"
        grid.refresh()
        # The program's own, not this screen's: whatever becomes of the screen, it runs to its end.
        self.app.run_worker(self._carry_out(), group="failover", description="fails over")

    def _hide_confirmation(self) -> None:
        self.query_one("#fo-confirm", Input).display = False
        self.query_one("#fo-members").focus()

    # Steps and their end.

    async def _carry_out(self) -> None:
        plan = self.plan
        assert plan is not None, "a plan was confirmed"
        outcome = await run_failover(
            self._source,
            self._namesrvs,
            plan,
            force=self._force,
            on_step=self._say_step,
        )
        record = None
        try:
            records, _ = await drive(audit_records(self.broker_name, self._namesrvs), self._source)
            record = records[-1] if records else None
        except TriohaError:
            pass  # the outcome stands without it
        self.post_message(self.Ended(outcome, record))

    def _say_step(self, step: Step) -> None:
        self.post_message(self.Stepped(step))

    @on(Stepped)
    def _stepped(self, event: Stepped) -> None:
        event.stop()
        self._steps.append(event.step)
        grid = self.query_one("#fo-steps", Grid)
        grid.show_rows(list(self._steps))
        grid.cursor = len(self._steps) - 1

    @on(Ended)
    def _ended(self, event: Ended) -> None:
        event.stop()
        self._go(Stage.END)
        self._ask_facts()
        self.query_one("#fo-outcome", Static).update(outcome_words(event.outcome, event.record))
        if event.outcome.result is not Result.DONE:
            self.app.bell()

    def _go(self, stage: Stage) -> None:
        self.stage = stage
        self.query_one("#fo-plan").display = stage in (Stage.FACTS, Stage.PLAN)
        self.refresh_bindings()
        kind = ""
        if self.plan is not None and stage is not Stage.FACTS:
            forced = self.plan.kind is Kind.FORCED
            kind = "  forced: the master is out" if forced else "  planned switch"
        title: Cell = (("fail over  ", "title"), (self.broker_name, "strong"), (kind, "accent"))
        title += (("  WRITE", "bad"),) if self._armed else (("  read-only", "dim"),)
        self.query_one("#fo-title", Static).update(content_of(title))
        spans: list[tuple[str, str]] = []
        for one, words in _STAGES:
            spans.append((words, "accent" if one is stage else "dim"))
            spans.append(("  →  ", "dim"))
        self.query_one("#fo-stages", Static).update(content_of(tuple(spans[:-1])))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are offered where they mean something."""
        if action in ("force", "confirm"):
            return self.stage is Stage.PLAN
        if action == "again":
            return not self.in_progress
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        if self.query_one("#fo-confirm", Input).display:
            self._hide_confirmation()
        elif self.in_progress:
            self.notify("The failover runs and ends by itself; wait for it.", severity="warning")
        else:
            self.dismiss()


def _place(row: Member) -> tuple[int, int, int]:
    """The master, then candidates by rank, then those that cannot be."""
    rank = row.candidate.rank if row.candidate is not None else 0
    is_master = row.facts.standing is Standing.MASTER
    return 0 if is_master else 1 if rank else 2, rank, row.facts.home_id


def plan_words(plan: Plan, facts: SetFacts, force: bool, armed: bool) -> Content:
    """What would happen, what it costs, what forbids it, what to press."""
    lines: list[Cell] = []
    if plan.target is not None:
        who = f"{plan.target.name} becomes master of epoch {plan.epoch}"
        steps_down = f", {plan.master.name} steps down" if plan.master is not None else ""
        lines.append((("would do   ", "dim"), (f"{who}{steps_down}", "strong")))
        chosen = next((one for one in plan.candidates if one.replica is plan.target), None)
        if chosen is not None:
            lines.append((("because    ", "dim"), (chosen.reason, "")))
    if plan.loss is not None:
        role = "good" if plan.loss.is_none else "bad"
        mark = "●" if plan.loss.is_none else "✖"
        size = f" ({size_in_words(plan.loss.bytes)})" if plan.loss.bytes else ""
        lines.append((("would lose ", "dim"), (f"{mark} {plan.loss}{size}", role)))
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
    """How it ended, what is not yet as it should be, and what the nodes keep of it."""
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
