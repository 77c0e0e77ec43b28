"""Sends again what a log had to give up (`trioha.store.cuts`).

A message goes to its topic and, where there still is one, to its queue of the same broker, one
after the other, so that a queue's order stays. It keeps body, keys, tags, its other properties and
its UNIQ_KEY, by which it is told from one that the cluster holds already: so the work may be begun
again after it was interrupted. `RECOVERED` says where it comes from.

What was no message yet (half a transaction) or no more (one rolled back) is left out, as is what is
damaged. A delayed message waits its whole delay again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum

import attrs

from trioha.client.admin import Admin
from trioha.client.errors import NoRoute
from trioha.client.message import Message, MessageQueue
from trioha.client.producer import Producer
from trioha.errors import CommandError
from trioha.store.cuts import Cut
from trioha.store.inspect import DamagedStretch, iter_records
from trioha.wire.codes import SysFlag
from trioha.wire.names import SCHEDULE_TOPIC
from trioha.wire.properties import SET_BY_BROKERS, Property
from trioha.wire.record import Record

RECOVERED = "TRIOHA_RECOVERED"
"""Property: the cut's folder and the offset at which the message lay."""
_UNDECIDED = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)
_DECISIONS_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


class Fate(Enum):
    """Outcome of one record."""

    SENT = "sent"
    PRESENT = "present"
    """The cluster holds it already."""
    UNDECIDED = "undecided"
    """Half a transaction, or one rolled back."""
    DAMAGED = "damaged"
    """A stretch without records."""


@attrs.define(eq=False)
class Tally:
    """Counts of a recovery so far."""

    counts: Counter[Fate] = attrs.Factory(Counter)
    topics: Counter[str] = attrs.Factory(Counter)
    """Messages sent, or that would be."""
    statuses: Counter[str] = attrs.Factory(Counter)
    bytes_done: int = 0


async def recover(
    cut: Cut,
    admin: Admin,
    producer: Producer,
    tally: Tally,
    *,
    dry_run: bool,
    on_progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Send every message of the cut that the cluster lacks; `on_progress` gets bytes passed.

    With `dry_run` all is looked up and nothing sent.
    Errors: as `Producer.send`, with `tally` at what was done; Unreachable, StoreError.
    """
    broker_name = str(cut.note.get("broker_name", ""))
    for item in iter_records(cut.commitlog_path, end=cut.end):
        if isinstance(item, DamagedStretch):
            size = item.end_offset - item.begin_offset
            tally.counts[Fate.DAMAGED] += 1
        else:
            size = item.size
            fate = await _recover_one(cut, item, broker_name, admin, producer, tally, dry_run)
            tally.counts[fate] += 1
        tally.bytes_done += size
        on_progress(size)


def count_messages(cut: Cut) -> Iterator[tuple[str, int, int]]:
    """Topic, queue and count, by the cut's note."""
    for queue in cut.note.get("queues", []):
        yield queue["topic"], queue["queue_id"], queue["count"]


async def _recover_one(
    cut: Cut,
    record: Record,
    broker_name: str,
    admin: Admin,
    producer: Producer,
    tally: Tally,
    dry_run: bool,
) -> Fate:
    if record.sys_flag & SysFlag.TRANSACTION_MASK in _UNDECIDED or record.topic == _DECISIONS_TOPIC:
        return Fate.UNDECIDED
    message, queue_id = message_of(cut, record)
    unique_key = message.properties.get(Property.UNIQ_KEY)
    if unique_key and await _is_present(admin, message.topic, unique_key):
        return Fate.PRESENT
    tally.topics[message.topic] += 1
    if not dry_run:
        queue = await _queue_of(admin, MessageQueue(message.topic, broker_name, queue_id))
        result = await producer.send(message, queue=queue)
        tally.statuses[result.status.name] += 1
    return Fate.SENT


def message_of(cut: Cut, record: Record) -> tuple[Message, int]:
    """A record as the message that was sent, and the queue it was for."""
    topic, queue_id = record.topic, record.queue_id
    properties = dict(record.properties)
    if topic == SCHEDULE_TOPIC:
        topic = properties.get(Property.REAL_TOPIC, topic)
        queue_id = int(properties.get(Property.REAL_QID, queue_id))
    kept = {name: value for name, value in properties.items() if name not in SET_BY_BROKERS}
    kept[RECOVERED] = f"{cut.path.name}@{record.phy_offset}"
    if unique_key := properties.get(Property.UNIQ_KEY):
        kept[Property.UNIQ_KEY] = unique_key
    sys_flag = record.sys_flag & ~(
        SysFlag.TRANSACTION_MASK | SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6
    )
    message = Message(topic, record.body, flag=record.flag, properties=kept, sys_flag=sys_flag)
    return message, queue_id


async def _is_present(admin: Admin, topic: str, unique_key: str) -> bool:
    try:
        return bool(await admin.messages_by_key(topic, unique_key, unique=True, count=1))
    except (NoRoute, CommandError):
        return False


async def _queue_of(admin: Admin, queue: MessageQueue) -> MessageQueue | None:
    """The queue if messages may go there; None for any other."""
    try:
        route = await admin.route(queue.topic)
    except NoRoute:
        return None
    return queue if queue in route.write_queues else None
