"""Ranges of a segment in any storage that Arrow knows: object stores, HDFS, mounted directories."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from pyarrow import fs

from trioha.analysis.log_source import find_in_pieces

_LOCAL = "file:"
_HADOOPS = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of schemes, and Arrow's."""


def located(path: str, filesystem: fs.FileSystem | None) -> tuple[fs.FileSystem, str]:
    """The file system of a path as Spark's binaryFile names it, and the path within.

    Errors: pyarrow.ArrowInvalid for a scheme that Arrow does not know.
    """
    if path.startswith(_LOCAL):
        return filesystem or fs.LocalFileSystem(), "/" + path.removeprefix(_LOCAL).lstrip("/")
    parts = urlsplit(path)
    within = path.split("://", 1)[-1]
    if filesystem is not None:
        return filesystem, within
    scheme = _HADOOPS.get(parts.scheme, parts.scheme)
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(f"{scheme}://{quote(within)}")
    return found


class RemoteSource:
    """A `LogSource` that reads pieces of a file as they are asked for.

    Errors: OSError.
    """

    def __init__(self, filesystem: fs.FileSystem, path: str, size: int) -> None:
        self._file: Any = filesystem.open_input_file(path)
        self.size = size

    def __enter__(self) -> RemoteSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, position: int, size: int) -> bytes:
        size = min(size, self.size - position)
        data: bytes = self._file.read_at(size, position) if size > 0 else b""
        return data

    def find(self, needle: bytes, begin: int, end: int) -> int:
        return find_in_pieces(self, needle, begin, end)
