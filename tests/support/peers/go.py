"""The Go client v2 as a driver binary, built once into `tests/interop/target`."""

from __future__ import annotations

import functools
import subprocess

from support.peers.toolchain import exclusively, require_built
from support.processes.rig import REPO

SOURCES = REPO / "tests" / "interop" / "go"
TARGET = REPO / "tests" / "interop" / "target"
BUILD_S = 600.0


def require_go() -> None:
    """Skip the test, saying why, when the Go client cannot be had; in CI fail instead."""
    require_built("Go client", "go", go_driver)


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
