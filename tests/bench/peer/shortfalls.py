"""Explanations of rows that miss their goals, written by hand in `shortfalls.toml`.

A text is shown beside the measured figures, and only while the row is short: what was cured needs
no story.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Sequence
from pathlib import Path

import attrs

FILE = Path(__file__).with_suffix(".toml")


@attrs.frozen(kw_only=True)
class Shortfall:
    """Why the rows of a glob miss goals, and what was tried."""

    rows: str
    text: str
    metrics: tuple[str, ...] = ()
    """Keys of the metrics it is about; all of them when none is named."""

    def is_about(self, row: str, metric: str) -> bool:
        return fnmatch.fnmatch(row, self.rows) and (not self.metrics or metric in self.metrics)


def load_shortfalls(path: Path = FILE) -> list[Shortfall]:
    """Errors: TypeError for a key that is none."""
    entries = tomllib.loads(path.read_text()).get("shortfall", [])
    return [Shortfall(**{**entry, "metrics": tuple(entry.get("metrics", ()))}) for entry in entries]


def explanation(shortfalls: Sequence[Shortfall], row: str, metric: str) -> str:
    """Return the first text about this metric of this row, or "" if there is none."""
    return next((entry.text for entry in shortfalls if entry.is_about(row, metric)), "")
