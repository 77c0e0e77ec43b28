"""The clusters of the contexts, each watched while the screen of clusters is shown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import attrs

from trioha.contexts import Context
from trioha.errors import TriohaError
from trioha.watch.alerts import Alerts
from trioha.watch.collector import Interest
from trioha.watch.history import History
from trioha.watch.snapshot import ClusterSnapshot, Tables
from trioha_console.source import Source

OpenContext = Callable[[Context], Source]


@attrs.define(eq=False)
class OtherCluster:
    """One cluster by its context, and what is known of it."""

    context: Context
    alerts: Alerts
    history: History = attrs.field(factory=History)
    snapshot: ClusterSnapshot | None = None
    """Newest snapshot; None until something was asked."""
    why: str = ""
    """Reason for which the cluster cannot be asked at all."""

    async def watch(self, open_context: OpenContext) -> None:
        """Ask until cancelled; what was known before stays known."""
        interest, tables = Interest(alerts=True), Tables()
        try:
            source = open_context(self.context)
        except TriohaError as error:
            self.why = str(error)
            return
        self.why = ""
        source.want(interest)
        try:
            async for raw in source.snapshots():
                snapshot = ClusterSnapshot.of(raw, tables)
                await asyncio.to_thread(snapshot.prepare, interest)
                self.history.add(snapshot)
                self.alerts.look(snapshot)
                self.snapshot = snapshot
        finally:
            await source.close()


class OtherClusters:
    """All of them; asked only between `begin` and `end`."""

    def __init__(self, open_context: OpenContext) -> None:
        self._open = open_context
        self._clusters: dict[str, OtherCluster] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, contexts: Mapping[str, Context]) -> None:
        """Watch these and no others."""
        for name in [name for name in self._tasks if name not in contexts]:
            self._tasks.pop(name).cancel()
        for name, context in contexts.items():
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(
                    self.of(context).watch(self._open), name=f"console.cluster[{name}]"
                )

    def of(self, context: Context) -> OtherCluster:
        known = self._clusters.get(context.name)
        if known is None:
            known = self._clusters[context.name] = OtherCluster(context, Alerts(context.rules))
        return known

    async def end(self) -> None:
        """Stop asking."""
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
