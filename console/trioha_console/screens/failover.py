"""The wizard: facts, candidates, what would be lost, the name typed, each step, what became of it.

It stands over the same engine as `trioha failover`, and shows the plan before anything is done. A
console that was not armed shows all of it up to the point where something would change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from trioha.errors import TriohaError
from trioha.failover.audit import audit_records
from trioha.failover.facts import SetFacts
from trioha.failover.gathering import gather_facts
from trioha.failover.outcome import Outcome, Result, Step
from trioha.failover.plan import Kind, Plan, make_plan
from trioha_console.cells import Cell
from trioha_console.failing_over import drive, run_failover
from trioha_console.roles import content_of, lines_of
from trioha_console.screens.failover_tables import (
    MEMBERS,
    STEPS,
    SetMember,
    outcome_words,
    place_of,
    plan_words,
)
from trioha_console.screens.over import OverScreen
from trioha_console.source import Source
from trioha_console.widgets.confirmation import TypedConfirmation
from trioha_console.widgets.grid import Grid
from trioha_console.widgets.header import TitleLine
from trioha_console.widgets.keys import KeysLine


class FailoverStage(Enum):
    """Stage of the wizard."""

    FACTS = "facts"
    PLAN = "plan"
    STEPS = "steps"
    END = "verified"


_STAGES = (
    (FailoverStage.FACTS, "1 facts"),
    (FailoverStage.PLAN, "2 plan and confirmation"),
    (FailoverStage.STEPS, "3 steps"),
    (FailoverStage.END, "4 verification"),
)


class FailoverScreen(OverScreen[None]):
    """`F` on a set, or `:failover BROKER`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("f", "force", "Accept the risk"),
        Binding("r", "again", "Refresh"),
        Binding("c", "confirm", "Go on"),
    ]
    SCOPED_CSS = False
    DEFAULT_CSS = """
    FailoverScreen {
        & > #fo-stages { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
            background: $surface; }
        & > #fo-members { height: auto; min-height: 4; max-height: 9; }
        & > #fo-plan { height: auto; padding: 1 1 0 1; }
        & > #fo-steps { height: 1fr; margin-top: 1; }
        & > #fo-outcome { height: auto; max-height: 8; padding: 0 1; }
    }
    """

    @dataclass(eq=False)
    class Planned(Message):
        """Facts about the set, or the error."""

        facts: SetFacts | None
        error: str = ""

    @dataclass(eq=False)
    class Stepped(Message):
        """A step is over."""

        step: Step

    @dataclass(eq=False)
    class Ended(Message):
        """The failover has ended; `record` is the audit record that a node keeps."""

        outcome: Outcome
        record: Mapping[str, Any] | None

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
        self.stage = FailoverStage.FACTS
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
        return self.stage is FailoverStage.STEPS

    def compose(self) -> ComposeResult:
        yield TitleLine()
        yield Static(id="fo-stages")
        yield Grid(MEMBERS, empty="Asking name servers and members…", id="fo-members")
        yield Static(id="fo-plan", markup=False)
        yield TypedConfirmation(self.broker_name, id="fo-confirm")
        yield Grid(STEPS, empty="No step has been made.", id="fo-steps")
        yield Static(id="fo-outcome", markup=False)
        yield KeysLine()

    def on_mount(self) -> None:
        self._go(FailoverStage.FACTS)
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
            self.query_one("#fo-plan", Static).update(lines_of(event.error))
            return
        self._facts = event.facts
        if self.stage is FailoverStage.END:
            self._show_members(event.facts, None)
        else:
            self._make_plan()

    def _make_plan(self) -> None:
        facts = self._facts
        if facts is None or self.stage in (FailoverStage.STEPS, FailoverStage.END):
            return
        plan = self.plan = make_plan(facts, to=self._to, force=self._force)
        self._show_members(facts, plan)
        self.query_one("#fo-plan", Static).update(plan_words(plan, facts, self._force, self._armed))
        self._go(FailoverStage.PLAN)

    def _show_members(self, facts: SetFacts, plan: Plan | None) -> None:
        """Show the members in the places of the plan or, without one, in their present places."""
        candidates = plan.candidates if plan is not None else ()
        by_address = {one.replica.address: one for one in candidates}
        target = plan.target.address if plan is not None and plan.target is not None else ""
        members = [
            SetMember(one, by_address.get(one.address), one.address == target, plan is not None)
            for one in facts.replicas
        ]
        members.sort(key=place_of)
        grid = self.query_one("#fo-members", Grid)
        grid.empty = f"No broker named {self.broker_name} is known."
        grid.show_rows(members)

    def action_again(self) -> None:
        if not self.in_progress:
            self._steps = []
            self.query_one("#fo-steps", Grid).show_rows([])
            self.query_one("#fo-outcome", Static).update("")
            self._go(FailoverStage.FACTS)
            self._ask_facts()

    def action_force(self) -> None:
        """Turn force on or off: it accepts a loss, a silent candidate or a silent name server."""
        if self.stage is FailoverStage.PLAN:
            self._force = not self._force
            self._make_plan()

    @on(Grid.Chosen, "#fo-members")
    def _chosen(self, event: Grid.Chosen) -> None:
        event.stop()
        if self.stage is FailoverStage.PLAN:
            self._to = event.row.facts.home_id
            self._make_plan()

    # TypedConfirmation.

    def action_confirm(self) -> None:
        self.query_one(TypedConfirmation).open()

    @on(TypedConfirmation.Confirmed)
    def _confirmed(self, event: TypedConfirmation.Confirmed) -> None:
        event.stop()
        self._hide_confirmation()
        self._go(FailoverStage.STEPS)
        grid = self.query_one("#fo-steps", Grid)
        grid.empty = "The first step is on its way…"
        grid.refresh()
        # The program's own, not this screen's: it runs to its end even if the screen closes.
        self.app.run_worker(self._carry_out(), group="failover", description="fails over")

    def _hide_confirmation(self) -> None:
        self.query_one(TypedConfirmation).close()
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
        self._go(FailoverStage.END)
        self._ask_facts()
        self.query_one("#fo-outcome", Static).update(outcome_words(event.outcome, event.record))
        if event.outcome.result is not Result.DONE:
            self.app.bell()

    def _go(self, stage: FailoverStage) -> None:
        self.stage = stage
        self.query_one("#fo-plan").display = stage in (FailoverStage.FACTS, FailoverStage.PLAN)
        self.refresh_bindings()
        kind = ""
        if self.plan is not None and stage is not FailoverStage.FACTS:
            forced = self.plan.kind is Kind.FORCED
            kind = "  forced: the master is out" if forced else "  planned switch"
        title: Cell = (("fail over  ", "title"), (self.broker_name, "strong"))
        title += (("  WRITE", "bad"),) if self._armed else (("  read-only", "dim"),)
        self.query_one(TitleLine).show_title((*title, (kind, "accent")))
        spans: list[tuple[str, str]] = []
        for one, words in _STAGES:
            spans.append((words, "accent" if one is stage else "dim"))
            spans.append(("  →  ", "dim"))
        self.query_one("#fo-stages", Static).update(content_of(tuple(spans[:-1])))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are offered where they mean something."""
        if action in ("force", "confirm"):
            # A key that would be refused is not offered.
            is_asking = any(box.is_open for box in self.query(TypedConfirmation))
            is_idle = self.stage is FailoverStage.PLAN and not is_asking
            may = self.plan is not None and self.plan.may_run and self._armed
            return is_idle and (action == "force" or may)
        if action == "again":
            return not self.in_progress
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        if self.query_one(TypedConfirmation).is_open:
            self._hide_confirmation()
        elif self.in_progress:
            self.notify("The failover runs and ends by itself; wait for it.", severity="warning")
        else:
            self.dismiss()
