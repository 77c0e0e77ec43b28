"""Rows of journals: the events of each file, and what is damaged between them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from trioha.analysis.open_source import is_remote, open_source
from trioha.analysis.schema import AnalysisError, NothingHere
from trioha.journal import EVENTS
from trioha.journal.file import Damage, journal_files, parse_journal_file

_NAME = r"\d+\.journal"


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


def sized_journal_files(path: str) -> list[tuple[str, int]]:
    """Paths and sizes of `journal_files_of`, also of a journal in other storage.

    Errors: AnalysisError, NothingHere when there is none.
    """
    if not is_remote(path):
        return [(str(file), file.stat().st_size) for file in journal_files_of(path)]
    from trioha.analysis.remote import RemoteDirectory

    directory = RemoteDirectory(path)
    files = directory.matching("", _NAME) or directory.matching("journal", _NAME)
    if not files:
        raise _no_journal(path)
    return files


def journal_files_of(path: str | Path) -> list[Path]:
    """Files of a journal directory, or of the one inside a store, oldest first.

    Errors: AnalysisError, NothingHere when there is none.
    """
    directory = Path(path)
    if not directory.exists():
        raise AnalysisError(f"{directory} does not exist; name a journal's directory")
    if not directory.is_dir():
        raise AnalysisError(f"{directory} is not a directory; name the journal's directory")
    try:
        files = journal_files(directory) or journal_files(directory / "journal")
    except OSError as error:
        raise AnalysisError(f"cannot read {directory}: {error.strerror}") from None
    if not files:
        raise _no_journal(directory)
    return files


def _no_journal(directory: object) -> NothingHere:
    return NothingHere(f"{directory} holds no journal: no files named like N.journal")


def read_file(path: Path | str) -> Iterator[JournalRow | JournalCorruptRow]:
    """Events of one file in order, and the damaged stretches between them.

    A file that is rotated away meanwhile has no rows.

    Errors: AnalysisError when it cannot be read.
    """
    source = str(path)
    try:
        with open_source(source) as file:
            head, items = parse_journal_file(Path(path), file.read(0, file.size))
    except FileNotFoundError:
        return
    except OSError as error:
        raise AnalysisError(f"cannot read {path}: {error.strerror}") from None
    node = str(head.get("node", ""))
    for item in items:
        if isinstance(item, Damage):
            yield JournalCorruptRow(source, item.position, item.length, item.reason)
            continue
        kind = EVENTS.get(item.name)
        level = "" if kind is None else kind.level.name.lower()
        fields = {str(key): _text(value) for key, value in item.fields.items()}
        yield JournalRow(node, source, item.sequence, item.wall_ms, item.name, level, fields)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
