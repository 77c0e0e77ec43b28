"""An event sink that tests can look into."""

from __future__ import annotations


class RecordedEvents:
    """Keeps every event in the order it came."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def event(self, name: str, **fields: object) -> None:
        self.events.append((name, fields))

    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def of(self, name: str) -> list[dict[str, object]]:
        return [fields for event, fields in self.events if event == name]
