"""Rows of journals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs


@attrs.frozen
class JournalRow:
    """A row of `schema.JOURNAL`."""

    node: str
    source: str
    sequence: int
    wall_ms: int
    name: str
    level: str
    fields: Mapping[str, str]


@attrs.frozen
class JournalCorruptRow:
    """A row of `schema.JOURNAL_CORRUPT`."""

    source: str
    position: int
    length: int
    reason: str


def journal_files_of(path: str | Path) -> list[Path]:
    """Files of a journal directory, or of the one inside a store, oldest first.

    Errors: AnalysisError when there is none.
    """
    raise NotImplementedError


def read_file(path: Path) -> Iterator[JournalRow | JournalCorruptRow]:
    """Events of one file in order, and the damaged stretches between them."""
    raise NotImplementedError
