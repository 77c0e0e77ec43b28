"""Samples as they were measured, and the file that keeps all of them.

Nothing is thrown away: the file has every figure of every round, so that a report can be drawn
again, or from several files of which later ones replace rows of earlier ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

Side = Literal["java", "trioha"]
SIDES: tuple[Side, ...] = ("java", "trioha")
FORMAT = 1
DISTURBED_SHARE = 0.07
"""Share of one processor. In the anchor's clean runs others took less than 1 s of 11 to 15."""


@attrs.frozen(kw_only=True)
class Sample:
    """One row measured once on one side."""

    row: str
    side: Side
    round: int
    figures: Mapping[str, float] = attrs.field(factory=dict)
    count: int = 0
    """Messages, bytes or starts the figures rest on."""
    errors: Mapping[str, int] = attrs.field(factory=dict)
    failed: str | None = None
    """Why there are no figures."""
    other_cpu_s: float = 0.0
    """Processor seconds of processes outside the measurement."""
    elapsed_s: float = 0.0
    at: str = ""
    extra: Mapping[str, Any] = attrs.field(factory=dict)
    """Further observations, for a closer look."""

    @property
    def disturbed(self) -> bool:
        """Did other processes take more processor time than the figures can bear?"""
        return self.other_cpu_s > DISTURBED_SHARE * self.elapsed_s


@attrs.frozen(kw_only=True)
class Measured:
    """Result of one measurement."""

    figures: Mapping[str, float]
    count: int
    errors: Mapping[str, int] = attrs.field(factory=dict)
    other_cpu_s: float = 0.0
    elapsed_s: float = 0.0
    extra: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Results:
    """The samples of one run or of several, and how they came about."""

    setup: Mapping[str, Any]
    samples: Sequence[Sample]

    def of_row(self, row: str, side: Side) -> list[Sample]:
        return [sample for sample in self.samples if (sample.row, sample.side) == (row, side)]


def save_results(results: Results, path: Path) -> None:
    """Write all of it; what was there before stays until the new file is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "format": FORMAT,
        "setup": dict(results.setup),
        "samples": [attrs.asdict(sample) for sample in results.samples],
    }
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
    fresh.replace(path)


def load_results(path: Path) -> Results:
    """Errors: ValueError for a file of another format."""
    document = json.loads(path.read_text())
    if document.get("format") != FORMAT:
        raise ValueError(f"{path}: format {document.get('format')}, not {FORMAT}")
    return Results(
        setup=document["setup"], samples=[Sample(**sample) for sample in document["samples"]]
    )


def merge_results(parts: Sequence[Results]) -> Results:
    """Rows of later parts replace those of earlier ones; the last part's setup is told."""
    samples: list[Sample] = []
    for part in parts:
        fresh = {sample.row for sample in part.samples}
        samples = [sample for sample in samples if sample.row not in fresh] + list(part.samples)
    return Results(setup=parts[-1].setup, samples=samples)
