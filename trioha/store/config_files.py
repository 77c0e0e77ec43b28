"""Files of config/: how they are replaced and found again (ConfigManager.java, MixAll.java).

The new text goes to ``<name>.tmp`` and to disk; the file becomes ``<name>.bak``; the new one takes
its place. A crash between the two renames leaves no main file but a whole backup, which `load`
(and a Java broker) then reads.

These calls block; the shell makes them in a thread.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from trioha.errors import RemoteProtocolError, StoreError
from trioha.wire import fastjson


def save(path: Path, data: bytes) -> None:
    """Replace the file.

    Durability: once it returns, the new text survives a power loss; until then, the old one does.

    Errors: OSError; the old file or its backup is then still whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileNotFoundError):
        os.replace(path, _backup(path))
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(path: Path) -> bytes | None:
    """The file's text, or its backup's when the file is missing, empty or no JSON; None at first.

    Errors: StoreError when something is there and none of it can be read.
    """
    damage: list[str] = []
    for candidate in (path, _backup(path)):
        try:
            data = candidate.read_bytes()
        except FileNotFoundError:
            continue
        if not data.strip():
            # RocketMQ leaves an empty file when it dies between create and write.
            continue
        try:
            fastjson.loads(data)
        except RemoteProtocolError as error:
            damage.append(f"{candidate}: {error}")
            continue
        return data
    if damage:
        raise StoreError(
            f"no readable copy of {path.name} ({'; '.join(damage)}); restore it from a slave or "
            "move it away to start with an empty one"
        )
    return None


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")
