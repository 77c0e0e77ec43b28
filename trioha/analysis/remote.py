"""Stores and journals in any storage that Arrow knows: object stores, HDFS, mounted directories.

Theory of operation. A path with a scheme (``s3a://backup/broker-a``) stands for a directory there.
It is listed once, with all that is below it; files are read in ranges as they are asked for. What
Arrow needs to know beside the credentials of the environment stands behind a question mark, and so
travels with each path to the workers: ``s3a://backup/broker-a?endpoint_override=HOST:PORT``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from typing import Any, Self
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pyarrow import fs

from trioha.analysis.log_source import find_in_pieces
from trioha.analysis.schema import AnalysisError

_LOCAL = "file:"
_HADOOPS = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of schemes, and Arrow's."""
_AHEAD_BYTES = 64 << 10
"""Read at least: a look at a record's head must not be a request of its own."""


def located(path: str, filesystem: fs.FileSystem | None = None) -> tuple[fs.FileSystem, str]:
    """The file system of a path as Spark's binaryFile names it, and the path within.

    Errors: AnalysisError for a scheme that Arrow does not know.
    """
    if path.startswith(_LOCAL):
        return filesystem or fs.LocalFileSystem(), "/" + path.removeprefix(_LOCAL).lstrip("/")
    scheme = urlsplit(path).scheme
    within, mark, settings = path.partition("://")[2].partition("?")
    if filesystem is not None:
        return filesystem, within
    uri = f"{_HADOOPS.get(scheme, scheme)}://{quote(within, safe='/:@')}{mark}{settings}"
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, OSError) as error:
        raise AnalysisError(
            f"cannot open {path}: {_first_line(error)}; mount the storage, or read its segments "
            "with commitlog_from_binary_files and a filesystem of pyarrow's"
        ) from None
    return found


class RemoteSource:
    """A `LogSource` that reads pieces of a file as they are asked for.

    Errors: OSError.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str, size: int | None = None) -> None:
        with _explained():
            self._file: Any = filesystem.open_input_file(path)
            self.size: int = self._file.size() if size is None else size
        self._held = b""
        self._held_at = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        self._file.close()

    def data_end(self) -> int:
        """Position behind which the file is a hole: such storage has no holes."""
        return self.size

    def read(self, position: int, size: int) -> bytes:
        size = min(size, self.size - position)
        if size <= 0:
            return b""
        begin = position - self._held_at
        if not 0 <= begin <= len(self._held) - size:
            if size >= _AHEAD_BYTES:
                return self._read(position, size)
            self._held = self._read(position, min(_AHEAD_BYTES, self.size - position))
            self._held_at, begin = position, 0
        return self._held[begin : begin + size]

    def _read(self, position: int, size: int) -> bytes:
        with _explained():
            data: bytes = self._file.read_at(size, position)
        return data.ljust(size, b"\0")

    def find(self, needle: bytes, begin: int, end: int) -> int:
        return find_in_pieces(self, needle, begin, end)


class RemoteDirectory:
    """All files below a path: sizes by directory and name, and a path for each."""

    def __init__(self, path: str) -> None:
        """Errors: AnalysisError when it is not there or cannot be read."""
        self.path = path
        filesystem, root = located(path)
        root = root.rstrip("/")
        try:
            infos = filesystem.get_file_info(fs.FileSelector(root, recursive=True))
        except OSError as error:
            what = "does not exist" if isinstance(error, FileNotFoundError) else str(error)
            raise AnalysisError(f"{path}: {_first_line(what)}") from None
        self.files: dict[str, dict[str, int]] = defaultdict(dict)
        for info in infos:
            if info.is_file:
                directory, _, name = info.path[len(root) :].lstrip("/").rpartition("/")
                self.files[directory][name] = info.size

    def within(self, *names: str) -> str:
        """The path of what is below."""
        base, mark, settings = self.path.partition("?")
        return "/".join((base.rstrip("/"), *filter(None, names))) + mark + settings

    def children(self) -> list[str]:
        """Paths of the directories right below, by name."""
        names = {directory.partition("/")[0] for directory in self.files if directory}
        return [self.within(name) for name in sorted(names)]

    def matching(self, directory: str, names: str) -> list[tuple[str, int]]:
        """Paths and sizes of the files of one directory whose names match, by name."""
        found = self.files.get(directory, {})
        return [
            (self.within(directory, name), size)
            for name, size in sorted(found.items())
            if re.fullmatch(names, name)
        ]


@contextmanager
def _explained() -> Iterator[None]:
    """Arrow's errors have a text and often no number; callers show `strerror`."""
    try:
        yield
    except OSError as error:
        if error.strerror:
            raise
        raise OSError(EIO, _first_line(error)) from error


def _first_line(error: object) -> str:
    return str(error).partition("\n")[0]
