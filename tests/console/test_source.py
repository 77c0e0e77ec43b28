"""Sources of what the screens show, without a cluster."""

from __future__ import annotations

import asyncio
import time

import pytest
from trioha_console.link import Links
from trioha_console.source import LiveSource

from trioha.errors import Unreachable
from trioha.remoting.channel import Instant
from trioha.watch.questions import PROGRESS, STATUS, Question
from trioha.wire.remoting_command import RemotingCommand

HOPS = 10
"""Turns of the loop from a key to its row, about."""


class AtOnce(Links):
    """Every node answers at once, so many answers are there together."""

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        return command.response()


@pytest.mark.parametrize(("tables", "reading_s"), [(3, 0.02), (40, 0.0005)])
async def test_a_key_does_not_wait_for_all_tables_that_came_together(
    monkeypatch: pytest.MonkeyPatch, tables: int, reading_s: float
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
        time.sleep(reading_s)  # reading it holds the loop
        return False

    questions = [Question(f"127.0.0.1:{port}", PROGRESS, 5_000) for port in range(tables)]
    monkeypatch.setattr(source._collector, "due", lambda instant: questions)
    monkeypatch.setattr(source._collector, "answered", answered)
    source._ask_what_is_due()
    await source._answers_in(30)
    assert len(done) == tables + 1
    assert done.index("key") * reading_s <= max(reading_s, 0.01)


class Slow(Links):
    """Every node answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def request(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        self.asked.append(address)
        await self.may_answer.wait()
        raise Unreachable(f"{address}: gone")


async def test_sixteen_tables_are_asked_for_at_a_time_and_brokers_state_beside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    links = Slow()
    source = LiveSource(("127.0.0.1:9876",), links=links)
    questions = [Question(f"127.0.0.1:{port}", PROGRESS, 5_000) for port in range(40)]
    monkeypatch.setattr(source._collector, "due", lambda instant: questions)
    source._ask_what_is_due()
    questions = [Question("127.0.0.1:99", STATUS, 1_000)]
    source._ask_what_is_due()
    await source._answers_in(0)
    assert len(links.asked) == 16 + 1
    assert links.asked[-1] == "127.0.0.1:99"
    links.may_answer.set()
    await source._answers_in(30)
    assert sorted(links.asked) == sorted(f"127.0.0.1:{port}" for port in [*range(40), 99])
    links.asked.clear()
    source._ask_what_is_due()
    await source._answers_in(30)
    assert links.asked == ["127.0.0.1:99"], "who asked for tables is free again"
    await source.close()


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
