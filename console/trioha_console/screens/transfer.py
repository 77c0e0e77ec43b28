"""Hands the leadership of a DLEDGER group over: members, the plan, the name typed, the end.

The counterpart of the failover wizard for groups that elect their leader. There is nothing to force
and nothing to lose: a group without a leader elects one, and a transfer that does not come about
leaves the old leader in place. The same plan as `trioha raft transfer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import attrs
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from trioha.errors import CommandError, TriohaError
from trioha.watch.condition import Condition, condition_of
from trioha.watch.raft import RaftState
from trioha.watch.raft_change import (
    PATIENCE_S,
    ChangePlan,
    Do,
    fitness,
    plan_change,
    read_change,
)
from trioha.watch.replica import Replica
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import Cell, GridColumn, cell
from trioha_console.frame import Frame
from trioha_console.link import NotConnected
from trioha_console.roles import condition_cell, content_of
from trioha_console.screens.over import OverScreen
from trioha_console.source import Source
from trioha_console.widgets.confirmation import TypedConfirmation
from trioha_console.widgets.grid import Grid
from trioha_console.widgets.header import TitleLine
from trioha_console.widgets.keys import KeysLine


@attrs.frozen
class TransferMember:
    """One member, and whether it could lead."""

    replica: Replica
    condition: Condition
    is_target: bool
    why_not: str


def _choice(row: TransferMember, _: int) -> Cell:
    if row.is_target:
        return (("▶ new", "accent"),)
    if row.replica.is_master:
        return (("leader", "strong"),)
    return (("✖ out", "bad"),) if row.why_not else ()


def _why(row: TransferMember, _: int) -> Cell:
    if row.replica.is_master:
        return cell("would follow", "dim")
    return cell(row.why_not or row.condition.why or "holds what the leader holds", "dim")


MEMBERS: Shape[TransferMember] = Shape(
    name="transfer",
    identity=lambda row: row.replica.address,
    search=lambda row: f"{row.replica.member_id} {row.replica.address}",
    columns=(
        GridColumn(title="CHOICE", cell=_choice, width=6),
        columns.text("MEMBER", lambda row: row.replica.member_id, 6, role="strong"),
        columns.text("ADDRESS", lambda row: row.replica.address, 15, width_max=22),
        columns.text("ROLE", lambda row: row.replica.standing, 8, width_max=13),
        GridColumn(title="STATE", cell=lambda row, _: condition_cell(row.condition), width=11),
        columns.count("TERM", lambda row: row.replica.epoch, 5),
        columns.size("GAP", lambda row: row.replica.gap_bytes, 9),
        GridColumn(title="WHY", cell=_why, width=12, width_max=120),
    ),
)


class TransferStage(Enum):
    """Stage of a transfer."""

    PLAN = "plan"
    ASKING = "asking"
    END = "end"


class TransferScreen(OverScreen[None]):
    """`F` on a DLEDGER group, or `:failover BROKER`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back"),
        Binding("c", "confirm", "Go on"),
        Binding("r", "again", "Refresh"),
    ]
    SCOPED_CSS = False
    DEFAULT_CSS = """
    TransferScreen {
        & > #tr-members { height: auto; min-height: 4; max-height: 12; }
        & > #tr-plan { height: auto; padding: 1 1 0 1; }
        & > #tr-outcome { height: 1fr; padding: 1 1 0 1; }
    }
    """

    @dataclass(eq=False)
    class Ended(Message):
        """The leader has answered, or has not."""

        mark: str
        role: str
        words: str

    def __init__(self, source: Source, broker_name: str, *, armed: bool, to: str = "") -> None:
        super().__init__()
        self.broker_name = broker_name
        self.stage = TransferStage.PLAN
        self.plan: ChangePlan | None = None
        self._source = source
        self._armed = armed
        self._to = to

    @property
    def in_progress(self) -> bool:
        return self.stage is TransferStage.ASKING

    def compose(self) -> ComposeResult:
        yield TitleLine()
        yield Grid(MEMBERS, empty="Nothing is known of this group yet.", id="tr-members")
        yield Static(id="tr-plan", markup=False)
        yield TypedConfirmation(self.broker_name, id="tr-confirm")
        yield Static(id="tr-outcome", markup=False)
        yield KeysLine()

    def on_mount(self) -> None:
        title: Cell = (("hand over  ", "title"), (self.broker_name, "strong"))
        title += (("  WRITE", "bad"),) if self._armed else (("  read-only", "dim"),)
        self.query_one(TitleLine).show_title(title)
        self.query_one("#tr-members").focus()

    def show(self, frame: Frame) -> None:
        """Show the members now; the plan follows them until the operator confirms it."""
        one = frame.snapshot.set_of(self.broker_name)
        if one is None:
            return
        if self.stage is TransferStage.PLAN and not self.query_one(TypedConfirmation).is_open:
            self.plan = plan_change(one, Do.TRANSFER, self._to)
            self.query_one("#tr-plan", Static).update(plan_words(self.plan, self._armed))
            self.refresh_bindings()
        target = (
            self.plan.member if self.plan is not None and self.stage is TransferStage.PLAN else ""
        )
        leader = one.master.raft if one.master is not None else None
        rows = []
        for replica in one.replicas:
            name = replica.member_id or ""
            why_not = "" if leader is None else _why_not(leader, name)
            is_target = bool(target) and name == target and not why_not
            rows.append(TransferMember(replica, condition_of(replica), is_target, why_not))
        self.query_one("#tr-members", Grid).show_rows(rows)

    @on(Grid.Chosen, "#tr-members")
    def _chosen(self, event: Grid.Chosen) -> None:
        event.stop()
        if self.stage is TransferStage.PLAN:
            self._to = event.row.replica.member_id or ""
            self.app.run_worker(self._redraw())

    async def _redraw(self) -> None:
        await self.app.run_action("app.redraw")

    def action_again(self) -> None:
        """Another one, after the last."""
        if self.stage is TransferStage.END:
            self.stage, self._to = TransferStage.PLAN, ""
            self.query_one("#tr-plan").display = True
            self.query_one("#tr-outcome", Static).update("")
            self.app.run_worker(self._redraw())

    def action_confirm(self) -> None:
        self.query_one(TypedConfirmation).open()

    @on(TypedConfirmation.Confirmed)
    def _confirmed(self, event: TypedConfirmation.Confirmed) -> None:
        event.stop()
        self._hide_confirmation()
        self.stage = TransferStage.ASKING
        self.query_one("#tr-outcome", Static).update("The leader has been asked…")
        self.refresh_bindings()
        # The program's own, not this screen's: it runs to its end even if the screen closes.
        self.app.run_worker(self._ask(), group="failover", description="hands over")

    def _hide_confirmation(self) -> None:
        self.query_one(TypedConfirmation).close()
        self.query_one("#tr-members").focus()

    async def _ask(self) -> None:
        plan = self.plan
        assert plan is not None, "a plan was confirmed"
        try:
            response = await self._source.ask(plan.leader_address, plan.command(), PATIENCE_S)
            words = read_change(plan, response)
        except CommandError as error:
            self.post_message(self.Ended("✖", "bad", f"refused: {error.remark}"))
        except NotConnected as error:
            self.post_message(self.Ended("✖", "bad", f"nothing has happened: {error}"))
        except TriohaError as error:
            self.post_message(self.Ended("▲", "warn", f"it is not known what happened: {error}"))
        else:
            self.post_message(self.Ended("●", "good", f"done: {words}"))

    @on(Ended)
    def _ended(self, event: Ended) -> None:
        event.stop()
        self.stage = TransferStage.END
        self.query_one("#tr-plan").display = False
        lines = (
            ((f"{event.mark} {event.words}", event.role),),
            (("escape goes back to the cluster", "dim"),),
        )
        said = Content("\n").join(content_of(line) for line in lines)
        self.query_one("#tr-outcome", Static).update(said)
        self.refresh_bindings()
        if event.role != "good":
            self.app.bell()
        self.app.run_worker(self._redraw())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys are offered where they mean something."""
        if action == "confirm":
            may = self.plan is not None and self.plan.may_run and self._armed
            return self.stage is TransferStage.PLAN and may
        if action == "again":
            return self.stage is TransferStage.END
        return super().check_action(action, parameters)

    def action_back(self) -> None:
        if self.query_one(TypedConfirmation).is_open:
            self._hide_confirmation()
        elif self.in_progress:
            self.notify("The transfer ends by itself; wait for it.", severity="warning")
        else:
            self.dismiss()


def _why_not(leader: RaftState, name: str) -> str:
    """Return the reason a member cannot take over; "" if it can, and for the leader."""
    row = leader.follower(name)
    if row is not None:
        return fitness(leader, row)
    return "" if name == leader.member_id else "it is no member"


def plan_words(plan: ChangePlan, armed: bool) -> Content:
    """Return the plan in words: its effect, what forbids it, the keys to press."""
    lines: list[Cell] = []
    if plan.leader is not None:
        who = f"{plan.leader.member_id} ({plan.leader_address}), term {plan.leader.term}"
        lines.append((("asks       ", "dim"), (who, "")))
    if plan.would:
        lines.append((("then       ", "dim"), (plan.would, "strong")))
    lines += [(("✖ ", "bad"), (refusal, "bad")) for refusal in plan.refusals]
    if plan.may_run:
        if armed:
            lines.append((("c", "accent"), (" goes on; the group's name is asked for", "")))
            lines.append((("enter", "accent"), (" on another member chooses it", "dim")))
        else:
            lines.append((("This console only looks: start it with --write to go on.", "warn"),))
    return Content("\n").join(content_of(line) for line in lines)
