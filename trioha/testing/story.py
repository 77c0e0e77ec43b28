"""Failure messages that tell what is missing, where, and what happened before."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trioha.client import ReceivedMessage, SendResult
from trioha.testing.stores import places_of

_TOLD_MAX = 5


class MessageLost(AssertionError):
    """Stored messages cannot be read, or were not handled."""


def status_lines(label: str, is_up: bool, status: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the state of one broker and of its links, a line for each."""
    if status is None:
        yield f"  {label}: {'up, does not answer' if is_up else 'down'}"
        return
    yield (
        f"  {label}: {status['standing']} in epoch {status['epoch']},"
        f" log ends at {status['max_phy_offset']}"
    )
    for link in status["connections"]:
        yield (
            f"    to slave {link.get('peer', '')}: acknowledged {link.get('slave_ack_offset')},"
            f" {link.get('gap_bytes')} bytes behind,"
            f" {'in sync' if link.get('in_sync') else 'not in sync'}"
        )
    slave = status.get("slave")
    if slave:
        follows = slave["state"] == "TRANSFER"
        error = "" if follows or not slave["last_error"] else f", {slave['last_error']}"
        yield f"    from master {status.get('follows') or '(none)'}: {slave['state']}{error}"
    raft = status.get("raft")
    if raft:
        yield (
            f"    group: leader {raft.get('leader_id') or '(none)'},"
            f" committed {raft.get('committed_offset')}"
        )


def loss_report(
    sent: Sequence[SendResult],
    lost: Sequence[SendResult],
    stored: Collection[str],
    roots: Mapping[str, Path],
    again: Mapping[str, Sequence[ReceivedMessage]],
) -> str:
    """Return which messages are missing, and where each one is.

    `stored` are the ids that consumers can read, `roots` the stores by broker, `again` the messages
    in retry topics by id.
    """
    logs = {label: places_of(root) for label, root in roots.items()}
    lines = [f"{len(lost)} of {len(sent)} messages are missing:"]
    for one in lost[:_TOLD_MAX]:
        for msg_id in one.msg_id.split(","):
            lines += _told(msg_id, one, logs, msg_id in stored, again.get(msg_id, []))
    if len(lost) > _TOLD_MAX:
        lines.append(f"  … and {len(lost) - _TOLD_MAX} more")
    return "\n".join(lines)


def _told(
    msg_id: str,
    one: SendResult,
    logs: Mapping[str, Mapping[str, Any]],
    is_stored: bool,
    again: Sequence[ReceivedMessage],
) -> Iterator[str]:
    found = {label: log[msg_id] for label, log in logs.items() if msg_id in log}
    body = next((bytes(record.body) for record in found.values()), b"")
    yield (
        f"  message {msg_id} {body[:60]!r}, answered {one.status.name},"
        f" number {one.queue_offset} in queue {one.queue.queue_id} of {one.queue.topic} at"
        f" {one.queue.broker_name}"
    )
    reading = "consumers can read it" if is_stored else "consumers cannot read it"
    held = ", ".join(f"{label} at {record.phy_offset}" for label, record in found.items())
    lacking = ", ".join(label for label in logs if label not in found)
    yield f"    {reading}; held by {held or 'no broker'}; lacking at {lacking or 'no broker'}"
    if is_stored:
        times = ", ".join(f"{m.queue.topic} attempt {m.reconsume_times}" for m in again)
        yield f"    the application did not handle it; handed back: {times or 'never'}"
