"""A real terminal: tmux on a server of its own, keys sent, the screen read."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

import attrs

from support.suite.skips import unavailable

_serials = itertools.count(1)
PATIENCE_S = 60.0
# A terminal does not tell that it was drawn.
_PERIOD_S = 0.1
_STEADY = 4
"""Captures, one like the other, of a screen that is painted."""


@attrs.frozen
class Terminal:
    """One window; what runs in it is a shell."""

    socket: str

    def send(self, *keys: str) -> None:
        """Keys by tmux' names: ``F``, ``Enter``, ``Escape``, ``C-p``."""
        self._tmux("send-keys", "-t", "main", *keys)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-t", "main", "-l", text)

    @property
    def screen(self) -> str:
        return self._tmux("capture-pane", "-t", "main", "-p")

    def wait_for(self, pattern: str, within_s: float = PATIENCE_S) -> re.Match[str]:
        """Wait until the screen shows this."""
        deadline = time.monotonic() + within_s
        while True:
            screen = self.screen
            if match := re.search(pattern, screen, re.MULTILINE):
                return match
            assert time.monotonic() < deadline, f"no {pattern!r} in {within_s} s on\n{screen}"
            time.sleep(_PERIOD_S)

    def wait_steady(self, other_than: str, within_s: float = PATIENCE_S) -> str:
        """Wait until the screen is another one, and has been painted; return it."""
        deadline = time.monotonic() + within_s
        seen = [other_than] * _STEADY
        while seen != [seen[0]] * _STEADY or seen[0] == other_than:
            assert time.monotonic() < deadline, f"no other screen in {within_s} s than\n{seen[-1]}"
            time.sleep(_PERIOD_S)
            seen = [*seen[1:], self.screen]
        return seen[0]

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-t", "main", "-x", str(columns), "-y", str(rows))

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a program in the shell."""
        words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        words += map(shlex.quote, command)
        self.type(" ".join(words))
        self.send("Enter")

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self.socket, "-f", "/dev/null", *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return done.stdout


@contextlib.contextmanager
def open_terminal(columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """A terminal of this size; its server is ended with the block."""
    if shutil.which("tmux") is None:
        unavailable("a real terminal: tmux is not installed")
    terminal = Terminal(f"trioha-{os.getpid()}-{next(_serials)}")
    # The gate finds by the first variable what a test leaves behind.
    shell = 'env -i GATE_COMMANDS="$GATE_COMMANDS" PATH=/usr/bin:/bin HOME=/tmp LANG=C.UTF-8'
    shell += " TERM=xterm-256color PS1='$ ' sh"
    terminal._tmux(*("new-session", "-d", "-s", "main", "-x", str(columns), "-y", str(rows), shell))
    try:
        terminal.wait_for(r"^\$")
        yield terminal
    finally:
        terminal._tmux("kill-server")
