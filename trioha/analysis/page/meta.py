"""What the head of the page says: what was analysed, by what, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from trioha.analysis.engine import Window


@attrs.frozen(kw_only=True)
class PageMeta:
    """Times are milliseconds since 1970."""

    stores: Sequence[str]
    journals: Sequence[str] = ()
    engine: str
    """In words: "local (SQLite 3.40)", "Spark 4.3.0 on local[2]"."""
    version: str
    """Of trioha."""
    created_ms: int
    elapsed_ms: int | None = None
    window: Window = Window()
    """What was asked for."""
    first_ms: int | None = None
    last_ms: int | None = None
    """Times of the first and the last record found."""
    records: int | None = None
    bytes: int | None = None
    notes: Sequence[str] = ()
    partial: str = ""
    """Why the results are not whole; empty when they are."""
    skipped: Mapping[str, str] = attrs.field(factory=dict)
    """Reports that were not made: name -> why."""
