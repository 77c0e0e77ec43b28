"""Builds peers of other languages, one builder at a time."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from support.suite.skips import unavailable


@contextlib.contextmanager
def exclusively(directory: Path) -> Iterator[None]:
    """Several pytest processes may want the same thing built at once: one builds, the rest wait."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def require_built(client: str, program: str, build: Callable[[], object]) -> None:
    """Skip the test, saying why, when `build` cannot make the client; in CI fail instead."""
    if shutil.which(program) is None:
        unavailable(f"{client}: {program} is not installed")
    try:
        build()
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", b"") or b""
        unavailable(f"{client}: it could not be built: {error} {said.decode()[-300:]}")
