"""What one node tells of itself when asked: journal, tasks, settings, the record of failovers.

Requests are made and answers read here, so that a Trio client and the asyncio console ask alike.

Errors: readers raise CommandError with the node's code, RemoteProtocolError for an answer that
cannot be read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs

from trioha.errors import CommandError, RemoteProtocolError
from trioha.journal.file import Event
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.maps import decode_map
from trioha.wire.remoting_command import ExtValue, RemotingCommand


@attrs.frozen
class JournalPiece:
    """Events in order."""

    events: tuple[Event, ...]
    next_sequence: int
    """Where to ask on."""
    end_sequence: int
    """The number that the node's next event will have."""


def journal_request(
    *,
    from_sequence: int | None = None,
    last: int = 0,
    names: Collection[str] = (),
    wait_s: float = 0.0,
) -> RemotingCommand:
    """Events from a number on, or the last ones; without any, the node waits for the next."""
    fields: dict[str, ExtValue] = {"waitMs": int(wait_s * 1000), "names": ",".join(names)}
    fields |= {"last": last} if from_sequence is None else {"from": from_sequence}
    return RemotingCommand(RequestCode.TRIOHA_JOURNAL_STREAM, fields)


def read_journal(address: str, response: RemotingCommand) -> JournalPiece:
    body = read_map(address, response)
    try:
        events = tuple(
            Event(int(sequence), int(wall_ms), str(name), dict(told))
            for sequence, wall_ms, name, told in body["events"]
        )
        return JournalPiece(events, int(body["next"]), int(body["end"]))
    except (KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"{address}: no journal: {error!r}") from error


def read_map(address: str, response: RemotingCommand) -> Mapping[str, Any]:
    """The msgpack map that every answer of our own is."""
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise CommandError(
            response.code,
            f"{address} does not know this question: it is not a trioha node, or an older one",
        )
    if response.code != ResponseCode.SUCCESS:
        raise CommandError(response.code, response.remark or "refused without a remark")
    return decode_map(response.body_bytes(), f"{address}: the answer")
