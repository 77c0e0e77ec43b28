"""A group's lag over hours, as the brokers' journals tell it."""

from __future__ import annotations

import attrs

from trioha.errors import CommandError, Unreachable
from trioha.failover.asking import Flow
from trioha.jobs.cluster_map import read_map, silent_in_words
from trioha.jobs.telling import JobScope, going_on, read_one, side_by_side
from trioha.journal.file import Event
from trioha.times import moment_in_words
from trioha.watch.group_past import LAG_EVENT, GroupPast, lags_at, past_of_journals
from trioha.watch.node_answers import JournalPiece, journal_request, read_journal
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand


@attrs.frozen
class LagThen:
    """A group's lag at the end of one step."""

    at: str
    wall_ms: int
    lag: int | None
    """Messages not consumed; null before the first that is told."""
    consumed_per_s: float | None
    """Messages that it consumed per second in the step; null where its offsets were set back."""


@attrs.frozen
class RebalanceThen:
    """A member that came, left, or got other queues."""

    at: str
    wall_ms: int
    client_id: str
    what: str
    """``came``, ``left`` or ``queues``."""
    had: list[str]
    has: list[str]


@attrs.frozen
class GroupHistory:
    """A group's lag over time, and its rebalances, oldest first."""

    name: str
    lags: list[LagThen]
    rebalances: list[RebalanceThen]
    """Rebalances in a recording made with `--members`; journals do not have them."""
    notes: list[str]
    silent: list[str]
    """Brokers that did not answer, and why: what only they know is missing."""


def group_history(
    name: str,
    past: GroupPast,
    begin_ms: int,
    end_ms: int,
    steps: int,
    notes: list[str],
    silent: list[str],
) -> GroupHistory:
    """Return the course of a group between two moments, in so many steps."""
    points = lags_at(past.lags, begin_ms, end_ms, steps)
    seconds = (end_ms - begin_ms) / steps / 1000
    lags: list[LagThen] = []
    before = lags_at(past.lags, begin_ms, begin_ms, 1)[0]
    for step, point in enumerate(points, 1):
        consumed = None if before is None or point is None else point.consumed - before.consumed
        rate = None if consumed is None or consumed < 0 or not seconds else consumed / seconds
        wall_ms = begin_ms + (end_ms - begin_ms) * step // steps
        lag = None if point is None else point.lag
        lags.append(LagThen(moment_in_words(wall_ms), wall_ms, lag, rate))
        before = point
    rebalances = [
        RebalanceThen(
            moment_in_words(one.wall_ms),
            one.wall_ms,
            one.client_id,
            one.what,
            list(one.before),
            list(one.after),
        )
        for one in past.rebalances
        if begin_ms <= one.wall_ms <= end_ms
    ]
    return GroupHistory(name, lags, rebalances, notes, silent)


@going_on
def read_group_past(
    scope: JobScope, group: str, since_ms: int
) -> Flow[tuple[GroupPast, list[str]]]:
    """Ask the masters' journals; return what they tell, and why some brokers tell none.

    Errors: Unreachable when no broker answers.
    """
    known = yield from read_map(scope)
    masters = known.masters()
    told = yield from side_by_side(_told(scope, one, since_ms) for one in masters.values())
    journals: dict[str, list[Event]] = {}
    notes: list[str] = []
    for name, one in zip(masters, told, strict=True):
        if isinstance(one, CommandError):
            notes.append(f"{name} tells no past: {one}")
        elif not isinstance(one, Unreachable):
            journals[name] = one
        elif len(scope.silent or ()) == len(masters):
            raise one
    return past_of_journals(journals, group), notes + silent_in_words(scope, known)


def _told(
    scope: JobScope, address: str, since_ms: int
) -> Flow[list[Event] | CommandError | Unreachable]:
    try:
        return (yield from _lag_events(scope, address, since_ms))
    except (CommandError, Unreachable) as error:
        return error


def _lag_events(scope: JobScope, address: str, since_ms: int) -> Flow[list[Event]]:
    """Read a journal's events of lag, from the newest back to `since_ms`."""
    found: list[Event] = []
    newest = yield from _piece(scope, address, journal_request(last=1))
    first = yield from _first_since(scope, address, since_ms, newest.end_sequence)
    while first < newest.end_sequence:
        request = journal_request(from_sequence=first, names=(LAG_EVENT,))
        piece = yield from _piece(scope, address, request)
        found += piece.events
        if piece.next_sequence <= first:
            break
        first = piece.next_sequence
    return found


def _first_since(scope: JobScope, address: str, since_ms: int, end: int) -> Flow[int]:
    """Find the first event since then, by halves: a journal may hold a million."""
    low = 0
    while low < end:
        middle = (low + end) // 2
        piece = yield from _piece(scope, address, journal_request(from_sequence=middle))
        if piece.events and piece.events[0].wall_ms < since_ms:
            low = piece.events[0].sequence + 1
        else:
            end = middle
    return low


def _piece(scope: JobScope, address: str, request: RemotingCommand) -> Flow[JournalPiece]:
    code = RequestCode.TRIOHA_JOURNAL_STREAM
    answer = yield from read_one(scope, address, code, request.ext_fields)
    return read_journal(address, RemotingCommand(0, {}, answer.body))
