"""Where the screens get what they show, without a cluster."""

from __future__ import annotations

import asyncio
import time

import pytest
from trioha_console.link import Links
from trioha_console.source import LiveSource

from trioha.remoting.channel import Instant
from trioha.watch.questions import PROGRESS, Question
from trioha.wire.remoting_command import RemotingCommand

READING_S = 0.02
HOPS = 10
"""Turns of the loop from a key to its row, about."""


class AtOnce(Links):
    """Every node answers at once, so many answers are there together."""

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        return command.response()


async def test_a_key_does_not_wait_for_all_tables_that_came_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = LiveSource(("127.0.0.1:9876",), links=AtOnce())
    done: list[str] = []
    loop = asyncio.get_running_loop()

    def key(hops: int) -> None:
        if hops:
            loop.call_soon(key, hops - 1)
        else:
            done.append("key")

    def answered(question: Question, response: RemotingCommand, instant: Instant) -> bool:
        if not done:
            key(HOPS)
        done.append("table")
        time.sleep(READING_S)  # reading it holds the loop
        return False

    questions = [Question(f"127.0.0.1:{port}", PROGRESS, 5_000) for port in (1, 2, 3)]
    monkeypatch.setattr(source._collector, "due", lambda instant: questions)
    monkeypatch.setattr(source._collector, "answered", answered)
    source._ask_what_is_due()
    await source._answers_in(30)
    assert done == ["table", "key", "table", "table"]


async def test_a_console_that_takes_too_much_of_a_core_reads_large_tables_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = LiveSource(("127.0.0.1:9876",), links=AtOnce(), period_s=0)
    used_s = 100.0
    monkeypatch.setattr(time, "process_time", lambda: used_s)
    frames = source.snapshots()
    await anext(frames)
    assert (source.thrifty, source._collector.thrifty) == (False, False)
    used_s += 60
    await anext(frames)
    assert (source.thrifty, source._collector.thrifty) == (True, True)
    await source.close()
