"""Opens a file by its path: on disk, or in the storage that Arrow reads."""

from __future__ import annotations

from trioha.analysis.log_source import FileSource, OpenSource


def is_remote(path: str) -> bool:
    """Return whether a path has a scheme, so that Arrow reads it."""
    return "://" in path


def open_source(path: str) -> OpenSource:
    """A file on disk or in other storage.

    Errors: OSError.
    """
    if not is_remote(path):
        return FileSource(path)
    from trioha.analysis.remote import RemoteSource, located

    return RemoteSource(*located(path))
