"""Files of one size in one directory that make one long byte range (MappedFileQueue.java).

A file is named after the offset of its first byte, in 20 digits. RocketMQ reads every name in the
directory as such a number and refuses to start on a file of another size; so do we, with the name
of the file and what to do about it.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from trioha.errors import CommitLogCorrupted, StoreError
from trioha.store.mapped_file import MappedFile, disk_error, fsync_directory

NAME_DIGITS = 20


class MappedFileQueue:
    """The files in order. `files` may be read from the flush thread: it copies the list first."""

    def __init__(
        self,
        directory: Path,
        file_bytes: int,
        chunk_bytes: int,
        *,
        keep_descriptors: bool = False,
        cure: str,
        size_key: str,
        gap_cure: str = "",
    ) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self.files: list[MappedFile] = []
        self.names_changed = False
        """A file was created or removed since the directory was last synced."""
        self._chunk_bytes = chunk_bytes
        self._keep_descriptors = keep_descriptors
        self._cure = cure
        self._size_key = size_key
        self._gap_cure = gap_cure or cure

    def load(self) -> None:
        """List the directory.

        Errors: StoreError for a foreign file, CommitLogCorrupted for a wrong size or a gap; the
        text names the file and the cure.
        """
        if not self.directory.is_dir():
            return
        offsets = []
        for path in sorted(self.directory.iterdir()):
            if len(path.name) != NAME_DIGITS or not path.name.isdecimal() or not path.is_file():
                raise StoreError(
                    f"{path} does not belong here: only files named by {NAME_DIGITS} digits may "
                    "be in this directory; move it away"
                )
            offsets.append(int(path.name))
        for offset, following in zip_longest(offsets, offsets[1:]):
            file = self._file(offset)
            size = file.path.stat().st_size
            if size == 0 and following is None:
                file.create()  # we died between making the last file and giving it its size
            elif size != self.file_bytes:
                raise CommitLogCorrupted(
                    f"{file.path} has {size} bytes, not {self.file_bytes}: set {self._size_key} to "
                    f"what the store was written with, or {self._cure}"
                )
            if offset % self.file_bytes:
                raise CommitLogCorrupted(
                    f"{file.path} begins at no multiple of {self.file_bytes}: set {self._size_key} "
                    f"to what the store was written with, or {self._cure}"
                )
            if following is not None and following != file.end_offset:
                missing = self.directory / f"{file.end_offset:0{NAME_DIGITS}d}"
                raise CommitLogCorrupted(f"{missing} is missing: put it back; or, {self._gap_cure}")
            self.files.append(file)

    @property
    def first_offset(self) -> int:
        return self.files[0].from_offset if self.files else 0

    @property
    def end_offset(self) -> int:
        """Offset at which the next file begins; 0 if there is no file."""
        return self.files[-1].end_offset if self.files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds the byte at `offset`."""
        files = self.files
        if not files:
            return None
        number = (offset - files[0].from_offset) // self.file_bytes
        return files[number] if 0 <= number < len(files) else None

    def create(self, from_offset: int) -> MappedFile:
        """Add a file: the next one, or the first.

        Errors: StoreError, DiskFull; nothing has changed then.
        """
        assert not self.files or from_offset == self.end_offset, (from_offset, self.end_offset)
        if not self.files:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise disk_error(error, f"cannot create {self.directory}") from error
        file = self._file(from_offset)
        file.create()
        self.names_changed = True
        self.files.append(file)
        return file

    def drop_first(self) -> MappedFile:
        """Delete the oldest file."""
        file = self.files.pop(0)
        self.names_changed = True
        file.unlink()
        return file

    def drop_from(self, offset: int) -> None:
        """Delete every file that begins at `offset` or later, the last one first."""
        while self.files and self.files[-1].from_offset >= offset:
            self.names_changed = True
            self.files.pop().unlink()

    def sync_names(self) -> None:
        """Make creations and deletions durable.

        Errors: StoreError.
        """
        if not self.names_changed:
            return
        self.names_changed = False
        try:
            fsync_directory(self.directory)
        except FileNotFoundError:
            return  # a topic was deleted meanwhile
        except OSError as error:
            self.names_changed = True
            raise StoreError(f"fsync of {self.directory} failed: {error.strerror}") from error

    def _file(self, from_offset: int) -> MappedFile:
        return MappedFile(
            self.directory / f"{from_offset:0{NAME_DIGITS}d}",
            from_offset,
            self.file_bytes,
            self._chunk_bytes,
            keep_descriptor=self._keep_descriptors,
        )
