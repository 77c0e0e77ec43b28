"""The Rust client of RocketMQ 5 as a driver binary, built once into `tests/interop/target`."""

from __future__ import annotations

import functools
import shutil
import subprocess

from support.peers.toolchain import exclusively, require_built
from support.processes.rig import REPO

SOURCES = REPO / "tests" / "interop" / "rust-grpc"
TARGET = REPO / "tests" / "interop" / "target" / "rust-grpc"
BUILD_S = 600.0


def require_rust() -> None:
    """Skip the test, saying why, when the Rust client cannot be had; in CI fail instead."""
    require_built("Rust client", "cargo", rust_driver)


@functools.cache
def rust_driver() -> str:
    """The driver; cargo knows what is stale. Errors: CalledProcessError, OSError, TimeoutExpired.

    cargo writes its lock file beside the sources, so it builds a copy of them.
    """
    with exclusively(TARGET):
        shutil.copytree(SOURCES, TARGET, dirs_exist_ok=True)
        subprocess.run(
            ["cargo", "build", "-q"],
            cwd=TARGET,
            check=True,
            capture_output=True,
            timeout=BUILD_S,
        )
    return str(TARGET / "target" / "debug" / "rust-grpc")
