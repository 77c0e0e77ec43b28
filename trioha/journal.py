"""The seam through which every ring reports what happened; `docs/journal.md` lists the events."""

from __future__ import annotations

from typing import Protocol


class EventSink(Protocol):
    """Takes structured events. Names and fields are a documented interface."""

    def event(self, name: str, **fields: object) -> None:
        """Record one event; fields are msgpack scalars, lists or maps."""


class NullSink:
    """Forgets everything: for tests and offline tools."""

    def event(self, name: str, **fields: object) -> None:
        pass
