"""`trioha message get|browse|tail|send|resend|trace`."""

from __future__ import annotations

import os
import re
import secrets
import time
from typing import Any

import attrs
import click

from trioha.cli.documents import (
    DOCUMENTS,
    dry_run_option,
    noun_options,
    run_job,
    show,
    yes_option,
)
from trioha.cli.group_offsets import QueueName, queue_option
from trioha.cli.names import TOPIC, topic_argument, topic_option
from trioha.cli.output import print_json_line, table, table_of
from trioha.cli.resending import resend_options, run_resend
from trioha.failover.asking import Flow
from trioha.jobs.browse import Wanted, browse, list_messages
from trioha.jobs.cluster_map import read_map, silent_in_words
from trioha.jobs.messages import (
    FoundMessage,
    MessageList,
    ShownMessage,
    find_messages,
    message_at,
)
from trioha.jobs.sending import NewMessage, SentMessage, send_message
from trioha.jobs.telling import JobScope, going_on
from trioha.jobs.tracing import MessageTrace, trace
from trioha.shown import shown
from trioha.times import moment_in_words, parse_moment
from trioha.wire.message_id import UniqueIdGenerator
from trioha.wire.names import TRACE_TOPIC

_BODY_SHOWN = 20


@click.group("message")
def command() -> None:
    """Find, browse, send, resend, trace messages."""


_id_argument = click.argument("msg_id", required=False, default="")
_filters = (
    queue_option,
    click.option("--tag", "tags", default="*", metavar="A", help='A tag, or "A || B".'),
    click.option("--key", default="", help="Only messages with this key."),
    click.option("--body", metavar="REGEX", help="Only where the body matches."),
)


def _filtered(function: Any) -> Any:
    for option in reversed(_filters):
        function = option(function)
    return function


@command.command("get")
@_id_argument
@click.option("-t", "--topic", type=TOPIC, default="", help="Where to look for a key or client id.")
@click.option("--key", default="", help="By a key of the message; needs -t.")
@click.option("--queue", type=QueueName(), metavar="BROKER:ID", help="By its place; needs -t.")
@click.option("--offset", type=click.IntRange(0), help="By its place in --queue.")
@noun_options
def get(
    msg_id: str,
    topic: str,
    key: str,
    queue: tuple[str, int] | None,
    offset: int | None,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Show messages by MSG_ID, by key, or by place.

    \b
    trioha message get 7F00000100002A9F00000000000004D2      the broker's id
    trioha message get -t orders AC1100010001...             the client's id
    trioha message get -t orders --key order-4711
    trioha message get -t orders --queue broker-a:0 --offset 17

    Exit codes: 1 there is none.
    """
    ways = [bool(msg_id), bool(key), queue is not None]
    if sum(ways) != 1 or (queue is None) != (offset is None):
        raise click.UsageError("give MSG_ID, or --key, or --queue and --offset")
    if not (topic or msg_id):
        raise click.UsageError("--key and --queue need -t TOPIC")

    @going_on
    def find(scope: JobScope) -> Flow[MessageList]:
        if queue is not None:
            messages = [(yield from message_at(scope, topic, *queue, offset or 0))]
        else:
            messages = yield from find_messages(scope, topic=topic, msg_id=msg_id, key=key)
        # A key may be on every broker, an id is on one.
        silent = silent_in_words(scope, (yield from read_map(scope))) if key else []
        return MessageList([one.show() for one in messages], silent)

    found = run_job(find, namesrv, timeout_s)
    show(found, output, lambda wide: "\n\n".join(map(_in_words, found.messages)))


@command.command("browse")
@topic_argument
@_filtered
@click.option("--from", "begin", default="first", metavar="first|TIME", help="Where to begin.")
@click.option("--offset", type=click.IntRange(0), help="Begin here in each queue instead.")
@click.option("--count", type=click.IntRange(1), default=50, show_default=True, help="At most.")
@noun_options
def browse_(
    topic: str,
    queues: tuple[tuple[str, int], ...],
    tags: str,
    key: str,
    body: str | None,
    begin: str,
    offset: int | None,
    count: int,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """List messages of a topic, without a group.

    They come as they are stored, and no group's progress changes.

    \b
    trioha message browse orders
    trioha message browse orders --from '1h ago' --tag paid --body 'customer.*4711' -o json
    trioha message browse orders --queue broker-a:0 --offset 100 --count 10
    """
    wanted = _wanted(topic, queues, tags, key, body, begin, offset)
    found = run_job(lambda scope: list_messages(scope, wanted, count=count), namesrv, timeout_s)
    show(found, output, lambda wide: list_in_words(found.messages, wide))


@command.command("tail")
@topic_argument
@_filtered
@click.option("--count", type=click.IntRange(1), help="Stop after so many.")
@noun_options
@click.pass_context
def tail(
    ctx: click.Context,
    topic: str,
    queues: tuple[tuple[str, int], ...],
    tags: str,
    key: str,
    body: str | None,
    count: int | None,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Print messages as they come, until Ctrl-C.

    Without a group; one line each, JSON with -o json.

    \b
    trioha message tail orders
    trioha message tail orders --tag paid --count 10 -o json
    """
    wanted = attrs.evolve(_wanted(topic, queues, tags, key, body, "first", None), from_end=True)
    emit = _print_line if output not in DOCUMENTS else _print_json_message
    run_job(lambda scope: browse(scope, wanted, emit, count=count, follow=True), namesrv, timeout_s)


@command.command("send")
@topic_argument
@click.argument("body")
@click.option("--tag", default="", help="Tag of the message.")
@click.option("--key", "keys", multiple=True, help="A key; may be repeated.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May repeat.")
@click.option("--queue", type=QueueName(), metavar="BROKER:ID", help="Into this queue.")
@noun_options
def send(
    topic: str,
    body: str,
    tag: str,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    queue: tuple[str, int] | None,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Send one message to a topic that exists. (`trioha produce` sends many.)

    \b
    trioha message send orders '{"id": 4711}' --tag paid --key order-4711
    trioha message send orders hello --queue broker-a:0

    Exit codes: 1 no such topic or queue, 3 it is not known whether it is stored, 5 refused.
    """
    pairs = dict(one.partition("=")[::2] for one in properties)
    if not all(pairs) or not all(pairs.values()):
        raise click.UsageError("--property is NAME=VALUE")
    born_ms = time.time_ns() // 1_000_000
    message = NewMessage(topic, body.encode(), tag, keys, pairs, queue)
    msg_id = UniqueIdGenerator("127.0.0.1", os.getpid(), secrets.randbits(32), lambda: born_ms)()
    sent = run_job(lambda scope: send_message(scope, message, msg_id, born_ms), namesrv, timeout_s)
    show(sent, output, lambda wide: _sent_in_words(sent))


@command.command("resend")
@_id_argument
@topic_option
@_filtered
@click.option("--from", "begin", default="first", metavar="first|TIME", help="A range: its start.")
@click.option("--until", metavar="TIME", help="A range: its end.")
@click.option("--all", "everything", is_flag=True, help="All that the filters match.")
@click.option("--to", "target", type=TOPIC, default="", help="Into this topic instead.")
@resend_options
@dry_run_option
@yes_option
@noun_options
@click.pass_context
def resend_(
    ctx: click.Context,
    /,
    msg_id: str,
    topic: str,
    queues: tuple[tuple[str, int], ...],
    tags: str,
    key: str,
    body: str | None,
    begin: str,
    until: str | None,
    everything: bool,
    target: str,
    **flags: Any,
) -> None:
    """Send stored messages again.

    One by MSG_ID, or all that the filters match.

    \b
    trioha message resend -t orders AC1100010001...
    trioha message resend -t orders --key order-4711 --dry-run
    trioha message resend -t orders --all --from '2h ago' --until '1h ago' --rate 100

    What was sent again before is left out, so a resend that broke off is begun again and goes on
    where it was. Every group of the topic gets the copies; --to sends them elsewhere.

    \b
    Exit codes: 1 nothing found, some can not be sent, or another operator resends the same;
    3 it is not known whether a message was sent: it is named.
    """
    chosen = bool(msg_id) + bool(key or body or tags != "*" or everything or until)
    if chosen != 1:
        raise click.UsageError("give MSG_ID, or filters, or --all", ctx)
    if msg_id and (queues or begin != "first"):
        raise click.UsageError("MSG_ID names one message: --queue and --from go with filters", ctx)
    wanted = _wanted(topic, queues, tags, key, body, begin, None)
    end_ms = None if until is None else _moment(until)

    def find(scope: JobScope) -> Flow[list[FoundMessage]]:
        if msg_id:
            return (yield from find_messages(scope, topic=topic, msg_id=msg_id))
        found: list[FoundMessage] = []
        yield from browse(scope, wanted, found.append)
        return [one for one in found if end_ms is None or one.record.store_timestamp < end_ms]

    run_resend(ctx, topic, find, topic=target, to_origin=False, **flags)


@command.command("trace")
@click.argument("msg_id")
@topic_option
@click.option("--trace-topic", type=TOPIC, default=TRACE_TOPIC, show_default=True)
@noun_options
def trace_(
    msg_id: str, topic: str, trace_topic: str, namesrv: str, timeout_s: float, output: str
) -> None:
    """Show what became of a message.

    Which groups have passed it, and what clients told of it.

    \b
    trioha message trace AC1100010001... -t orders

    Clients tell where tracing is on (in Java: enableMsgTrace). Without it the groups' offsets
    are known: "consumed" there also means handed back for redelivery.
    """

    def find(scope: JobScope) -> Flow[MessageTrace]:
        found = yield from find_messages(scope, topic=topic, msg_id=msg_id)
        # An id of the broker does not tell which broker it was asked at when there are two.
        return (yield from trace(scope, found[0], trace_topic))

    found = run_job(find, namesrv, timeout_s)
    show(found, output, lambda wide: _trace_in_words(found))


def _wanted(
    topic: str,
    queues: tuple[tuple[str, int], ...],
    tags: str,
    key: str,
    body: str | None,
    begin: str,
    offset: int | None,
) -> Wanted:
    try:
        pattern = None if body is None else re.compile(body.encode())
    except re.error as error:
        raise click.UsageError(f"--body {body!r} is no regular expression: {error}") from None
    begin_ms = None if begin == "first" else _moment(begin)
    return Wanted(topic, queues, begin_ms, False, offset, tags, key, pattern)


def _moment(text: str) -> int:
    moment = parse_moment(text, time.time_ns() // 1_000_000)
    if moment is None:
        raise click.UsageError(f'Invalid time "{text}": give an ISO 8601 time or "2h ago"')
    return moment


def list_in_words(found: list[ShownMessage], wide: bool) -> str:
    """Return a table of messages, one line each."""
    if not found:
        return "No messages."
    rows: list[dict[str, object]] = []
    for one in found:
        row: dict[str, object] = {
            "QUEUE": f"{one.broker}:{one.queue_id}",
            "OFFSET": one.queue_offset,
        }
        if wide:
            row |= {"STORED (UTC)": moment_in_words(one.stored_ms), "KEYS": " ".join(one.keys)}
        row |= {
            "ID": one.msg_id,
            "TAG": one.tags or None,
            "BODY": _short(one, None if wide else _BODY_SHOWN),
        }
        rows.append(row)
    return table_of(rows)


def _short(one: ShownMessage, most: int | None) -> str:
    text = one.body if one.body is not None else f"(base64) {one.body_base64}"
    text = shown(text)
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def _in_words(one: ShownMessage) -> str:
    facts = [
        ("message", one.msg_id),
        ("broker's id", one.offset_msg_id),
        ("topic", one.topic),
        ("queue", f"{one.broker or '-'}:{one.queue_id} at offset {one.queue_offset}"),
        ("tag", one.tags or "-"),
        ("keys", " ".join(one.keys) or "-"),
        ("sent", f"{moment_in_words(one.born_ms)} UTC from {one.born_host}"),
        ("stored", f"{moment_in_words(one.stored_ms)} UTC, {one.size} bytes"),
        ("redelivered", str(one.reconsume_times)),
        *((f"  {name}", value) for name, value in one.properties.items()),
    ]
    width = max(len(name) for name, _ in facts)
    lines = [f"{shown(name):<{width}}  {shown(value)}" for name, value in facts]
    return "\n".join([*lines, "", _short(one, None)])


def _print_line(one: FoundMessage) -> None:
    message = one.show()
    click.echo(
        f"{moment_in_words(message.stored_ms)}  {message.broker}:{message.queue_id}"
        f"@{message.queue_offset}  {shown(message.tags) or '-'}  {_short(message, None)}"
    )


def _print_json_message(one: FoundMessage) -> None:
    print_json_line(attrs.asdict(one.show()))


def _sent_in_words(sent: SentMessage) -> str:
    return (
        f"{sent.msg_id} is stored in {sent.broker}:{sent.queue_id} at offset {sent.queue_offset}"
        f" ({sent.status})"
    )


def _trace_in_words(found: MessageTrace) -> str:
    lines = [_in_words(found.message), ""]
    if found.groups:
        rows = [(one.group, one.state, one.offset) for one in found.groups]
        lines.append(table(("GROUP", "STATE", "ITS OFFSET"), rows))
    else:
        lines.append("No group reads this topic.")
    lines.append("")
    if found.steps:
        steps = [
            (
                moment_in_words(one.at_ms) if one.at_ms else None,
                one.what,
                one.group,
                one.client or None,
                None if one.cost_ms is None else f"{one.cost_ms} ms",
                one.detail or None,
            )
            for one in found.steps
        ]
        lines.append(table(("AT (UTC)", "WHAT", "GROUP", "CLIENT", "TOOK", "DETAIL"), steps))
    else:
        lines.append("No client told of it: tracing is off in its producer and consumers.")
    return "\n".join(lines)
