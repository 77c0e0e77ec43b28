"""Sends stored messages again: one, a range, a whole DLQ; throttled, and never twice.

Theory of operation. A copy goes to the broker of the message that it is a copy of, with a UNIQ_KEY
made of that message's id and of the target. Before a message is sent, that broker is asked for the
key in its index (12): what is there was sent before, by a run that broke off. So a resend that was
interrupted is begun again and goes on where it was. A broker that was started a moment ago may
still be filling its index; the job waits for that before it believes that a key is not there.

When the answer to a send does not come, the job looks for the key, for a while. If the broker
cannot be asked, or does not have it, the outcome of that one message is unknown; the job stops
there and names it. The next run asks again. A send that certainly did not leave is tried again for
as long; then its broker counts as silent, and all its messages are skipped.

Two operators at once: the job locks the queues of the messages (`queue_locks`). Whoever comes
second is told so.

The target of a dead letter is its group's retry topic, which that group alone reads: a consumer
gets it under the name of the topic it came from. Sending to that topic itself would deliver it to
every other group once more; `to_origin` does it all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import attrs

from trioha.errors import CommandError, Unreachable
from trioha.failover.asking import Answer, Flow, ask_all, pause
from trioha.jobs.cluster_map import MASTER_ID, ClusterMap, find_master, read_map, read_route
from trioha.jobs.messages import FoundMessage, key_question, matches
from trioha.jobs.queue_locks import HeldQueues
from trioha.jobs.telling import Fields, JobRefused, JobScope, answered, read_one
from trioha.wire.bodies import MessageQueue, decode_kv_table
from trioha.wire.codes import Perm, RequestCode, ResponseCode
from trioha.wire.names import (
    AUTO_CREATE_TOPIC,
    DLQ_PREFIX,
    is_dlq_topic,
    is_retry_topic,
    retry_topic,
)
from trioha.wire.properties import SET_BY_BROKERS, Property, encode_properties
from trioha.wire.route import TopicRouteData

SENDER_GROUP = "TRIOHA_RESEND"
RESENT = "TRIOHA_RESENT"
"""Property of a copy: the broker's id of the message that it is a copy of."""
_COMPRESSION_BITS = 0x701
"""Bits of sysFlag: compressed, and by which method. Bodies of zlib are sent inflated."""
_LOOK_ROUNDS = 20
_LOOK_PAUSE_S = 0.5
_INDEX_S = 30.0
_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_NOT_SENT = SET_BY_BROKERS | {Property.DELAY, Property.CONSUME_START_TIME}


@attrs.frozen
class ResendResult:
    """Result of a resend."""

    source: str
    found: int
    sent: int
    present: int
    """Copies that were there already: sent by an earlier run."""
    skipped: list[str]
    """Messages that can not be sent, and why."""
    unknown: list[str]
    """Messages of which it is not known whether their copy is stored."""
    done: bool
    dry_run: bool


@attrs.frozen
class ResendOrder:
    """Source, target and rate of a resend."""

    source: str
    """Topic of the messages."""
    topic: str = ""
    """Target; empty: the retry topic of a dead letter's group, else the topic it came from."""
    to_origin: bool = False
    """Dead letters go to the topic that they came from, for every group to read."""
    rate_per_s: float = 0.0
    """Messages per second; 0 does not throttle."""
    dry_run: bool = False
    client_id: str = "trioha"
    """Tells two operators apart."""


@attrs.define
class ResendProgress:
    """Progress of a resend."""

    found: int = 0
    sent: int = 0
    present: int = 0
    skipped: list[str] = attrs.Factory(list)
    unknown: list[str] = attrs.Factory(list)
    silent: dict[str, str] = attrs.Factory(dict)
    """Brokers that do not answer, and why: nothing more is sent there."""


def target_of(order: ResendOrder, message: FoundMessage) -> str:
    """Return the topic that a copy goes to."""
    if order.topic:
        return order.topic
    source = message.record.topic
    origin = message.properties.get(Property.RETRY_TOPIC) or source
    if is_dlq_topic(source) and not order.to_origin:
        return retry_topic(source.removeprefix(DLQ_PREFIX))
    return origin


def copy_key(message: FoundMessage, target: str) -> str:
    """Return the UNIQ_KEY of a message's copy: always the same one.

    It has the shape of RocketMQ's ids: bytes 10 to 13 are milliseconds since the month began, from
    which on mqadmin looks for a message. Here they are a day before the original was stored.
    """
    digest = hashlib.sha256(f"{message.record.message_id} {target}".encode()).digest()
    stored = datetime.fromtimestamp(message.record.store_timestamp / 1000, UTC)
    month_ms = max(0, ((stored.day - 2) * 86_400 + stored.hour * 3600) * 1000)
    return (digest[:10] + month_ms.to_bytes(4, "big") + digest[10:12]).hex().upper()


def resend(
    scope: JobScope,
    order: ResendOrder,
    messages: Sequence[FoundMessage],
    on_progress: Callable[[ResendProgress], None] = lambda progress: None,
) -> Flow[ResendResult]:
    """Send copies of the messages that have none yet; `on_progress` hears of each.

    Errors: JobRefused when another resend of the same queues is going on; Unreachable,
    CommandError before anything was sent.
    """
    # A copy in its own source would be copied by every further run.
    messages = [
        one
        for one in messages
        if RESENT not in one.properties or target_of(order, one) != one.record.topic
    ]
    progress = ResendProgress(found=len(messages))
    queues = {MessageQueue(one.record.topic, one.broker, one.record.queue_id) for one in messages}
    # A dry run changes nothing, and so locks nothing.
    locks = HeldQueues(scope, order.client_id, [] if order.dry_run else sorted(queues))
    yield from locks.take()
    routes: dict[str, TopicRouteData | None] = {}
    for one in messages:
        for topic in (target_of(order, one), one.properties.get(Property.RETRY_TOPIC)):
            if topic and topic not in routes:
                routes[topic] = yield from read_route(scope, topic)
    known = yield from read_map(scope)
    # A broker that dies from here on is not in later routes, but may have the copy.
    homes = [_home(routes[target_of(order, one)], one) for one in messages]
    for home in sorted(set(homes)):
        yield from _wait_indexed(scope, known, home)
    for message, home in zip(messages, homes, strict=True):
        target = target_of(order, message)
        reason = _why_not(known, routes, order, message, home)
        if not reason:
            reason = yield from _send_once(
                scope, order, message, target, home, routes, progress, locks
            )
        if reason:
            progress.skipped.append(f"{message.msg_id}: {reason}")
        on_progress(progress)
        if progress.unknown:
            break
        if order.rate_per_s and not order.dry_run:
            yield from locks.rest(1 / order.rate_per_s)
    yield from locks.give_back()
    return ResendResult(
        order.source,
        progress.found,
        progress.sent,
        progress.present,
        progress.skipped,
        progress.unknown,
        not (progress.unknown or progress.silent or order.dry_run),
        order.dry_run,
    )


def _why_not(
    known: ClusterMap,
    routes: dict[str, TopicRouteData | None],
    order: ResendOrder,
    message: FoundMessage,
    home: str,
) -> str:
    """Return why a message cannot be sent; empty if it can."""
    target = target_of(order, message)
    origin = message.properties.get(Property.RETRY_TOPIC)
    is_dead_letter = is_dlq_topic(message.record.topic) and not order.topic
    if is_dead_letter and origin and routes[origin] is None:
        return f"its topic {origin} is gone; --to NAME sends it elsewhere"
    if routes[target] is None:
        group = "; has its group been deleted?" if is_retry_topic(target) else ""
        return f"the target {target} does not exist{group}"
    if MASTER_ID not in known.brokers.get(message.broker, ()):
        return f"{message.broker} has no master now, which locks its queues and may hold its copy"
    if not _writers(routes[target], home):
        return f"{target} takes no messages on {home} now"
    return ""


def _send_once(
    scope: JobScope,
    order: ResendOrder,
    message: FoundMessage,
    target: str,
    home: str,
    routes: dict[str, TopicRouteData | None],
    progress: ResendProgress,
    locks: HeldQueues,
) -> Flow[str]:
    """Send one copy; return why it is not stored, empty if it is, or if that is not known."""
    key = copy_key(message, target)
    if home not in progress.silent:
        yield from locks.work(2 * scope.patience_s)
        is_there = yield from _look(scope, routes[target], home, target, key)
        if is_there is True:
            progress.present += 1
            return ""
        if is_there:
            progress.silent[home] = f"{home} does not tell whether it holds its copy: {is_there}"
    if home in progress.silent:
        return progress.silent[home]
    if order.dry_run:
        progress.sent += 1
        return ""
    reason = ""
    for _ in range(_LOOK_ROUNDS):
        writers = _writers(routes[target], home)
        if writers:
            queue, address = writers[progress.sent % len(writers)]
            request = scope.ask(address, *_send_request(message, target, queue, key))
            (reply,) = yield from ask_all(request)
            if isinstance(reply, Answer):
                if reply.code not in _STORED:
                    return f"{home} refuses it: {reply.remark or reply.code}"
                progress.sent += 1
                return ""
            reason = reply.reason
            if reply.may_have_happened:
                yield from _find_out(scope, home, target, key, message, reason, routes, progress)
                locks.age_s += _LOOK_ROUNDS * (_LOOK_PAUSE_S + 2 * scope.patience_s)
                return ""
        # The send certainly did not leave. After a failover another node has the name.
        yield from locks.rest(_LOOK_PAUSE_S)
        yield from _read_again(scope, target, routes)
    progress.silent[home] = f"{home} can not be reached: {reason}"
    return progress.silent[home]


def _find_out(
    scope: JobScope,
    home: str,
    target: str,
    key: str,
    message: FoundMessage,
    reason: str,
    routes: dict[str, TopicRouteData | None],
    progress: ResendProgress,
) -> Flow[None]:
    """Look for a copy whose answer did not come, until its broker has answered."""
    for _ in range(_LOOK_ROUNDS):
        # After a failover another node has the name.
        yield from _read_again(scope, target, routes)
        if (yield from _look(scope, routes[target], home, target, key)) is True:
            progress.sent += 1
            return
        # Not there may mean not yet in the index.
        yield from pause(_LOOK_PAUSE_S)
    progress.unknown.append(
        f"{message.msg_id}: it is not known whether its copy {key} in {target} on {home} is"
        f" stored: {reason}"
    )


def _read_again(
    scope: JobScope, topic: str, routes: dict[str, TopicRouteData | None]
) -> Flow[None]:
    """Read a route again; without a name server the old one holds."""
    with suppress(Unreachable):
        routes[topic] = yield from read_route(scope, topic)


def _look(
    scope: JobScope, route: TopicRouteData | None, home: str, target: str, key: str
) -> Flow[bool | str]:
    """Return whether the copy is stored, or why that is not known."""
    datas = [] if route is None else route.broker_datas
    nodes = next((one.broker_addrs for one in datas if one.broker_name == home), {})
    if not nodes:
        return "it is not registered now"
    address = nodes[min(nodes)]
    (reply,) = yield from ask_all(key_question(scope, address, target, key, True))
    try:
        return bool(matches(address, home, reply, key, True))
    except (Unreachable, CommandError) as error:
        return str(error)


def _wait_indexed(scope: JobScope, known: ClusterMap, home: str) -> Flow[None]:
    """Wait until a broker's index holds all that its log held at the beginning.

    Errors: JobRefused when it does not within `_INDEX_S`, Unreachable, CommandError.
    """
    if home not in known.brokers:
        return  # its messages are skipped
    address = find_master(known, home)
    end: int | None = None
    for _ in range(int(_INDEX_S / _LOOK_PAUSE_S)):
        (reply,) = yield from ask_all(scope.ask(address, RequestCode.TRIOHA_NODE_STATUS))
        if isinstance(reply, Answer) and reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            # RocketMQ's broker indexes as it dispatches.
            answer = yield from read_one(scope, address, RequestCode.GET_BROKER_RUNTIME_INFO)
            behind = int(decode_kv_table(answer.body).get("dispatchBehindBytes", "0"))
        else:
            status = answered(address, reply).fields()
            end = int(status["max_phy_offset"]) if end is None else end
            behind = end - int(status.get("indexed_offset", end))
        if behind <= 0:
            return
        yield from pause(_LOOK_PAUSE_S)
    raise JobRefused(
        f"{home} is still filling its index, {behind} bytes behind: it can not tell what was sent"
        " before; try again later"
    )


def _home(route: TopicRouteData | None, message: FoundMessage) -> str:
    """Return the broker that a copy goes to: always the same one, so that it is found again.

    It is the original's own, whose DLQ could not be read without it. Where the target is not there,
    one of its brokers is chosen by the message's id.
    """
    names = [] if route is None else sorted(one.broker_name for one in route.queue_datas)
    if message.broker in names or not names:
        return message.broker
    return names[int(copy_key(message, "")[:8], 16) % len(names)]


def _writers(route: TopicRouteData | None, home: str) -> list[tuple[MessageQueue, str]]:
    """Return the queues on one broker that take messages, each with the master's address."""
    if route is None:
        return []
    nodes = next((one.broker_addrs for one in route.broker_datas if one.broker_name == home), {})
    if MASTER_ID not in nodes:
        return []
    return [
        (MessageQueue("", home, queue_id), nodes[MASTER_ID])
        for one in route.queue_datas
        if one.broker_name == home and one.perm & Perm.WRITE
        for queue_id in range(one.write_queue_nums)
    ]


def _send_request(
    message: FoundMessage, target: str, queue: MessageQueue, key: str
) -> tuple[RequestCode, Fields, bytes]:
    record = message.record
    properties = {
        name: value for name, value in message.properties.items() if name not in _NOT_SENT
    }
    if not is_retry_topic(target):
        # Only a retry topic's messages are renamed by consumers.
        properties.pop(Property.RETRY_TOPIC, None)
        properties.pop(Property.RECONSUME_TIME, None)
    properties[Property.UNIQ_KEY] = key
    properties[RESENT] = record.message_id
    fields: Fields = {
        "a": SENDER_GROUP,
        "b": target,
        "c": AUTO_CREATE_TOPIC,
        "d": 4,
        "e": queue.queue_id,
        "f": record.sys_flag & _COMPRESSION_BITS if message.body is record.body else 0,
        "g": record.born_timestamp,
        "h": record.flag,
        "i": encode_properties(properties).decode(),
        "j": 0,
        "k": False,
        "m": False,
    }
    return RequestCode.SEND_MESSAGE_V2, fields, bytes(message.body)
