"""Followers of a journal: answered at once, later, from the disk, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trio
import trio.testing
from support.handlers.sending import FakeChannel

from trioha.errors import CommandError, RemoteProtocolError
from trioha.journal.file import JournalFile
from trioha.services.admin import journal_stream
from trioha.services.admin.journal_flush import serve_journal
from trioha.services.admin.journal_stream import JournalStream
from trioha.services.loop.clock import Clock
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand


class Side:
    """A journal, its stream, and one follower's connection."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock.virtual()
        self.journal = JournalFile(directory, "n", self.clock.wall_ms, bytes_max=8 * 4096)
        self.stream = JournalStream(self.journal, self.clock)
        self.channel = FakeChannel()

    def ask(self, channel: FakeChannel | None = None, **fields: ExtValue) -> dict[str, Any] | None:
        """The answer, if it comes at once."""
        fields = {key.rstrip("_"): value for key, value in fields.items()}
        command = RemotingCommand(RequestCode.TRIOHA_JOURNAL_STREAM, fields)
        answer = self.stream.handle(channel or self.channel, command, self.clock.instant())
        return None if answer is None else decoded(answer)

    async def told(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait for so many later answers; return all of them."""
        with trio.fail_after(10):
            while len(self.channel.sent) < count:
                await trio.lowlevel.checkpoint()
        return [decoded(answer) for answer in self.channel.sent]


def decoded(answer: RemotingCommand) -> dict[str, Any]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    body: dict[str, Any] = msgpack.unpackb(answer.body_bytes())
    return body


def names(answer: dict[str, Any] | None) -> list[str]:
    assert answer is not None
    return [event[2] for event in answer["events"]]


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[], Any]:
    @asynccontextmanager
    async def open_side() -> AsyncIterator[Side]:
        side = Side(tmp_path)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_journal, side.journal)
            nursery.start_soon(side.stream.run)
            await trio.testing.wait_all_tasks_blocked()
            yield side
            nursery.cancel_scope.cancel()
        side.journal.close()

    return open_side


async def test_the_last_events_come_at_once(opened: Callable[[], Any]) -> None:
    async with opened() as side:
        for number in range(5):
            side.journal.event("write_resumed", number=number)
        answer = side.ask(last=2)
        assert [event[3]["number"] for event in answer["events"]] == [3, 4]
        assert (answer["next"], answer["end"]) == (5, 5)
        assert side.ask()["events"] == []  # neither from nor last: from now on
        assert names(side.ask(from_=3, count=1)) == ["write_resumed"]


async def test_a_follower_is_told_the_next_event_when_it_is_written(
    opened: Callable[[], Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with opened() as side:
        assert side.ask(from_=0, waitMs=30_000) is None
        side.journal.event("node_started")
        side.journal.event("node_ready")
        await trio.sleep(1)
        (answer,) = await side.told()
        assert names(answer) == ["node_started", "node_ready"]
        assert answer["next"] == 2


async def test_events_of_other_names_do_not_wake_a_follower(
    opened: Callable[[], Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with opened() as side:
        assert side.ask(from_=0, names="role,log_truncated", waitMs=30_000) is None
        side.journal.event("node_started")
        await trio.sleep(1)
        assert side.channel.sent == []
        side.journal.event("role", role="SLAVE")
        await trio.sleep(1)
        (answer,) = await side.told()
        assert names(answer) == ["role"]


async def test_patience_ends_with_an_empty_answer_and_the_place_to_go_on(
    opened: Callable[[], Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with opened() as side:
        assert side.ask(from_=0, names="role", waitMs=5_000) is None
        side.journal.event("node_started")
        await trio.sleep(4.9)
        assert side.channel.sent == []
        await trio.sleep(0.2)
        (answer,) = await side.told()
        assert (answer["events"], answer["next"]) == ([], 1)


async def test_what_left_the_memory_comes_from_the_disk(opened: Callable[[], Any]) -> None:
    async with opened() as side:
        for number in range(300):
            side.journal.event("ha_progress", number=number)
        side.journal.flush_nowait()
        side.journal.tail.skip_to(500)  # as after very many events
        side.journal.tail.skip_to(300)
        place, found, asked = 0, list[int](), 0
        while place < 300:
            asked += 1
            assert side.ask(from_=place, count=120) is None
            answer = (await side.told(asked))[-1]
            found += [event[3]["number"] for event in answer["events"]]
            assert answer["next"] > place
            place = answer["next"]
        assert found == list(range(300))


async def test_events_that_are_gone_are_a_gap_and_no_wait(
    opened: Callable[[], Any],
) -> None:
    async with opened() as side:
        side.journal.tail.skip_to(50)
        assert side.ask(from_=7) is None
        (answer,) = await side.told()
        assert (answer["events"], answer["next"], answer["end"]) == ([], 50, 50)


async def test_a_follower_from_before_the_journal_began_anew_begins_anew_too(
    opened: Callable[[], Any],
) -> None:
    async with opened() as side:
        side.journal.event("node_started")
        assert names(side.ask(from_=1_000_000)) == ["node_started"]


async def test_too_many_followers_are_refused_and_closed_ones_do_not_count(
    opened: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_stream, "FOLLOWERS_MAX", 2)
    async with opened() as side:
        others = [FakeChannel(), FakeChannel()]
        for other in others:
            assert side.ask(other, from_=0, waitMs=1000) is None
        with pytest.raises(CommandError, match="2 follow already") as refused:
            side.ask(from_=0, waitMs=1000)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
        others[0].close_nowait("gone")
        assert side.ask(from_=0, waitMs=1000) is None


async def test_a_closed_connection_is_told_nothing(
    opened: Callable[[], Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with opened() as side:
        assert side.ask(from_=0, waitMs=30_000) is None
        side.channel.close_nowait("gone")
        side.journal.event("node_started")
        await trio.sleep(60)
        assert side.channel.sent == []


async def test_an_answer_is_bounded_whatever_is_asked(opened: Callable[[], Any]) -> None:
    async with opened() as side:
        for _ in range(1200):
            side.journal.event("write_resumed", reason="x" * 300)
        answer = side.ask(from_=0, count=10**9)
        assert answer is not None
        assert 0 < len(answer["events"]) <= journal_stream.COUNT_MAX
        assert len(msgpack.packb(answer)) < journal_stream.ANSWER_BYTES_MAX + 1000


async def test_a_number_that_is_none_is_refused(opened: Callable[[], Any]) -> None:
    async with opened() as side:
        with pytest.raises(RemoteProtocolError, match="from is not a number"):
            side.ask(from_="soon")
        assert side.ask(from_=-5)["events"] == []


async def test_a_node_without_a_journal_says_so() -> None:
    stream = JournalStream(None, Clock.virtual())
    with pytest.raises(CommandError, match="keeps no journal"):
        stream.handle(
            FakeChannel(),
            RemotingCommand(RequestCode.TRIOHA_JOURNAL_STREAM),
            Clock.virtual().instant(),
        )
