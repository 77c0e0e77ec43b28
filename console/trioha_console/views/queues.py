"""Queues: both ends of each, on every broker; which ones get more than their share."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from textual.app import ComposeResult

from trioha.watch.collector import Interest
from trioha.watch.questions import TOPIC_STATS
from trioha.watch.queues import Queue
from trioha.watch.snapshot import ClusterSnapshot
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import Cell, GridColumn
from trioha_console.frame import Frame
from trioha_console.marks import bar
from trioha_console.views.view import KeptRows, SharedByRows, SystemNames, SystemView
from trioha_console.widgets.grid import Grid


class QueueLine(NamedTuple):
    queue: Queue
    most: int
    """The fullest queue of the topic holds so many."""
    moment: SharedByRows

    @property
    def wall_ms(self) -> int:
        return self.moment.wall_ms

    @property
    def held(self) -> int:
        return self.queue.max_offset - self.queue.min_offset

    @property
    def idle_s(self) -> float | None:
        updated_ms = self.queue.updated_ms
        return None if updated_ms is None else max(0.0, (self.wall_ms - updated_ms) / 1000)

    @property
    def told_s(self) -> float | None:
        told_ms = self.queue.wall_ms
        return None if told_ms is None else max(0.0, (self.wall_ms - told_ms) / 1000)


def lines_of(snapshot: ClusterSnapshot, moment: SharedByRows, *, system: bool) -> list[QueueLine]:
    queues = snapshot.queues
    if not system:
        names = SystemNames(snapshot)
        hidden = {name for name in {one.topic for one in queues} if names.has_topic(name)}
        queues = tuple(one for one in queues if one.topic not in hidden)
    most: dict[str, int] = {}
    for queue in queues:
        held = queue.max_offset - queue.min_offset
        if held > most.get(queue.topic, -1):
            most[queue.topic] = held
    return [QueueLine(queue, most[queue.topic], moment) for queue in queues]


def _skew(line: QueueLine, width: int) -> Cell:
    filled = bar(line.held, line.most or 1, width).rstrip()
    return ((filled, "accent"), ("─" * (width - len(filled)), "dim"))


SHAPE: Shape[QueueLine] = Shape(
    name="queues",
    identity=lambda line: (line.queue.topic, line.queue.broker, line.queue.queue_id),
    search=lambda line: f"{line.queue.topic} {line.queue.broker}",
    columns=(
        columns.text("TOPIC", lambda line: line.queue.topic, 22, width_max=60, role="strong"),
        columns.text("BROKER", lambda line: line.queue.broker, 12, width_max=24),
        columns.count("Q", lambda line: line.queue.queue_id, 4),
        columns.count("FIRST", lambda line: line.queue.min_offset, 12, importance=2),
        columns.count("NEXT", lambda line: line.queue.max_offset, 12, importance=1),
        columns.count("HELD", lambda line: line.held, 10),
        GridColumn(
            title="SHARE OF FULLEST",
            cell=_skew,
            key=lambda line: line.held / line.most if line.most else None,
            width=10,
            width_max=30,
        ),
        columns.age("LAST PUT", lambda line: line.idle_s, 8),
        columns.age("ANSWER", lambda line: line.told_s, 6, importance=3),
    ),
)


class QueuesView(SystemView):
    """All queues, or those of the topic that the filter names."""

    NAME: ClassVar[str] = "queues"

    def __init__(self) -> None:
        super().__init__()
        self._topic = ""
        """The topic that is looked at closely, so asked for more often; "" for none."""
        self._moment = SharedByRows()
        self._rows: KeptRows[QueueLine] = KeptRows()

    def narrow(self, topic: str) -> None:
        self._topic = topic
        self.grid.set_filter(topic)

    @property
    def interest(self) -> Interest:
        if self._topic:
            return Interest(topics=True, stats_of=frozenset({self._topic}), stats_of_all=True)
        return Interest(topics=True, stats_of_all=True)

    def compose(self) -> ComposeResult:
        yield Grid(SHAPE)

    def prepare(self, snapshot: ClusterSnapshot) -> None:
        self._lines(snapshot)

    def _lines(self, snapshot: ClusterSnapshot) -> list[QueueLine]:
        system = self.system
        return self._rows.of(
            (snapshot.queues, system), lambda: lines_of(snapshot, self._moment, system=system)
        )

    def show(self, frame: Frame) -> None:
        self.grid.empty = self.why_empty(frame, "queues", TOPIC_STATS)
        self._moment.frame = frame
        self.grid.show_rows(self._lines(frame.snapshot))

    async def on_grid_chosen(self, event: Grid.Chosen) -> None:
        event.stop()
        queue = event.row.queue
        await self.app.run_action(f"browse({queue.topic!r}, {queue.broker!r}, {queue.queue_id})")
