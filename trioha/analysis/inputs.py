"""Inputs of an analysis: stores, journals of nodes, the time window; and notes on how it went."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import attrs

from trioha.analysis.engine import Window
from trioha.analysis.journal_rows import (
    JournalCorruptRow,
    JournalRow,
    journal_files_of,
    read_file,
)
from trioha.analysis.log_end import held_bytes
from trioha.analysis.open_source import is_remote
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import StoreFiles, open_store

_JOURNAL = "journal"
NOTES_MAX = 100
"""Limit for one analysis: a journal damaged all over must not fill the manifest."""


@attrs.define(eq=False)
class Inputs:
    """Opened once, shared by engine, reports and manifest."""

    stores: Sequence[StoreFiles]
    journals: Sequence[Path] = ()
    window: Window = Window()
    notes: list[str] = attrs.field(factory=list)

    @cached_property
    def log_bytes(self) -> Mapping[str, int]:
        """Bytes from the beginning of each store's log to its end, by store."""
        return {store.label: held_bytes(store) for store in self.stores}

    @property
    def bytes_total(self) -> int:
        """Bytes of all logs."""
        return sum(self.log_bytes.values())

    def note(self, text: str) -> None:
        """Keep a sentence once."""
        if text not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(text)

    def journal_rows(self, names: Collection[str] | None = None) -> Iterator[JournalRow]:
        """Events within the window, journal by journal; damage becomes a note."""
        for item in self.journal_items():
            if isinstance(item, JournalCorruptRow):
                self.note(f"{item.source}: {item.reason} at {item.position}, {item.length} bytes")
            elif names is None or item.name in names:
                yield item

    def journal_items(self) -> Iterator[JournalRow | JournalCorruptRow]:
        """Events within the window and all damage, journal by journal."""
        begin, end = self.window.from_ms, self.window.to_ms
        for journal in self.journals:
            for file in journal_files_of(journal):
                for item in read_file(file):
                    if isinstance(item, JournalRow) and (
                        (begin is not None and item.wall_ms < begin)
                        or (end is not None and item.wall_ms >= end)
                    ):
                        continue
                    yield item


def open_inputs(
    stores: Sequence[str], journals: Sequence[str] = (), window: Window | None = None
) -> Inputs:
    """Open stores and journals; a store's own journal is found where its node writes it.

    Errors: AnalysisError naming the first path that cannot be used.
    """
    doubled = [path for path in stores if stores.count(path) > 1]
    if doubled:
        raise AnalysisError(f"{doubled[0]} is given twice; name each store once")
    if remote := [path for path in (*stores, *journals) if is_remote(path)]:
        raise AnalysisError(
            f"{remote[0]} is no local directory: mount it, or read it in Spark with "
            'spark.read.format("rocketmq_commitlog")'
        )
    opened = [open_store(path) for path in stores]
    found: dict[Path, Path] = {}
    for given in journals:
        path = Path(given)
        journal_files_of(path)
        found.setdefault(path.resolve(), path)
    for store in opened:
        for path in _beside(store):
            found.setdefault(path.resolve(), path)
    return Inputs(opened, list(found.values()), window or Window())


def _beside(store: StoreFiles) -> Iterator[Path]:
    """A broker writes ``<storePathRootDir>/journal``; a log given alone lies below the root."""
    root = store.root
    if root is None and store.segments:
        root = Path(store.segments[0].path).parent.parent
    if root is not None and any((root / _JOURNAL).glob("*.journal")):
        yield root / _JOURNAL
