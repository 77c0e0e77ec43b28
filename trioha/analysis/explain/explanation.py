"""An answer to `trioha analyze explain`: verdicts first, then the evidence as dated lines.

A verdict is one sentence with a code that programs can rely on. What the files cannot tell is a
part of the answer.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

VerdictCode = Literal[
    "not stored",
    "deleted",
    "several messages",
    "stored",
    "stored late",
    "stored twice",
    "in every replica",
    "not in a replica",
    "lost at a failover",
    "cut",
    "damaged",
    "delayed",
    "delivered after delay",
    "recalled",
    "half message",
    "committed",
    "committed twice",
    "rolled back",
    "given up",
    "retried",
    "in retry",
    "dead letter",
    "consumed",
    "consumed late",
    "not consumed",
    "skipped",
    "skipped by a reset",
    "set back",
    "popped",
    "no offset",
    "outage",
    "stored until then",
    "lag",
]
"""Machine-readable code of a verdict."""


@attrs.frozen
class VerdictLine:
    """One sentence of the answer."""

    code: VerdictCode
    text: str


@attrs.frozen
class EvidenceLine:
    """One dated line. `wall_ms` is milliseconds since 1970 by the clock of `source`."""

    wall_ms: int
    source: str
    """Store, journal or file that the line was read from."""
    text: str


@attrs.define
class Explanation:
    """All that is known about one question."""

    question: str
    is_found: bool = False
    """The message, or the group and the time, lies within the files."""
    verdicts: list[VerdictLine] = attrs.field(factory=list)
    timeline: list[EvidenceLine] = attrs.field(factory=list)
    unknown: list[str] = attrs.field(factory=list)
    """Sentences on what the files cannot tell."""

    def conclude(self, code: VerdictCode, text: str) -> None:
        """Add a verdict once."""
        verdict = VerdictLine(code, text)
        if verdict not in self.verdicts:
            self.verdicts.append(verdict)

    def witness(self, wall_ms: int, source: str, text: str) -> None:
        """Add a line of evidence once."""
        line = EvidenceLine(wall_ms, source, text)
        if line not in self.timeline:
            self.timeline.append(line)

    def admit(self, text: str) -> None:
        """Add a sentence on what is not known, once."""
        if text not in self.unknown:
            self.unknown.append(text)

    def finish(self) -> Explanation:
        """Put the evidence in the order of time; equal times keep the order of discovery."""
        self.timeline.sort(key=lambda line: line.wall_ms)
        return self

    def as_json(self) -> dict[str, Any]:
        """The document of ``-o json``."""
        return {
            "question": self.question,
            "found": self.is_found,
            "verdicts": [attrs.asdict(verdict) for verdict in self.verdicts],
            "timeline": [attrs.asdict(line) for line in self.timeline],
            "unknown": list(self.unknown),
        }
