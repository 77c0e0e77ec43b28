"""Clusters: every context's overall state in one table. Enter goes into one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import attrs
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from trioha.contexts import Context
from trioha.watch.alerts import Alert, Alerts
from trioha.watch.condition import Level, condition_of
from trioha.watch.history import History
from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire.address import parse_namesrvs
from trioha_console import columns
from trioha_console.arrange import Shape
from trioha_console.cells import Cell, GridColumn, cell
from trioha_console.frame import Frame
from trioha_console.other_clusters import OpenContext, OtherClusters
from trioha_console.overall import overall_state
from trioha_console.views.view import View
from trioha_console.widgets.grid import Grid


@attrs.frozen
class ClusterLine:
    """A row."""

    name: str
    namesrv: str
    is_here: bool
    """The other screens show this cluster."""
    snapshot: ClusterSnapshot | None
    alerts: tuple[Alert, ...]
    history: History
    why: str
    """Reason for which it cannot be asked at all."""
    wall_ms: int

    @property
    def state(self) -> Cell:
        if self.why:
            return ((f"✖ {self.why}", "bad"),)
        parts = overall_state(self.snapshot, self.alerts)
        *first, (last, role) = parts
        return (*first, (last.rstrip(), role))

    @property
    def severity(self) -> int:
        """Larger is worse."""
        if self.snapshot is None:
            return int(Level.BAD if self.why else Level.UNKNOWN)
        levels = [int(condition_of(one).level) for one in self.snapshot.replicas]
        levels += [int(Level.BAD)] * any(one.answer.error for one in self.snapshot.namesrvs)
        levels += [int(Level.UNKNOWN) + int(one.level) for one in self.alerts]
        return max(levels, default=int(Level.UNKNOWN))

    @property
    def sets(self) -> int | None:
        return None if self.snapshot is None else len(self.snapshot.sets)

    @property
    def nodes(self) -> int | None:
        return None if self.snapshot is None else len(self.snapshot.replicas)

    @property
    def put_rate(self) -> float | None:
        return self._rate(lambda history, address: history.of(address).put_rate.points)

    @property
    def get_rate(self) -> float | None:
        return self._rate(lambda history, address: history.of(address).get_rate.points)

    @property
    def told_s(self) -> float | None:
        """Seconds since a node of it answered."""
        if self.snapshot is None:
            return None
        answers = [one.answer for one in self.snapshot.replicas]
        answers += [one.answer for one in self.snapshot.namesrvs]
        told = [one.wall_ms for one in answers if one.wall_ms is not None]
        return max(0.0, (self.wall_ms - max(told)) / 1000) if told else None

    @property
    def worst(self) -> str:
        """Text of the worst alert, the oldest of several."""
        return self.alerts[0].text if self.alerts else ""

    def _rate(self, points_of: Callable[[History, str], object]) -> float | None:
        """Sum over the masters that have one."""
        if self.snapshot is None:
            return None
        rates = []
        for one in self.snapshot.replicas:
            points = points_of(self.history, one.address)
            if one.is_master and not one.answer.error and points:
                rates.append(points[-1][1])  # type: ignore[index]
        return sum(rates) if rates else None


def _name(line: ClusterLine, _: int) -> Cell:
    return ((line.name, "strong"), ("  here" if line.is_here else "", "accent"))


def _worst(line: ClusterLine, _: int) -> Cell:
    return cell(line.worst) if line.worst else ()


SHAPE: Shape[ClusterLine] = Shape(
    name="clusters",
    identity=lambda line: line.name,
    search=lambda line: f"{line.name} {line.namesrv} {line.worst}",
    columns=(
        GridColumn(title="CLUSTER", cell=_name, key=lambda line: line.name, width=14, width_max=30),
        GridColumn(
            title="STATE",
            cell=lambda line, _: line.state,
            key=lambda line: line.severity,
            width=22,
            width_max=44,
        ),
        columns.count("SETS", lambda line: line.sets, 4),
        columns.count("NODES", lambda line: line.nodes, 5),
        columns.rate("PUT/S", lambda line: line.put_rate, 7),
        columns.rate("GET/S", lambda line: line.get_rate, 7, importance=1),
        columns.age("ANSWER", lambda line: line.told_s, 7),
        columns.text("NAME SERVERS", lambda line: line.namesrv, 20, width_max=44, importance=2),
        GridColumn(
            title="WORST ALERT",
            cell=_worst,
            key=lambda line: line.worst,
            width=30,
            width_max=120,
            importance=3,
        ),
    ),
)


class ClustersView(View):
    """The cluster that the other screens show stands among those of the contexts."""

    NAME: ClassVar[str] = "clusters"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Go into", show=False),
    ]

    def __init__(self, open_context: OpenContext, alerts: Alerts) -> None:
        super().__init__()
        self._alerts = alerts
        self._others = OtherClusters(open_context)

    def compose(self) -> ComposeResult:
        yield Grid(SHAPE)

    def entered(self) -> None:
        self._others.begin(self._contexts(but_here=True))

    async def left(self) -> None:
        await self._others.end()

    async def on_unmount(self) -> None:
        await self._others.end()

    def show(self, frame: Frame) -> None:
        here = self._here()
        source = self.console.source
        name = source.title if here is None else here.name
        lines = [
            ClusterLine(
                name,
                ";".join(source.namesrvs),
                True,
                frame.snapshot,
                self._alerts.active,
                frame.history,
                "",
                frame.wall_ms,
            )
        ]
        for context in self._contexts(but_here=True).values():
            other = self._others.of(context)
            lines.append(
                ClusterLine(
                    context.name,
                    context.namesrv,
                    False,
                    other.snapshot,
                    other.alerts.active,
                    other.history,
                    other.why,
                    frame.wall_ms,
                )
            )
        # The worst cluster comes first; clusters of one state keep their order.
        lines.sort(key=lambda line: -line.severity)
        self.grid.show_rows(lines)

    async def on_grid_chosen(self, event: Grid.Chosen) -> None:
        event.stop()
        line = event.row
        if not line.is_here:
            self.console.command_context(line.name)
        await self.console.action_view("replication")

    def _contexts(self, *, but_here: bool = False) -> Mapping[str, Context]:
        known = self.console.contexts
        contexts = {} if known is None else known.contexts
        here = self._here() if but_here else None
        return {name: one for name, one in contexts.items() if one is not here}

    def _here(self) -> Context | None:
        """The context of the cluster that the other screens show; None for one without a name."""
        source = self.console.source
        contexts = self._contexts()
        if source.title in contexts:
            return contexts[source.title]
        for one in contexts.values():
            if tuple(parse_namesrvs(one.namesrv)) == tuple(source.namesrvs):
                return one
        return None
