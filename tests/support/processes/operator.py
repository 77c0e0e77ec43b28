"""Commands of `trioha` as an operator gives them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from support.processes.rig import trioha_command

_PAUSE_S = 0.02


class Operator:
    """Commands of `trioha` with a file of contexts of their own."""

    def __init__(self, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        own = {"TRIOHA_CONFIG": str(directory / "config.toml"), **(environment or {})}
        self._environment = {**os.environ, **own}
        self._directory = directory

    def run(self, *arguments: str, fails: bool = False) -> str:
        """Run a command that has to succeed, or to fail; return what it said."""
        code, said = self._run(arguments)
        assert bool(code) == fails, said
        return said

    def say(self, *arguments: str) -> str:
        """Run a command, whatever its exit code; return what it said."""
        return self._run(arguments)[1]

    def _run(self, arguments: tuple[str, ...]) -> tuple[int, str]:
        done = subprocess.run(
            trioha_command(*arguments),
            cwd=self._directory,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
        )
        assert "Traceback" not in done.stdout, done.stdout
        return done.returncode, done.stdout

    @contextmanager
    def sending(self, topic: str) -> Iterator[list[str]]:
        """Send one message after the other; what the command said is there after the block."""
        producer = subprocess.Popen(
            trioha_command("produce", "-t", topic),
            cwd=self._directory,
            env=self._environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        over = Event()
        assert producer.stdin is not None
        lines = producer.stdin

        def write() -> None:
            with lines:
                while not over.wait(_PAUSE_S):
                    lines.write("a message\n")
                    lines.flush()

        writer = Thread(target=write)
        said: list[str] = []
        writer.start()
        try:
            yield said
        finally:
            over.set()
            writer.join(60)
            assert producer.stdout is not None
            with producer.stdout as stdout:
                said.append(stdout.read())
            producer.wait(60)
        assert producer.returncode == 0, said
