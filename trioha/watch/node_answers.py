"""Requests for one node's journal, tasks, settings and failover records, and their answers.

The Trio client and the asyncio console share them.

Errors: readers raise CommandError with the node's code, and RemoteProtocolError for an answer that
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
    """A part of a node's journal: events in order."""

    events: tuple[Event, ...]
    next_sequence: int
    """Number of the first event of the next request."""
    end_sequence: int
    """Number that the node's next event will have."""


def journal_request(
    *,
    from_sequence: int | None = None,
    last: int = 0,
    names: Collection[str] = (),
    wait_s: float = 0.0,
) -> RemotingCommand:
    """Return a request for events from a number on, or for the last ones.

    If there are none, the node waits up to `wait_s` seconds for the next.
    """
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
    """Return the msgpack map in a trioha node's answer."""
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise CommandError(
            response.code,
            f"{address} does not know this question: it is not a trioha node, or an older one",
        )
    if response.code != ResponseCode.SUCCESS:
        raise CommandError(response.code, response.remark or "rejected without a reason")
    return decode_map(response.body_bytes(), f"{address}: the answer")
