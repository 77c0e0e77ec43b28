"""One change: the plan, the name typed where something is lost, how far it is, its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from trioha.errors import OutcomeUnknown, TriohaError
from trioha.jobs.telling import JobScope
from trioha_console.cells import Cell
from trioha_console.failing_over import drive
from trioha_console.planned import Done, Planned, PlannedOperation
from trioha_console.roles import content_of
from trioha_console.screens.over import OverScreen
from trioha_console.source import Source
from trioha_console.widgets.confirmation import TypedConfirmation
from trioha_console.widgets.header import TitleLine
from trioha_console.widgets.keys import KeysLine

_SAID_EVERY_S = 0.2


class OperationStage(Enum):
    """Stage of an operation."""

    PLANNING = "planning"
    PLAN = "plan"
    RUNNING = "running"
    END = "end"


class OperationScreen(OverScreen[str | None]):
    """Screen of an operation; its result is the reason if no plan could be made."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("c", "confirm", "Go on"),
        Binding("r", "again", "Refresh"),
    ]
    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    OperationScreen {
        & > VerticalScroll { height: auto; max-height: 1fr; padding: 1 1 0 1; }
        & #op-plan { height: auto; }
        & > #op-outcome { height: auto; max-height: 50%; padding: 1 1 0 1; }
    }
    """

    @dataclass(eq=False)
    class PlanMade(Message):
        """The plan, or the error."""

        plan: Planned | None
        error: str = ""

    @dataclass(eq=False)
    class Ended(Message):
        """The operation has ended."""

        mark: str
        role: str
        lines: Sequence[str]

    def __init__(self, source: Source, operation: PlannedOperation, *, armed: bool) -> None:
        super().__init__()
        self.operation = operation
        self.stage = OperationStage.PLANNING
        self._source = source
        self._armed = armed
        self._scope = JobScope(source.namesrvs)
        self._plan: Planned | None = None
        self._said_s = 0.0

    @property
    def has_ended(self) -> bool:
        """The operation was carried out, or failed on the way."""
        return self.stage is OperationStage.END

    @property
    def in_progress(self) -> bool:
        return self.stage is OperationStage.RUNNING

    def compose(self) -> ComposeResult:
        yield TitleLine()
        with VerticalScroll(can_focus=False):
            yield Static("Asking the cluster…", id="op-plan", markup=False)
        yield TypedConfirmation(self.operation.name)
        yield Static(id="op-outcome", markup=False)
        yield KeysLine()

    def on_mount(self) -> None:
        title: Cell = ((f"{self.operation.title}  ", "title"), (self.operation.name, "strong"))
        title += (("  WRITE", "bad"),) if self._armed else (("  read-only", "dim"),)
        self.query_one(TitleLine).show_title(title)
        self._make_plan()

    def _make_plan(self) -> None:
        self._go(OperationStage.PLANNING)
        self.app.run_worker(self._ask_for_plan(), group="operation-plan", exclusive=True)

    async def _ask_for_plan(self) -> None:
        try:
            plan = await drive(self.operation.plan(self._scope), self._source)
        except TriohaError as error:
            self.post_message(self.PlanMade(None, str(error)))
        else:
            self.post_message(self.PlanMade(plan))

    @on(PlanMade)
    def _planned(self, event: PlanMade) -> None:
        event.stop()
        if event.plan is None:
            self.dismiss(event.error)
            return
        self._plan = event.plan
        self.query_one("#op-plan", Static).update(_plan_words(event.plan, self._armed))
        self._go(OperationStage.PLAN)

    def action_confirm(self) -> None:
        plan = self._plan
        assert plan is not None, "the key is offered with a plan"
        if plan.is_confirmed_by_name:
            self.query_one(TypedConfirmation).open()
        else:
            self._start()

    @on(TypedConfirmation.Confirmed)
    def _confirmed(self, event: TypedConfirmation.Confirmed) -> None:
        event.stop()
        self._start()

    def _start(self) -> None:
        self.set_focus(None)
        self._say("in progress…")
        self._go(OperationStage.RUNNING)
        # The program's own, not this screen's: it runs to its end even if the screen closes.
        self.app.run_worker(self._carry_out(), group="operation", description=self.operation.title)

    async def _carry_out(self) -> None:
        assert self._plan is not None, "a plan was confirmed"
        try:
            done = await drive(self._plan.carry_out(self._scope, self._say_now), self._source)
        except OutcomeUnknown as error:
            ended = self.Ended("▲", "warn", [f"it is not known what happened: {error}"])
        except TriohaError as error:
            ended = self.Ended("✖", "bad", [str(error)])
        else:
            ended = self._ended_with(done)
        self.post_message(ended)

    def _ended_with(self, done: Done) -> Ended:
        mark, role = ("●", "good") if done.is_well else ("✖", "bad")
        return self.Ended(mark, role, done.lines)

    def _say_now(self, words: str) -> None:
        """Show the progress, at most once every `_SAID_EVERY_S` seconds."""
        now_s = time.monotonic()
        if now_s - self._said_s >= _SAID_EVERY_S and self.in_progress:
            self._said_s = now_s
            self._say(f"in progress: {words}")

    @on(Ended)
    def _ended(self, event: Ended) -> None:
        event.stop()
        first, *more = event.lines
        lines: list[Cell] = [((f"{event.mark} {first}", event.role),)]
        lines += [((f"  {one}", ""),) for one in more]
        lines.append((("escape goes back to the cluster", "dim"),))
        self.query_one("#op-outcome", Static).update(_joined(lines))
        self._go(OperationStage.END)
        if event.role != "good":
            self.app.bell()

    def _say(self, words: str) -> None:
        self.query_one("#op-outcome", Static).update(content_of(((words, "accent"),)))

    def _go(self, stage: OperationStage) -> None:
        self.stage = stage
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are offered where they mean something."""
        if action == "confirm":
            may = self._armed and self._plan is not None and not self._plan.refusals
            is_asking = any(box.is_open for box in self.query(TypedConfirmation))
            return self.stage is OperationStage.PLAN and may and not is_asking
        if action == "again":
            return self.stage in (OperationStage.PLAN, OperationStage.END)
        return super().check_action(action, parameters)

    def action_again(self) -> None:
        self.query_one("#op-outcome", Static).update("")
        self._make_plan()

    def action_back(self) -> None:
        confirmation = self.query_one(TypedConfirmation)
        if confirmation.is_open:
            confirmation.close()
            self.set_focus(None)
            self.refresh_bindings()
        elif self.in_progress:
            self.notify("It runs and ends by itself; wait for it.", severity="warning")
        else:
            self.dismiss(None)


def _plan_words(plan: Planned, armed: bool) -> Content:
    lines: list[Cell] = [
        ((("plan       " if not index else " " * 11), "dim"), (one, ""))
        for index, one in enumerate(plan.lines)
    ]
    lost = plan.loses or ["nothing"]
    lines += [
        (("data loss  " if not index else " " * 11, "dim"), (one, "bad" if plan.loses else "good"))
        for index, one in enumerate(lost)
    ]
    lines += [((f"✖ {one}", "bad"),) for one in plan.refusals]
    if not armed:
        lines.append((("This console only looks: start it with --write to go on.", "warn"),))
    elif plan.is_confirmed_by_name and not plan.refusals:
        lines.append((("c", "accent"), (" goes on; the name is asked for", "")))
    elif not plan.refusals:
        lines.append((("c", "accent"), (" goes on", "")))
    return _joined(lines)


def _joined(lines: Sequence[Cell]) -> Content:
    return Content("\n").join(content_of(one) for one in lines)
