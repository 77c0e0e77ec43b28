"""Files of a store as they lie on disk, read-only, in use or not, of RocketMQ or trioha.

A store is a broker's storePathRootDir: segments in ``commitlog/`` (one format for Java and trioha),
or, written in DLEDGER mode, in ``dledger-<id>/data/``, there behind an older ``commitlog/`` if the
group was once a plain pair. A directory that itself holds segments will do as well.

Nothing is locked, created or mapped: a broker may append, roll and delete meanwhile.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import attrs

from trioha.analysis.log_walk import ENTRY_SIZE
from trioha.analysis.open_source import is_remote, open_source
from trioha.analysis.schema import AnalysisError, NothingHere
from trioha.errors import RemoteProtocolError, StoreError
from trioha.ha.epochs import EpochHistory
from trioha.ha.mastership import FILE_NAME as EPOCHS
from trioha.ha.mastership import kept_history
from trioha.store import config_files
from trioha.store.cuts import Cut, list_cuts
from trioha.store.mapped_file_queue import NAME_DIGITS
from trioha.store.two_slot_file import TwoSlotFile
from trioha.wire import fastjson
from trioha.wire.record import MAGIC

SPLIT_BYTES = 64 << 20
_MAGIC_BYTES = MAGIC.to_bytes(4, "big")
_ENTRY_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (1, 2, 3))
_PROBE_BYTES = 4096
_GROUP_SEPARATOR = "@"
_LOG = "commitlog"
_LOGS = r"commitlog|dledger-[^/]+/data"
_QUEUE = r"consumequeue/([^/]+)/(\d+)"
_NUMBERED = rf"\d{{{NAME_DIGITS}}}"
_LOGGER = logging.getLogger(__name__)
_Opened = TypeVar("_Opened")


@attrs.frozen
class CorruptRow:
    """A stretch of a log that is no sound record: a row of `schema.COMMITLOG_CORRUPT`."""

    store: str
    segment: str
    phy_offset: int
    length: int
    reason: str


@attrs.frozen
class Segment:
    """One file of the log."""

    path: str
    from_offset: int
    size: int
    data_end: int
    """Position behind which the file is a hole. At most `size`."""
    is_dledger: bool
    is_tail: bool = False
    """No later file holds data: where its records end, the log ends."""

    @property
    def name(self) -> str:
        return f"{self.from_offset:0{NAME_DIGITS}d}"

    @property
    def first_offset(self) -> int:
        """The phy_offset of a record at position 0; a DLEDGER entry begins with its own header."""
        return self.from_offset + (ENTRY_SIZE if self.is_dledger else 0)


@attrs.frozen
class LogSplit:
    """A range of one segment; who scans it emits the records that begin in it. Pickles."""

    store: str
    segment: Segment
    begin: int
    end: int
    """Positions in the file."""
    is_closed: bool = False
    """The store was closed in order, so that a torn record at its end is damage."""
    gap: CorruptRow | None = None
    """Missing bytes of the log before the segment, for the split at its beginning."""

    @property
    def first_offset(self) -> int:
        """The lowest phy_offset that a record in it can have."""
        return self.segment.first_offset + self.begin


@attrs.frozen
class QueueFiles:
    """One consume queue: its files by the byte offset in their names."""

    store: str
    topic: str
    queue_id: int
    files: tuple[tuple[int, str], ...]
    bytes: int
    """Size of all files together."""


@attrs.define(eq=False)
class StoreFiles:
    """A store, opened. It is a snapshot: records written later are not in its splits."""

    label: str
    root: Path | None
    """Directory of the store; None when only the log was given."""
    segments: list[Segment]
    """Segments in order; those that hold nothing yet are left out."""
    gaps: list[CorruptRow]
    """Missing segments between those that are there. `scan_split` reports them as well."""
    is_closed: bool
    """Closed in order, as far as the file `abort` tells; False when it is in use or crashed."""
    remote_queues: list[QueueFiles] = attrs.field(factory=list)
    """Queues of a store in other storage, which is listed once."""

    @property
    def data_bytes(self) -> int:
        """Bytes there are to read."""
        return sum(segment.data_end for segment in self.segments)

    def splits(self, bytes_max: int = SPLIT_BYTES) -> list[LogSplit]:
        """Ranges of at most `bytes_max` that cover every segment, in order."""
        gaps = {gap.phy_offset + gap.length: gap for gap in self.gaps}
        return [
            LogSplit(
                self.label,
                segment,
                begin,
                min(begin + bytes_max, segment.data_end),
                self.is_closed,
                None if begin else gaps.get(segment.from_offset),
            )
            for segment in self.segments
            for begin in range(0, segment.data_end, bytes_max)
        ]

    def consume_queues(self) -> list[QueueFiles]:
        """The store's queues, by topic and number.

        Errors: AnalysisError when they cannot be read.
        """
        queues = list(self.remote_queues)
        if self.root is not None:
            for topic in _directories(self.root / "consumequeue"):
                for queue in _directories(topic):
                    if queue.name.isdecimal():
                        sizes = [(str(path), path.stat().st_size) for path in _numbered(queue)]
                        queues.append(_queue(self.label, topic.name, queue.name, sizes))
        return sorted(queues, key=lambda queue: (queue.topic, queue.queue_id))

    def consumer_offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        """(topic, group) -> queue id -> next offset. Empty when there is no such file.

        Errors: AnalysisError when the file is damaged.
        """
        offsets = {}
        for key, queues in _entries(self._config("consumerOffset.json"), "offsetTable").items():
            topic, separator, group = key.partition(_GROUP_SEPARATOR)
            if separator and isinstance(queues, dict):
                offsets[topic, group] = _integers(queues)
        return offsets

    def topics(self) -> dict[str, dict[str, object]]:
        """Name -> what config/topics.json says of it.

        Errors: AnalysisError when the file is damaged.
        """
        table = _entries(self._config("topics.json"), "topicConfigTable")
        return {name: topic for name, topic in table.items() if isinstance(topic, dict)}

    def delay_offsets(self) -> dict[int, int]:
        """Delay level -> next offset of its queue.

        Errors: AnalysisError when the file is damaged.
        """
        return _integers(_entries(self._config("delayOffset.json"), "offsetTable"))

    def epochs(self) -> EpochHistory:
        """Terms of mastership; none for a classic store.

        Errors: AnalysisError when the file cannot be read.
        """
        if self.root is None:
            return EpochHistory()
        try:
            payload = TwoSlotFile(self.root / EPOCHS).payload
            return EpochHistory() if payload is None else kept_history(payload)
        except (StoreError, OSError) as error:
            raise AnalysisError(f"{self.label}: {error}") from None

    def cuts(self) -> list[Cut]:
        """Ends of the log that were given up, oldest first."""
        return [] if self.root is None else list_cuts(self.root)

    def _config(self, name: str) -> object:
        if self.root is None:
            return {}
        try:
            data = config_files.load(self.root / "config" / name)
            return {} if data is None else fastjson.loads(data)
        except (StoreError, RemoteProtocolError) as error:
            raise AnalysisError(str(error)) from None
        except OSError as error:
            raise AnalysisError(f"cannot read {self.root / 'config' / name}: {error}") from None


def open_store(path: str | Path) -> StoreFiles:
    """The store at `path`: a broker's storePathRootDir, or only a directory of segments.

    Of a store in other storage (``s3a://backup/broker-a``) log and consume queues are read.

    Errors: AnalysisError when it is not a store or cannot be read, NothingHere when it may hold
    stores.
    """
    label = str(path)
    if is_remote(label):
        return _open_remote(label)
    try:
        root, logs = _logs(Path(path))
        segments = [
            segment
            for log in logs
            for segment in _segments(map(str, _numbered(log)), log.parent.name)
        ]
        is_closed = root is not None and not (root / "abort").exists()
        return _opened(label, root, segments, is_closed=is_closed)
    except OSError as error:
        where = error.filename or path
        raise AnalysisError(f"cannot read {where}: {error.strerror}") from None


def open_stores(path: str | Path) -> list[StoreFiles]:
    """The store at `path`, or the stores in that directory.

    What else is in the directory is named in a warning.

    Errors: AnalysisError when there is none.
    """
    return open_within(str(path), open_store)


def open_within(path: str, open_one: Callable[[str], _Opened]) -> list[_Opened]:
    """Open `path`, or the directories right below it.

    Errors: what `open_one` raises; NothingHere of `path` if nothing below can be opened either.
    """
    try:
        return [open_one(path)]
    except NothingHere as error:
        found, lacking = [], []
        for child in _children(path):
            try:
                found.append(open_one(child))
            except NothingHere:
                lacking.append(child)
        if not found:
            raise error
        if lacking:
            _LOGGER.warning("passed over in %s: %s", path, ", ".join(lacking))
        return found


def _children(path: str) -> list[str]:
    if is_remote(path):
        from trioha.analysis.remote import RemoteDirectory

        return RemoteDirectory(path).children()
    return [str(child) for child in _directories(Path(path))]


def _open_remote(path: str) -> StoreFiles:
    from trioha.analysis.remote import RemoteDirectory

    directory = RemoteDirectory(path)
    logs = [name for name in sorted(directory.files) if re.fullmatch(_LOGS, name)]
    ledgers = [name for name in logs if name != _LOG]
    if len(ledgers) > 1:
        raise _too_many(path, [name.partition("/")[0] for name in ledgers])
    is_root = bool(logs)
    try:
        segments = [
            segment
            for log in logs or [""]
            for segment in _segments(
                (file for file, _ in directory.matching(log, _NUMBERED)), log.partition("/")[0]
            )
        ]
        if not (segments or is_root):
            raise _no_store(path)
        is_closed = is_root and "abort" not in directory.files[""]
        store = _opened(path, None, segments, is_closed=is_closed)
    except OSError as error:
        raise AnalysisError(f"cannot read {path}: {error.strerror}") from None
    for name in sorted(directory.files):
        if queue := re.fullmatch(_QUEUE, name):
            sizes = directory.matching(name, _NUMBERED)
            store.remote_queues.append(_queue(path, queue[1], queue[2], sizes))
    return store


def _queue(label: str, topic: str, number: str, sizes: Sequence[tuple[str, int]]) -> QueueFiles:
    files = tuple((number_of(path), path) for path, _ in sizes)
    return QueueFiles(label, topic, int(number), files, sum(size for _, size in sizes))


def number_of(path: str) -> int:
    """The number in the name of a file of segments, queues or journals."""
    return int(path.partition("?")[0].rpartition("/")[2].partition(".")[0])


def _opened(
    label: str, root: Path | None, segments: list[Segment], *, is_closed: bool
) -> StoreFiles:
    segments.sort(key=lambda segment: segment.from_offset)
    sizes = Counter(segment.size for segment in segments)
    gaps = _gaps(label, segments, sizes.most_common(1)[0][0] if sizes else 0)
    while segments and _is_blank(segments[-1]):
        segments.pop()  # a broker makes the next files before it needs them
    if segments:
        segments[-1] = attrs.evolve(segments[-1], is_tail=True)
        end = segments[-1].from_offset
        gaps = [gap for gap in gaps if gap.phy_offset < end]
    is_closed = is_closed and bool(segments)
    return StoreFiles(label, root, segments, gaps if segments else [], is_closed)


def dialect_of(data: bytes) -> bool | None:
    """Tell whether the first bytes of a segment are a DLEDGER log's; None when they are no log's.

    A damaged first record is looked past: a magic tells both dialects apart anywhere.
    """
    if data[4:8] == _MAGIC_BYTES:
        return False
    at = data.find(_MAGIC_BYTES)
    if at < 0:
        return True if data[:4] in _ENTRY_MAGICS else None
    return at >= 52 and data[at - 52 : at - 48] in _ENTRY_MAGICS


def _logs(directory: Path) -> tuple[Path | None, list[Path]]:
    """Root and log directories of the store at `directory`."""
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise AnalysisError(f"{directory} {what}; name a broker's storePathRootDir")
    plain = directory / "commitlog"
    ledgers = [ledger / "data" for ledger in sorted(directory.glob("dledger-*"))]
    ledgers = [data for data in ledgers if data.is_dir()]
    if len(ledgers) > 1:
        raise _too_many(str(directory), [data.parent.name for data in ledgers])
    if plain.is_dir() or ledgers:
        return directory, ([plain] if plain.is_dir() else []) + ledgers
    if directory.name.startswith("dledger-") and (directory / "data").is_dir():
        return None, [directory / "data"]
    if not any(_numbered(directory)) and directory.name != "commitlog":
        raise _no_store(str(directory))
    root = directory.parent
    is_store = directory.name == "commitlog" and (root / "consumequeue").is_dir()
    return root if is_store else None, [directory]


def _too_many(path: str, names: Iterable[str]) -> AnalysisError:
    return AnalysisError(f"{path} holds the logs of several nodes: {', '.join(names)}; name one")


def _no_store(path: str) -> NothingHere:
    return NothingHere(
        f"{path} is not a store: it has no commitlog/, no dledger-*/data/ and no files "
        "named like segments; name a broker's storePathRootDir"
    )


def _segments(paths: Iterable[str], parent: str) -> list[Segment]:
    files = []
    for path in paths:
        try:
            with open_source(path) as source:
                files.append((path, source.size, source.data_end(), source.read(0, _PROBE_BYTES)))
        except FileNotFoundError:
            continue  # deleted meanwhile
    dialects = Counter(dialect_of(head) for *_, head in files)
    is_dledger = dialects[True] > dialects[False] or (
        not dialects[False] and parent.startswith("dledger-")
    )
    return [
        Segment(path, number_of(path), size, data_end, is_dledger)
        for path, size, data_end, _ in files
        if size
    ]


def _is_blank(segment: Segment) -> bool:
    """Return whether a file holds nothing yet. Zeros before a record are damage, not nothing."""
    with open_source(segment.path) as source:
        if any(source.read(0, _PROBE_BYTES)):
            return False
        return source.find(_MAGIC_BYTES, 0, segment.data_end) < 0


def _gaps(label: str, segments: list[Segment], size: int) -> list[CorruptRow]:
    gaps = []
    for segment, following in pairwise(segments):
        end = segment.from_offset + segment.size
        if end < following.from_offset:
            is_cut = segment.size < size
            name = segment.name if is_cut else f"{end:0{NAME_DIGITS}d}"
            reason = "segment cut short" if is_cut else "segment missing"
            gaps.append(CorruptRow(label, name, end, following.from_offset - end, reason))
    return gaps


def _numbered(directory: Path) -> list[Path]:
    """Files named by an offset, in order."""
    return sorted(
        path
        for path in directory.iterdir()
        if len(path.name) == NAME_DIGITS and path.name.isdecimal()
    )


def _directories(directory: Path) -> list[Path]:
    try:
        return [path for path in sorted(directory.iterdir()) if path.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise AnalysisError(f"cannot read {directory}: {error.strerror}") from None


def _entries(document: object, key: str) -> dict[str, object]:
    table = document.get(key) if isinstance(document, dict) else None
    return table if isinstance(table, dict) else {}


def _integers(table: dict[str, object]) -> dict[int, int]:
    return {
        int(key): value
        for key, value in table.items()
        if key.lstrip("-").isdecimal() and isinstance(value, int)
    }
