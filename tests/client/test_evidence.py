"""A node's journal from a moment on, found by halves when it is long."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from trioha.client import evidence
from trioha.client.evidence import NodeEvidence
from trioha.client.node_admin import JournalPiece, NodeAdmin
from trioha.errors import CommandError
from trioha.journal.file import Event
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import RemotingCommand


class LongJournal(NodeAdmin):
    """Events 1000 and on, one a second; the older ones are deleted."""

    def __init__(self, end: int) -> None:
        self.address = "a:1"
        self.first, self.end = 1000, end
        self.asked = 0

    async def journal(
        self,
        *,
        from_sequence: int | None = None,
        last: int = 0,
        names: Collection[str] = (),
        wait_s: float = 0.0,
    ) -> JournalPiece:
        self.asked += 1
        start = max(self.first, self.end - last if from_sequence is None else from_sequence)
        stop = min(self.end, start + 500)
        events = tuple(Event(n, n * 1000, "e", {}) for n in range(start, stop))
        return JournalPiece(events, stop, self.end)


async def gathered(end: int, since_s: int) -> tuple[NodeEvidence, int]:
    node, journal = NodeEvidence("a:1", "broker-a-0"), LongJournal(end)
    await evidence._journal(journal, node, since_s * 1000)
    return node, journal.asked


@pytest.mark.parametrize(("end", "since_s"), [(1001, 0), (1700, 1650), (50_000, 43_210), (9000, 0)])
async def test_every_event_since_then_and_no_other(end: int, since_s: int) -> None:
    node, _ = await gathered(end, since_s)
    assert [event.sequence for event in node.events] == list(range(max(1000, since_s), end))
    assert not node.events_cut


async def test_the_beginning_is_found_in_few_questions() -> None:
    _, asked = await gathered(1_000_000, 998_000)
    assert asked < 30


async def test_a_journal_that_is_too_long_gives_its_newest_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "EVENTS_MAX", 3000)
    node, _ = await gathered(50_000, 10_000)
    assert node.events_cut
    assert [event.sequence for event in node.events] == list(range(47_000, 50_000))


async def test_nothing_since_then_is_nothing() -> None:
    node, _ = await gathered(2000, 9_999_999)
    assert node.events == []


class Foreign(NodeAdmin):
    """A broker of another make: it knows none of our codes, and refuses the last one."""

    def __init__(self) -> None:
        self.codes = iter([ResponseCode.REQUEST_CODE_NOT_SUPPORTED] * 3)

    async def request(self, *_: Any, **__: Any) -> RemotingCommand:
        raise CommandError(next(self.codes, ResponseCode.NO_PERMISSION), "no")

    settings = tasks = status = journal = request  # type: ignore[assignment]


async def test_a_broker_that_does_not_know_a_question_is_of_another_make() -> None:
    node = NodeEvidence("a:1", "broker-a-0")
    await evidence._ask(Foreign(), node, 0)
    assert node.is_foreign
    assert set(node.errors) == {"config", "tasks", "status", "journal"}
