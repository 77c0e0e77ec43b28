from __future__ import annotations

import pytest
from support.handlers.sending import FakeChannel

from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.refusal_notes import NOTE_INTERVAL_MS, NOTES_MAX, RefusalNotes
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.remoting_command import RemotingCommand


def test_a_host_that_breaks_the_protocol_again_and_again_is_one_line_a_minute() -> None:
    events = RecordedEvents()

    def answer(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        raise RemoteProtocolError("epoch 7 cannot be")

    (handler,) = RefusalNotes(events).watched({30010: answer}).values()
    for now_ms in (0, 1, NOTE_INTERVAL_MS - 1, NOTE_INTERVAL_MS):
        with pytest.raises(RemoteProtocolError):
            handler(FakeChannel(), RemotingCommand(30010), Instant(now_ms, 0))
    lines = events.of("request_refused")
    assert [(line["code"], line["reason"]) for line in lines] == [(30010, "epoch 7 cannot be")] * 2


def test_an_ordinary_rejection_is_no_line() -> None:
    events = RecordedEvents()

    def answer(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        raise CommandError(16, "this node is master")

    (handler,) = RefusalNotes(events).watched({30010: answer}).values()
    with pytest.raises(CommandError):
        handler(FakeChannel(), RemotingCommand(30010), Instant(0, 0))
    assert events.names() == []


def test_what_is_remembered_is_bounded() -> None:
    notes = RefusalNotes(RecordedEvents())
    for code in range(NOTES_MAX * 2):
        notes.note(FakeChannel(), RemotingCommand(code), "no", 0)
    assert len(notes._noted_ms) == NOTES_MAX
