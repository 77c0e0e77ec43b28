"""Progress on a terminal and in a log."""

from __future__ import annotations

import io

from trioha.cli.progress import TerminalProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_every_few_seconds_with_bytes_and_rows() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = TerminalProgress(stream, clock)
    progress.begin("store: reading headers", 4 << 20, "bytes")
    for _ in range(3):
        clock.now += 2.5
        progress.advance(1 << 20, 1000)
    progress.end()
    assert stream.getvalue() == (
        "trioha: store: reading headers  50 %  2.0 MiB (409.6 KiB/s)  2,000 rows\n"
    )


def test_a_bar_is_drawn_over_itself_and_gone_at_the_end() -> None:
    stream, clock = Terminal(), Clock()
    progress = TerminalProgress(stream, clock)
    progress.begin("spark: headers", 0, "tasks")
    progress.resize(8)
    clock.now += 1
    progress.advance(2)
    progress.end()
    shown = stream.getvalue()
    assert shown.startswith("\r[######..................] spark: headers  25 %  2 of 8 tasks")
    assert shown.endswith("\r\x1b[K")


def test_work_of_unknown_size_is_told_without_a_share() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = TerminalProgress(stream, clock)
    progress.begin("spark: words", 0, "tasks")
    clock.now += 6
    progress.advance(3, 40)
    progress.begin("rows", 8, "")
    clock.now += 6
    progress.advance(2)
    assert stream.getvalue() == "trioha: spark: words  40 rows\ntrioha: rows  25 %\n"


def test_a_line_said_in_between_clears_the_bar_first() -> None:
    stream, clock = Terminal(), Clock()
    progress = TerminalProgress(stream, clock)
    progress.begin("x", 10, "bytes")
    clock.now += 1
    progress.advance(5)
    progress.say("trioha: note: a word")
    assert stream.getvalue().endswith("\r\x1b[Ktrioha: note: a word\n")


def test_quick_work_shows_nothing() -> None:
    stream = io.StringIO()
    progress = TerminalProgress(stream, Clock())
    progress.begin("x", 10, "bytes")
    progress.advance(10)
    progress.end()
    assert stream.getvalue() == ""
