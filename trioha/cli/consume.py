"""`trioha consume`: prints what a group has not consumed yet."""

from __future__ import annotations

import base64
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime

import attrs
import click
import trio

from trioha.cli.client_options import namesrv_option
from trioha.cli.failures import ExitCode
from trioha.cli.output import output_option
from trioha.client import (
    ConsumeFrom,
    MessageModel,
    NoRoute,
    PushConsumer,
    PushConsumerConfig,
    ReceivedMessage,
    open_admin,
    open_push_consumer,
)
from trioha.errors import TriohaError, Unreachable
from trioha.shown import shown_bytes


@attrs.define
class ConsumeProgress:
    """Progress of the command, and whether it was told to stop."""

    printed: int = 0
    interrupted: bool = False
    obstacle: TriohaError | None = None
    """Error that kept every message away; None if there was none."""


@click.command("consume")
@namesrv_option
@click.option("-t", "--topic", required=True, help="Topic to consume.")
@click.option("-g", "--group", required=True, help="Consumer group; its progress is kept.")
@click.option("--count", type=click.IntRange(1), help="Stop after so many messages.")
@click.option(
    "--from",
    "begin",
    default="first",
    show_default=True,
    metavar="first|last|TIME",
    help="Where a group without progress begins. TIME: ISO 8601, or milliseconds since 1970.",
)
@click.option("--tag", "expression", default="*", show_default=True, help='Like "A || B".')
@click.option(
    "--idle", type=click.FloatRange(0), help="Stop when nothing came for so many seconds."
)
@click.option("--broadcast", is_flag=True, help="Every message, whatever other members consume.")
@click.option("--raw", is_flag=True, help="Bodies byte for byte, control characters too.")
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    namesrv: str,
    topic: str,
    group: str,
    count: int | None,
    begin: str,
    expression: str,
    idle: float | None,
    broadcast: bool,
    raw: bool,
    output: str,
) -> None:
    """Print messages as they come: bodies, or one JSON object per line.

    Control characters are shown as \\u001b, bytes that are not UTF-8 as \\xff; --raw prints bodies
    as they are.

    \b
    trioha consume -n 127.0.0.1:9876 -t T -g G --count 1
    trioha consume -n 127.0.0.1:9876 -t T -g G --from 2026-11-20T09:00 -o json

    A message counts as consumed once it is printed. Ctrl-C commits the progress (exit code 130).
    A topic that does not exist is waited for; a note on stderr says so.

    \b
    Exit codes with --idle: 1 when fewer than --count messages came, or when nothing came and there
    is no such topic; 4 when nothing came and no name server answers.
    """
    if raw and output == "json":
        raise click.UsageError("--raw prints bodies alone; leave it out, or leave out -o json")
    line_of = raw_line if raw else json_line if output == "json" else text_line
    where, timestamp_ms = parse_begin(begin)
    config = PushConsumerConfig(
        consume_from=where,
        consume_timestamp_ms=timestamp_ms,
        model=MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING,
    )
    progress = ConsumeProgress()

    async def consume() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(_watch_signals, progress, nursery.cancel_scope)
            if obstacle := await _obstacle(namesrv, topic):
                click.echo(f"trioha: note: {obstacle}; waiting", err=True)
            async with open_push_consumer(
                namesrv, group, {topic: expression}, config=config
            ) as consumer:
                await print_messages(consumer, progress, count, idle, line_of)
            if not progress.printed:
                progress.obstacle = await _obstacle(namesrv, topic)
            nursery.cancel_scope.cancel()

    trio.run(consume, strict_exception_groups=True)
    if progress.interrupted:
        ctx.exit(ExitCode.INTERRUPTED)
    if progress.obstacle is not None:
        raise progress.obstacle
    if count is not None and progress.printed < count:
        raise click.ClickException(f"only {progress.printed} of {count} messages came")


async def _obstacle(namesrv: str, topic: str) -> TriohaError | None:
    """Return what keeps every message away: no such topic, or no name server. None for nothing."""
    async with open_admin(namesrv) as admin:
        try:
            await admin.route(topic)
        except (NoRoute, Unreachable) as error:
            return error
    return None


async def print_messages(
    consumer: PushConsumer,
    progress: ConsumeProgress,
    count: int | None,
    idle_s: float | None,
    line_of: Callable[[ReceivedMessage], bytes],
) -> None:
    """Print until `count` is reached, nothing came for `idle_s`, or cancelled."""
    patience_s = float("inf") if idle_s is None else idle_s
    with trio.move_on_after(patience_s) as patience:
        async for message in consumer:
            # Flushed before the message is acknowledged by asking for the next one.
            sys.stdout.buffer.write(line_of(message))
            sys.stdout.buffer.flush()
            progress.printed += 1
            if progress.printed == count:
                consumer.ack(message)
                return
            patience.deadline = trio.current_time() + patience_s


def parse_begin(text: str) -> tuple[ConsumeFrom, int]:
    """``first``, ``last``, or a time as milliseconds since 1970.

    Errors: click.UsageError.
    """
    if text in ("first", "last"):
        return ConsumeFrom[text.upper()], 0
    if text.isdecimal():
        return ConsumeFrom.TIMESTAMP, int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"--from {text!r} is neither first, last, an ISO 8601 time nor milliseconds"
        ) from None
    return ConsumeFrom.TIMESTAMP, int(moment.timestamp() * 1000)


def raw_line(message: ReceivedMessage) -> bytes:
    """The bytes of the body, whatever they do to a terminal."""
    return message.body + b"\n"


def text_line(message: ReceivedMessage) -> bytes:
    """The body as text that is safe to show."""
    return shown_bytes(message.body).encode() + b"\n"


def json_line(message: ReceivedMessage) -> bytes:
    """Everything known of the message. A body that is not UTF-8 comes as `body_base64`."""
    import msgspec

    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
    return (
        shown_bytes(
            msgspec.json.encode(
                {
                    "topic": message.topic,
                    "broker": message.queue.broker_name,
                    "queue_id": message.queue.queue_id,
                    "queue_offset": message.queue_offset,
                    "msg_id": message.msg_id,
                    "offset_msg_id": message.offset_msg_id,
                    "tags": message.tags,
                    "keys": message.keys,
                    "properties": message.properties,
                    **body,
                    "born_timestamp": message.born_timestamp,
                    "store_timestamp": message.store_timestamp,
                    "received_timestamp": int(time.time() * 1000),
                    "reconsume_times": message.reconsume_times,
                }
            )
        ).encode()
        + b"\n"
    )


async def _watch_signals(
    progress: ConsumeProgress,
    scope: trio.CancelScope,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            progress.interrupted = True
            scope.cancel()
