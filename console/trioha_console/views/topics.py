"""Topics: where each is, how much it holds, how fast it grows, which groups read it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from trioha.watch.collector import Interest
from trioha.watch.history import TimeSeries
from trioha.watch.questions import PROGRESS, TOPICS
from trioha.watch.queues import Topic, TopicGroup, TopicHeld
from trioha.watch.readings import fields_of
from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire.codes import Perm
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import Cell, GridColumn, cell
from trioha_console.frame import Frame
from trioha_console.marks import sparkline
from trioha_console.views.view import KeptRows, SharedByRows, SystemNames, SystemView
from trioha_console.widgets.grid import Grid

_STEP_MS = 5_000
_RATE_MS = 15_000


class TopicLine(NamedTuple):
    topic: Topic
    told: TopicHeld | None
    """Count and age of its messages; None until its queues were asked for."""
    readers: tuple[TopicGroup, ...] | None
    """Groups that read it, the one with the largest lag first; None until they were asked for."""
    is_hidden: Callable[[str], bool]
    """Returns whether the group of this name is hidden."""
    moment: SharedByRows

    @property
    def wall_ms(self) -> int:
        return self.moment.wall_ms

    @property
    def growth(self) -> TimeSeries:
        return self.moment.history.topic(self.topic.name)

    @property
    def held(self) -> int | None:
        return None if self.told is None else self.told.messages

    @property
    def groups(self) -> tuple[TopicGroup, ...] | None:
        if self.readers is None:
            return None
        return tuple(one for one in self.readers if not self.is_hidden(one.name))

    @property
    def lag(self) -> int | None:
        """Lag of the group that is furthest behind; None if no group reads it."""
        groups = self.groups
        return groups[0].lag if groups else None

    @property
    def group_names(self) -> str | None:
        """The largest lag is that of the first."""
        groups = self.groups
        return None if groups is None else ", ".join(one.name for one in groups)

    @property
    def rate(self) -> float | None:
        return self.growth.per_second(_RATE_MS)

    @property
    def idle_s(self) -> float | None:
        if self.told is None or self.told.updated_ms is None:
            return None
        return max(0.0, (self.wall_ms - self.told.updated_ms) / 1000)


def lines_of(
    snapshot: ClusterSnapshot, moment: SharedByRows, *, system: bool, is_told: bool
) -> list[TopicLine]:
    """Rows; `is_told` if a broker has told the offsets of groups."""
    held, groups = snapshot.held, snapshot.groups_by_topic
    names = SystemNames(snapshot)
    is_hidden = _nothing if system else names.has_group
    return [
        TopicLine(
            topic,
            held.get(name),
            groups.get(name, ()) if is_told else None,
            is_hidden,
            moment,
        )
        for name, topic in snapshot.topics.items()
        if system or not names.has_topic(name)
    ]


def _nothing(_: str) -> bool:
    return False


def _is_progress_told(snapshot: ClusterSnapshot) -> bool:
    """Return whether a broker has told the offsets of groups: before that, none is unread."""
    answers = fields_of(snapshot.raw.get("answers")).values()
    return any(fields_of(told.get(PROGRESS)).get("value") is not None for told in answers)


def permission(perm: int | None) -> str | None:
    if perm is None:
        return "differs"
    words = [word for bit, word in ((Perm.READ, "read"), (Perm.WRITE, "write")) if perm & bit]
    return "+".join(words) or "none"


def _trend(line: TopicLine, width: int) -> Cell:
    ends = line.growth.last(width + 1, _STEP_MS, line.wall_ms)
    steps: list[float | None] = [
        None if before is None or after is None else max(0.0, after - before)
        for before, after in pairwise(ends)
    ]
    return cell(sparkline(steps), "accent")


def _lag(line: TopicLine, _: int) -> Cell:
    """Return an empty cell for a topic that no group reads."""
    if line.groups == ():
        return ()
    return cell(line.lag)


SHAPE: Shape[TopicLine] = Shape(
    name="topics",
    identity=lambda line: line.topic.name,
    search=lambda line: (
        f"{line.topic.name} {' '.join(line.topic.brokers)} {line.group_names or ''}"
    ),
    columns=(
        columns.text("TOPIC", lambda line: line.topic.name, 20, width_max=60, role="strong"),
        columns.count("READ Q", lambda line: line.topic.read_queue_nums, 6, importance=4),
        columns.count("WRITE Q", lambda line: line.topic.write_queue_nums, 7, importance=1),
        columns.text("ALLOWS", lambda line: permission(line.topic.perm), 10, importance=5),
        columns.count("HELD", lambda line: line.held, 10),
        columns.rate("IN/S", lambda line: line.rate, 7),
        columns.age("LAST PUT", lambda line: line.idle_s, 8),
        GridColumn(title="IN TREND", cell=_trend, width=10, width_max=30, importance=3),
        GridColumn(title="LAG", cell=_lag, key=lambda line: line.lag, width=9, right=True),
        columns.text("GROUPS", lambda line: line.group_names, 14, width_max=60),
        columns.text(
            "BROKERS", lambda line: ", ".join(line.topic.brokers), 12, width_max=50, importance=2
        ),
    ),
)


class TopicsView(SystemView):
    """Enter opens a topic's queues."""

    NAME: ClassVar[str] = "topics"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "browse", "Browse"),
        Binding("n", "begin_new", "New"),
        Binding("A", "begin('alter-topic', 'queues')", "Alter"),
        Binding("D", "change('delete-topic')", "Delete"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._moment = SharedByRows()
        self._rows: KeptRows[TopicLine] = KeptRows()

    @property
    def interest(self) -> Interest:
        return Interest(topics=True, stats_of_all=True)

    def compose(self) -> ComposeResult:
        yield Grid(SHAPE)

    def prepare(self, snapshot: ClusterSnapshot) -> None:
        self._lines(snapshot)

    def _lines(self, snapshot: ClusterSnapshot) -> list[TopicLine]:
        system, is_told = self.system, _is_progress_told(snapshot)
        parts = (snapshot.topics, snapshot.held, snapshot.groups_by_topic, system, is_told)
        return self._rows.of(
            parts, lambda: lines_of(snapshot, self._moment, system=system, is_told=is_told)
        )

    def show(self, frame: Frame) -> None:
        self.grid.empty = self.why_empty(frame, "topics", TOPICS)
        frame.history.add_topics(frame.snapshot)
        self._moment.frame = frame
        self.grid.show_rows(self._lines(frame.snapshot))

    @property
    def subject(self) -> str:
        return "" if self.grid.row is None else self.grid.row.topic.name

    def action_begin_new(self) -> None:
        self.console.action_type("create-topic ")

    async def action_browse(self) -> None:
        line = self.grid.row
        if line is not None:
            await self.app.run_action(f"browse({line.topic.name!r})")

    async def on_grid_chosen(self, event: Grid.Chosen) -> None:
        event.stop()
        await self.app.run_action(f"queues({event.row.topic.name!r})")
