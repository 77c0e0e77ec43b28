"""The file of `trioha bundle`: a .tar.gz whose every text is redacted and told in a manifest."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from trioha.redaction import redacted, without_secrets


class BundleFile:
    """A file that is written beside its place and moved there when it is whole.

    Errors: OSError. A bundle that is not finished leaves nothing behind.
    """

    def __init__(self, path: Path, wall_s: int) -> None:
        self.path = path
        self.files: list[dict[str, Any]] = []
        self._folder = path.name.removesuffix(".tar.gz").removesuffix(".tgz")
        self._partial = path.with_name(f".{path.name}.partial")
        self._wall_s = wall_s

    def __enter__(self) -> Self:
        # It tells of a whole cluster: for its owner alone.
        handle = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(handle, "wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w:gz")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._tar.close()
        finally:
            self._file.close()
            if kind is None:
                os.replace(self._partial, self.path)
            else:
                self._partial.unlink(missing_ok=True)

    def add_json(self, name: str, value: object) -> None:
        """Plain values, secrets hidden."""
        self._add(name, json.dumps(without_secrets(value), indent=1, default=str).encode())

    def add_lines(self, name: str, values: Iterable[object]) -> None:
        """JSON lines, secrets hidden."""
        lines = [json.dumps(without_secrets(value), default=str) for value in values]
        self._add(name, "".join(f"{line}\n" for line in lines).encode())

    def add_text(self, name: str, text: str) -> None:
        self._add(name, redacted(text).encode())

    def add_file(self, name: str, source: Path) -> None:
        """A recording as it is: nodes tell it no secrets."""
        with source.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256()
            info = self._info(name, size)

            class Hashing(io.RawIOBase):
                """Reader that hashes just the bytes that are packed, even of a file that grows."""

                def read(self, count: int = -1) -> bytes:
                    data = file.read(count)
                    digest.update(data)
                    return data

            self._tar.addfile(info, Hashing())
        self.files.append({"name": name, "bytes": size, "sha256": digest.hexdigest()})

    def _add(self, name: str, data: bytes) -> None:
        self._tar.addfile(self._info(name, len(data)), io.BytesIO(data))
        digest = hashlib.sha256(data).hexdigest()
        self.files.append({"name": name, "bytes": len(data), "sha256": digest})

    def _info(self, name: str, size: int) -> tarfile.TarInfo:
        info = tarfile.TarInfo(f"{self._folder}/{name}")
        info.size = size
        info.mtime = self._wall_s
        info.mode = 0o600
        return info
