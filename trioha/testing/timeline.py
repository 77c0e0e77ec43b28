"""The events of all nodes of a cluster, in the order in which they happened."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import attrs
import trio

from trioha.errors import TriohaError
from trioha.journal import EVENTS, EventLevel

_MEASURED = {"recovery_finished", "queues_rebuilt"}
"""Events whose `elapsed_ms` is real time, on a virtual clock too."""
PROMOTED = "promoted"
"""Stands for the begin of a term as master, or as leader of a Raft group."""


class NotSeen(TriohaError, AssertionError):
    """The expected event or state did not come in time."""


@attrs.frozen
class TimelineEvent:
    """One line of a node's journal."""

    wall_ms: int
    node: str
    """Label of the machine, or `test` for what the test did."""
    name: str
    fields: Mapping[str, object]

    @property
    def level(self) -> EventLevel:
        kind = EVENTS.get(self.name)
        return EventLevel.INFO if kind is None else kind.level

    def is_one(self, name: str, fields: Mapping[str, object]) -> bool:
        """Return whether this is an event of that name with these fields."""
        if name == PROMOTED:
            return self._is_promotion(fields)
        return self.name == name and all(self.fields.get(key) == fields[key] for key in fields)

    def line(self, since_ms: int) -> str:
        """Return the event as one line of a story; times count from `since_ms`."""
        fields = " ".join(f"{key}={value}" for key, value in self.fields.items() if value != "")
        return f"{(self.wall_ms - since_ms) / 1000:10.3f} s  {self.node:<12} {self.name} {fields}"

    def _is_promotion(self, fields: Mapping[str, object]) -> bool:
        if self.name == "epoch_began":
            term = self.fields.get("epoch")
        elif self.name == "raft_role" and str(self.fields.get("role")).upper() == "LEADER":
            term = self.fields.get("term")
        else:
            return False
        return fields.get("epoch", term) == term


class Timeline:
    """Grows while the cluster runs; any number of tasks may read it."""

    def __init__(self) -> None:
        self.events: list[TimelineEvent] = []
        self._listeners: list[Callable[[TimelineEvent], None]] = []
        self._grown = trio.Event()

    def tell(self, listener: Callable[[TimelineEvent], None]) -> None:
        """Call `listener` with every event, those so far at once."""
        for event in self.events:
            listener(event)
        self._listeners.append(listener)

    def add(self, event: TimelineEvent) -> None:
        """Take the next event."""
        self.events.append(event)
        for listener in self._listeners:
            listener(event)
        self._grown.set()
        self._grown = trio.Event()

    async def wait_grown(self) -> None:
        """Wait until the next event is in here."""
        await self._grown.wait()

    def log(self) -> bytes:
        """Return all events as JSON lines. Two runs with one seed give the same bytes."""
        return b"".join(
            json.dumps(
                [event.wall_ms, event.node, event.name, event.fields], default=_json_value
            ).encode()
            + b"\n"
            for event in self.events
        )

    def story(self, last: int = 40, least: EventLevel = EventLevel.INFO) -> Iterator[str]:
        """Yield the last events of this level and above, one line for each."""
        told = [event for event in self.events if event.level >= least]
        told.sort(key=lambda event: event.wall_ms)
        if len(told) > last:
            yield f"  … {len(told) - last} events before"
        since_ms = min((event.wall_ms for event in self.events), default=0)
        for event in told[-last:]:
            yield event.line(since_ms)[:300]


class EventStream:
    """Events of a cluster, from the first on, as an async iterator."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._place = 0

    def __aiter__(self) -> AsyncIterator[TimelineEvent]:
        return self

    async def __anext__(self) -> TimelineEvent:
        while self._place >= len(self._timeline.events):
            await self._timeline.wait_grown()
        self._place += 1
        return self._timeline.events[self._place - 1]

    async def wait_for(
        self, name: str, node: str | None = None, within_s: float = 60.0, **fields: object
    ) -> TimelineEvent:
        """Return the next event of this name, of this node if given, with these fields.

        `promoted` stands for `epoch_began` of a set and for `raft_role` LEADER of a group;
        `epoch` is the term of either.
        Errors: NotSeen after `within_s`.
        """
        if name != PROMOTED and name not in EVENTS:
            raise TriohaError(f"no event has the name {name}; docs/journal.md lists them")
        with trio.move_on_after(within_s):
            async for event in self:
                if node in (None, event.node) and event.is_one(name, fields):
                    return event
        wanted = " ".join([name, *(f"{key}={value}" for key, value in fields.items())])
        story = "\n".join(self._timeline.story())
        raise NotSeen(f"no event {wanted} within {within_s:g} s. Events:\n{story}")


@attrs.frozen
class NodeJournal:
    """The sink of one node in this process."""

    timeline: Timeline
    node: str
    wall_ms: Callable[[], int]
    root: Path
    """Directory whose path is left out of the events: it differs from run to run."""

    def event(self, name: str, **fields: object) -> None:
        """Add an event to the timeline."""
        if name in _MEASURED:
            fields.pop("elapsed_ms", None)
        plain = {key: self._without_root(value) for key, value in fields.items()}
        self.timeline.add(TimelineEvent(self.wall_ms(), self.node, name, plain))

    def _without_root(self, value: object) -> object:
        return value.replace(f"{self.root}/", "") if isinstance(value, str) else value


def _json_value(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)
