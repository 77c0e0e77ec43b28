"""Lines of the text screens: the inside of a consumer, and the trace of a message."""

from __future__ import annotations

from collections.abc import Sequence

from trioha.errors import CommandError, TriohaError
from trioha.jobs.clients import describe_client
from trioha.jobs.members import RunningInfo
from trioha.jobs.messages import FoundMessage
from trioha.jobs.telling import JobScope
from trioha.jobs.tracing import MessageTrace, trace
from trioha.times import moment_in_words
from trioha.wire.codes import ResponseCode
from trioha_console.browser import Found
from trioha_console.cells import Cell
from trioha_console.failing_over import drive
from trioha_console.source import Source


async def consumer_lines(source: Source, group: str, client_id: str) -> Sequence[Cell]:
    """Ask a consumer for its queues and the stacks of its threads. Errors: TriohaError."""
    scope = JobScope(tuple(source.namesrvs))
    try:
        told = await drive(describe_client(scope, group, client_id, stacks=True), source)
    except CommandError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        words = "This client cannot show its queues and threads: it does not answer request 307."
        raise TriohaError(words) from error
    return _consumer(told)


def _consumer(found: RunningInfo) -> list[Cell]:
    lines: list[Cell] = [(("queues", "title"),)]
    lines += [
        (
            (f"{one.topic}  {one.broker} {one.queue_id}", ""),
            (f"  at {one.commit_offset}, {one.cached_messages} messages fetched", "dim"),
        )
        for one in found.queues
    ]
    lines += [(("stacks", "title"),)]
    lines += [((line, ""),) for line in (found.stacks or "It tells no stacks.").splitlines()]
    return lines


async def trace_lines(source: Source, found: Found) -> Sequence[Cell]:
    """Ask what became of a message. Errors: TriohaError."""
    message = FoundMessage(found.record, found.broker, found.body)
    return _trace(await drive(trace(JobScope(tuple(source.namesrvs)), message), source), message)


def _trace(told: MessageTrace, message: FoundMessage) -> list[Cell]:
    record = message.record
    born_ms = record.born_timestamp
    stored = f"{message.broker} queue {record.queue_id}, offset {record.queue_offset}"
    steps = [(born_ms, "born", "", ""), (record.store_timestamp, "stored", "", stored)]
    for one in told.steps:
        took = "" if one.cost_ms is None else f"took {one.cost_ms} ms"
        detail = "  ".join(word for word in (one.client, took, one.detail) if word)
        steps.append((one.at_ms or 0, one.what, one.group, detail))
    lines: list[Cell] = [((f"{'AT (UTC)':<13} {'AFTER':>10}  {'WHAT':<12} GROUP, DETAIL", "dim"),)]
    for at_ms, what, group, detail in sorted(steps, key=lambda step: step[0]):
        role = "bad" if what == "failed" else "accent"
        clock = _clock(at_ms)
        after = f"+{at_ms - born_ms} ms" if at_ms else "-"
        lines.append(
            (
                (f"{clock:<13} {after:>10}  ", "dim"),
                (f"{what:<12} ", role),
                (group, "strong"),
                (f"  {detail}" if group else detail, ""),
            )
        )
    if not told.steps:
        lines.append((("No client told of it: tracing is off in its clients.", "dim"),))
    lines.append((("", ""),))
    lines += [
        ((f"{one.group} ", "strong"), (one.state, "good" if one.state == "consumed" else "warn"))
        for one in told.groups
    ] or [(("No group reads this topic.", "dim"),)]
    return lines


def _clock(at_ms: int) -> str:
    """The time of day; `-` for a time that a client did not tell, or that no calendar has."""
    try:
        return moment_in_words(at_ms)[11:] if at_ms else "-"
    except (OverflowError, ValueError, OSError):
        return "-"
