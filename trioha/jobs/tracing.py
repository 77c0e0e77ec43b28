"""Trace of a message: its sender, the groups that have passed it, the consumers that had it.

Clients with tracing on send records to a trace topic (TraceDataEncoder.java): fields are separated
by the byte 1, records by the byte 2. A group's progress is told by its offset in the message's
queue. An offset beyond the message says that it was handled, or handed back for redelivery.
"""

from __future__ import annotations

import attrs

from trioha.failover.asking import Flow
from trioha.jobs.groups import read_progress
from trioha.jobs.messages import FoundMessage, ShownMessage, by_key
from trioha.jobs.telling import JobScope, NotThere
from trioha.jobs.topics import addresses_of, existing_route, groups_reading
from trioha.wire.bodies import MessageQueue
from trioha.wire.names import TRACE_TOPIC


@attrs.frozen
class TraceStep:
    """One thing that a client told of a message."""

    at_ms: int | None
    what: str
    """sent, received, consumed, failed or transaction."""
    group: str
    client: str
    cost_ms: int | None
    detail: str


@attrs.frozen
class GroupView:
    """Progress of one group past a message."""

    group: str
    offset: int
    state: str
    """consumed, or waiting."""


@attrs.frozen
class MessageTrace:
    """Trace of one message: its groups and its steps."""

    message: ShownMessage
    groups: list[GroupView]
    steps: list[TraceStep]


def trace(
    scope: JobScope, message: FoundMessage, trace_topic: str = TRACE_TOPIC
) -> Flow[MessageTrace]:
    """Trace one message. Errors: Unreachable, CommandError."""
    record = message.record
    addresses = addresses_of((yield from existing_route(scope, record.topic)))
    groups = []
    for group in (yield from groups_reading(scope, record.topic, list(addresses.values()))):
        progress = yield from read_progress(scope, group, list(addresses.values()), record.topic)
        for broker in [message.broker] if message.broker else []:
            queue = MessageQueue(record.topic, broker, record.queue_id)
            if queue in progress:
                offset = progress[queue][1]
                state = "consumed" if offset > record.queue_offset else "waiting"
                groups.append(GroupView(group, offset, state))
    try:
        told = yield from by_key(scope, trace_topic, message.msg_id)
    except NotThere:
        told = []
    steps = [
        step for one in told for step in steps_of(one.body.decode(errors="replace"), message.msg_id)
    ]
    return MessageTrace(message.show(), groups, sorted(steps, key=lambda one: one.at_ms or 0))


def steps_of(text: str, msg_id: str) -> list[TraceStep]:
    """Read the trace records of one message; those that cannot be read are left out."""
    began: dict[str, tuple[int, str]] = {}
    steps = []
    for line in text.split("\x02"):
        fields = line.split("\x01")
        try:
            step = _step(fields, msg_id, began)
        except (IndexError, ValueError):
            continue
        if step is not None:
            steps.append(step)
    return steps


def _step(fields: list[str], msg_id: str, began: dict[str, tuple[int, str]]) -> TraceStep | None:
    kind = fields[0]
    if kind == "Pub" and fields[5] == msg_id:
        ok = fields[13] if len(fields) > 13 else fields[12]
        client = fields[14] if len(fields) > 14 else ""
        what = "sent" if ok == "true" else "failed"
        return TraceStep(int(fields[1]), what, fields[3], client, int(fields[10]), fields[8])
    if kind == "SubBefore" and fields[5] == msg_id:
        began[fields[4]] = int(fields[1]), fields[3]
        detail = f"delivery {int(fields[6]) + 1}"
        return TraceStep(int(fields[1]), "received", fields[3], "", None, detail)
    if kind == "SubAfter" and fields[2] == msg_id:
        at_ms, group = began.get(fields[1], (None, ""))
        cost_ms = int(fields[3])
        if len(fields) > 7 and fields[7].isdecimal():
            at_ms = int(fields[7])
        elif at_ms is not None:
            at_ms += cost_ms
        group = fields[8] if len(fields) > 8 else group
        what = "consumed" if fields[4] == "true" else "failed"
        return TraceStep(at_ms, what, group, "", cost_ms, "")
    if kind == "EndTransaction" and fields[5] == msg_id:
        return TraceStep(int(fields[1]), "transaction", fields[3], "", None, fields[11])
    return None
