"""The Go client v2 as a driver binary, built once into `tests/interop/target`."""

from __future__ import annotations

import functools
import shutil
import subprocess

from support.peers.toolchain import exclusively
from support.processes.rig import REPO
from support.suite.skips import unavailable

SOURCES = REPO / "tests" / "interop" / "go"
TARGET = REPO / "tests" / "interop" / "target"
BUILD_S = 600.0


def require_go() -> None:
    """Skip the test, saying why, when the Go client cannot be had; in CI fail instead."""
    if shutil.which("go") is None:
        unavailable("Go client: go is not installed")
    try:
        go_driver()
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", b"") or b""
        unavailable(f"Go client: it could not be built: {error} {said.decode()[-300:]}")


@functools.cache
def go_driver() -> str:
    """The driver, built anew when a source is newer. Errors: CalledProcessError, TimeoutExpired."""
    binary = TARGET / "go-driver"
    with exclusively(TARGET):
        newest = max(source.stat().st_mtime for source in SOURCES.iterdir())
        if not binary.exists() or binary.stat().st_mtime < newest:
            subprocess.run(
                ["go", "build", "-o", str(binary), "."],
                cwd=SOURCES,
                check=True,
                capture_output=True,
                timeout=BUILD_S,
            )
    return str(binary)
