"""One consumer group: its queues with their owners, its members, rebalances and lag over hours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import attrs
from textual import on, work
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from trioha.errors import TriohaError
from trioha.jobs.group_past import read_group_past
from trioha.jobs.telling import JobScope
from trioha.times import moment_in_words
from trioha.watch.alerts import AlertLevel
from trioha.watch.collector import Interest
from trioha.watch.group_past import GroupPast, lags_at, past_of_recording
from trioha.watch.queues import Group, GroupMember, QueueLag
from trioha.watch.rebalances import QueueNames, Rebalance
from trioha.watch.rule import Rule
from trioha.words import age_in_words, count_in_words
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import NOTHING, Cell, GridColumn, cell
from trioha_console.failing_over import drive
from trioha_console.frame import Frame
from trioha_console.marks import bar
from trioha_console.replay_source import ReplaySource
from trioha_console.retention import kept_cell, retention_level
from trioha_console.screens.detail import DetailScreen
from trioha_console.screens.text import TextScreen
from trioha_console.source import Source
from trioha_console.texts import consumer_lines
from trioha_console.widgets.chart import TrendChart
from trioha_console.widgets.grid import Grid

_HOURS = 6
"""Hours of lag that journals are asked for."""
_KINDS = {"CONSUME_PASSIVELY": ", push", "CONSUME_ACTIVELY": ", pull"}


@attrs.frozen
class MemberLine:
    queue: QueueLag
    most: int
    """The largest lag of the group."""
    level: AlertLevel
    """Level of the alert that messages of this queue are lost."""


def _lag_bar(line: MemberLine, width: int) -> Cell:
    filled = bar(line.queue.lag, line.most or 1, width).rstrip()
    return ((filled, "warn" if line.queue.lag else "good"), ("─" * (width - len(filled)), "dim"))


def _owner(line: MemberLine, _: int) -> Cell:
    return NOTHING if line.queue.owner is None else cell(line.queue.owner)


QUEUES: Shape[MemberLine] = Shape(
    name="group",
    identity=lambda line: (line.queue.topic, line.queue.broker, line.queue.queue_id),
    search=lambda line: f"{line.queue.topic} {line.queue.broker} {line.queue.owner or ''}",
    columns=(
        columns.text("TOPIC", lambda line: line.queue.topic, 14, width_max=50, role="strong"),
        columns.text("BROKER", lambda line: line.queue.broker, 10, width_max=20),
        columns.count("Q", lambda line: line.queue.queue_id, 3),
        columns.count("FIRST", lambda line: line.queue.min_offset, 10, importance=3),
        columns.count("NEXT", lambda line: line.queue.broker_offset, 10, importance=2),
        columns.count("CONSUMED", lambda line: line.queue.consumer_offset, 10, importance=2),
        columns.count("LAG", lambda line: line.queue.lag, 8),
        columns.age("BEHIND", lambda line: line.queue.lag_s, 7),
        GridColumn(
            title="KEPT FOR",
            cell=lambda line, _: kept_cell(line.queue, line.level),
            key=lambda line: line.queue.retention_used,
            width=10,
            right=True,
        ),
        GridColumn(
            title="LAG BAR",
            cell=_lag_bar,
            key=lambda line: line.queue.lag,
            width=8,
            width_max=24,
            importance=1,
        ),
        GridColumn(
            title="OWNER", cell=_owner, key=lambda line: line.queue.owner, width=16, width_max=60
        ),
    ),
)

MEMBERS: Shape[GroupMember] = Shape(
    name="members",
    identity=lambda one: one.client_id,
    search=lambda one: f"{one.client_id} {one.address or ''}",
    columns=(
        columns.text("CLIENT", lambda one: one.client_id, 30, width_max=60, role="strong"),
        columns.text("ADDRESS", lambda one: one.address, 21),
        columns.text("LANGUAGE", lambda one: one.language, 8),
        columns.count("VERSION", lambda one: one.version, 7, importance=1),
        columns.count("QUEUES", lambda one: one.queue_count, 6),
        columns.text("AT", lambda one: ", ".join(one.brokers), 10, width_max=60, importance=1),
    ),
)


def _queues(names: QueueNames) -> str:
    """``orders broker-a 0,1``: the queues of one topic at one broker together."""
    together: dict[str, list[str]] = {}
    for name in names:
        place, _, number = name.rpartition(" ")
        together.setdefault(place, []).append(number)
    return "; ".join(f"{place} {','.join(numbers)}" for place, numbers in together.items())


REBALANCES: Shape[Rebalance] = Shape(
    name="rebalances",
    identity=lambda one: (one.wall_ms, one.client_id),
    search=lambda one: f"{one.client_id} {one.what} {_queues(one.before)} {_queues(one.after)}",
    columns=(
        columns.text("AT (UTC)", lambda one: moment_in_words(one.wall_ms)[11:19], 8),
        columns.text("WHAT", lambda one: one.what, 6, role="accent"),
        columns.text("CLIENT", lambda one: one.client_id, 22, width_max=60, role="strong"),
        columns.text("HAD", lambda one: _queues(one.before) or "none", 18, width_max=60),
        columns.text("HAS", lambda one: _queues(one.after) or "none", 18, width_max=60),
    ),
)


class GroupScreen(DetailScreen):
    """A group."""

    TABS: ClassVar[Sequence[tuple[str, str]]] = (
        ("queues-of", "Queues"),
        ("members", "Members"),
        ("rebalances", "Rebalances"),
        ("lag", "Lag"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "again", "Refresh"),
    ]

    @dataclass(eq=False)
    class PastTold(Message):
        """The group's past from journals or the recording, or the reason why it is not known."""

        past: GroupPast
        begin_ms: int
        end_ms: int
        trouble: str

    def __init__(self, name: str, rules: Mapping[str, Rule], source: Source) -> None:
        super().__init__()
        self.group_name = name
        self._rules = rules
        self._source = source

    @property
    def tabs(self) -> Sequence[tuple[str, str]]:
        """A recording shows no members: its rebalances tell them."""
        return [one for one in self.TABS if self._source.live or one[0] != "members"]

    @property
    def interest(self) -> Interest:
        return Interest(topics=True, members_of=frozenset({self.group_name}))

    def panes(self) -> Sequence[Widget]:
        seen = "Nothing has changed since this group was first opened here."
        if not self._source.live:
            seen = "No rebalance is in this recording; `trioha record --members` keeps them."
        panes = (
            Grid(QUEUES, empty="It has consumed nothing yet.", id="queues-of"),
            Grid(MEMBERS, empty="Nobody is connected.", id="members"),
            Grid(REBALANCES, empty=seen, id="rebalances"),
            TrendChart(id="lag"),
        )
        names = [name for name, _ in self.tabs]
        return [one for one in panes if one.id in names]

    def on_mount(self) -> None:
        super().on_mount()
        if not self._source.live:
            self._read_past()

    @on(Grid.Chosen, "#members")
    def _member_chosen(self, event: Grid.Chosen) -> None:
        """Show what a consumer is doing."""
        event.stop()
        client_id = event.row.client_id
        title: Cell = (("consumer  ", "title"), (client_id, "strong"))
        ask = partial(consumer_lines, self._source, self.group_name, client_id)
        self.app.push_screen(TextScreen(title, ask))

    def tab_opened(self, name: str) -> None:
        self.say("")
        if name == "lag" and self._source.live:
            self._read_past()

    def action_again(self) -> None:
        self.tab_opened(self.tab)

    @work(exclusive=True, group="past", description="reads a group's past")
    async def _read_past(self) -> None:
        """Ask the masters' journals, or walk through the recording."""
        if isinstance(self._source, ReplaySource):
            recording = self._source.replay.recording.again()
            past = await asyncio.to_thread(past_of_recording, recording, self.group_name)
            self.post_message(
                self.PastTold(past, recording.start_wall_ms, recording.end_wall_ms, "")
            )
            return
        end_ms = time.time_ns() // 1_000_000
        begin_ms = end_ms - _HOURS * 3_600_000
        scope = JobScope(tuple(self._source.namesrvs))
        try:
            flow = read_group_past(scope, self.group_name, begin_ms)
            past, notes = await drive(flow, self._source)
        except TriohaError as error:
            past, notes = GroupPast(()), [str(error)]
        self.post_message(self.PastTold(past, begin_ms, end_ms, "; ".join(notes)))

    @on(PastTold)
    def _told(self, event: PastTold) -> None:
        event.stop()
        chart = self.query_one("#lag", TrendChart)
        # In front it has its size; behind another tab the width of the screen will do.
        points = lags_at(event.past.lags, event.begin_ms, event.end_ms, max(chart.points, 100))
        begin, end = (moment_in_words(one)[:16] for one in (event.begin_ms, event.end_ms))
        chart.show(
            f"messages not consumed, {begin} to {end} UTC",
            [None if one is None else float(one.lag) for one in points],
            lambda value: f"{value or 0:,.0f}",
        )
        if not self._source.live:
            changes = list(reversed(event.past.rebalances))
            self.query_one("#rebalances", Grid).show_rows(changes)
        elif self.tab == "lag":
            self.say(event.trouble)

    def show(self, frame: Frame) -> None:
        group = frame.snapshot.groups.get(self.group_name)
        if group is None:
            self.set_title(cell(f"{self.group_name}: no such group any more", "warn"))
            return
        frame.history.add_groups(frame.snapshot)
        eta_s = frame.history.group_eta_s(self.group_name)
        self.set_title(_title(group, eta_s))
        most = max((one.lag for one in group.queues), default=0)
        self.query_one("#queues-of", Grid).show_rows(
            [MemberLine(one, most, retention_level(one, self._rules)) for one in group.queues]
        )
        if not self._source.live:
            return
        self.query_one("#members", Grid).show_rows(group.members or ())
        seen = frame.history.rebalances(self.group_name)
        seen.look(frame.snapshot)
        self.query_one("#rebalances", Grid).show_rows(list(seen.changes))


def _title(group: Group, eta_s: float | None) -> Cell:
    title: Cell = (("group  ", "title"), (group.name, "strong"))
    if group.lag is not None:
        behind = "" if group.lag_s is None else f", {age_in_words(group.lag_s)}"
        title += ((f"  lag {group.lag}{behind}", "warn" if group.lag else "good"),)
        if group.lag and eta_s is not None:
            title += ((f", caught up in {age_in_words(eta_s)}", ""),)
    if group.members is not None:
        title += ((f"  {count_in_words(len(group.members), 'member')}", ""),)
    if group.message_model:
        kind = _KINDS.get(group.consume_type or "", "")
        title += ((f"  {group.message_model.lower()}{kind}", "dim"),)
    subscribed = ", ".join(f"{topic} ({tags})" for topic, tags in group.subscriptions.items())
    return (*title, (f"  reads {subscribed}", "dim")) if subscribed else title
