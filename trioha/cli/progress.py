"""Progress of long work: a bar on a terminal, a line every few seconds elsewhere. On stderr."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from trioha.cli.output import size_in_words
from trioha.shown import own_stream, shown, shown_lines

_BAR_INTERVAL_S = 0.1
_LINE_INTERVAL_S = 5.0
_BAR_WIDTH = 24


class TerminalProgress:
    """`trioha.analysis.engine.Progress` for people. Any thread; one piece of work at a time."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or own_stream(sys.stderr)
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        self._lock = threading.Lock()
        self._what = ""
        self._total = 0
        self._unit = ""
        self._done = 0
        self._rows = 0
        self._began = self._shown_at = 0.0
        self._is_shown = False

    def begin(self, what: str, total: int, unit: str) -> None:
        with self._lock:
            self._what, self._total, self._unit = what, total, unit
            self._done = self._rows = 0
            self._began = self._shown_at = self._clock()

    def advance(self, count: int, rows: int = 0) -> None:
        with self._lock:
            self._done += count
            self._rows += rows
            now = self._clock()
            interval = _BAR_INTERVAL_S if self._is_terminal else _LINE_INTERVAL_S
            if now - self._shown_at >= interval:
                self._shown_at = now
                self._show(now - self._began)

    def resize(self, total: int) -> None:
        with self._lock:
            self._total = total

    def end(self) -> None:
        with self._lock:
            self._clear()

    def say(self, line: str) -> None:
        """A line of its own, not through the middle of a bar."""
        with self._lock:
            self._clear()
            self._stream.write(shown_lines(line) + "\n")
            self._stream.flush()

    def _clear(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_shown = False

    def _show(self, elapsed_s: float) -> None:
        text = shown(self._in_words(elapsed_s))
        if not self._is_terminal:
            self._stream.write(f"trioha: {text}\n")
        else:
            columns = shutil.get_terminal_size().columns
            self._stream.write("\r" + (self._bar() + text)[: columns - 1] + "\x1b[K")
            self._is_shown = True
        self._stream.flush()

    def _bar(self) -> str:
        if not self._total:
            return ""
        filled = min(_BAR_WIDTH, self._done * _BAR_WIDTH // self._total)
        return "[" + "#" * filled + "." * (_BAR_WIDTH - filled) + "] "

    def _in_words(self, elapsed_s: float) -> str:
        parts = [self._what]
        if self._total:
            parts.append(f"{min(100, self._done * 100 // self._total)} %")
        if self._unit == "bytes":
            rate = self._done / elapsed_s if elapsed_s > 0 else 0.0
            parts.append(f"{size_in_words(self._done)} ({size_in_words(rate)}/s)")
        elif self._unit and self._total:
            parts.append(f"{self._done} of {self._total} {self._unit}")
        if self._rows:
            parts.append(f"{self._rows:,} rows")
        return "  ".join(parts)
