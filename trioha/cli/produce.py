"""`trioha produce`: messages from stdin, or so many of a size."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing

import attrs
import click
import trio

from trioha.cli.client_options import namesrv_option
from trioha.cli.measures import Duration, Moment
from trioha.cli.output import output_option, print_json, print_json_line
from trioha.client import (
    Message,
    Producer,
    ReceivedMessage,
    SendResult,
    TransactionalProducer,
    TransactionState,
    open_producer,
    open_transactional_producer,
)
from trioha.errors import OutcomeUnknown

_READ_BYTES = 65_536
_LINE_BYTES_MAX = 4 << 20
_ENDED = {TransactionState.COMMIT: "committed", TransactionState.ROLLBACK: "rolled back"}


@attrs.frozen(kw_only=True)
class SendOptions:
    """Messages to send, and the way to send them."""

    template: Message
    count: int | None
    """Number of messages; None: the lines of stdin."""
    batch: int
    concurrency: int
    shard_key: str | None
    each: bool
    transaction: TransactionState | None = None
    """Outcome of each message's transaction; None: without transactions."""


@attrs.define(kw_only=True)
class SendTally:
    """Results of the sends so far."""

    statuses: Counter[str] = attrs.Factory(Counter)
    started_s: float = 0.0
    seconds: float = 0.0
    last: SendResult | None = None

    @property
    def sent(self) -> int:
        return self.statuses.total()


@click.command("produce")
@namesrv_option
@click.option("-t", "--topic", required=True, help="Topic; created on the first send if need be.")
@click.option("--count", type=click.IntRange(1), help="Send so many messages; else stdin's lines.")
@click.option("--size", type=click.IntRange(0), default=128, show_default=True, help="Body bytes.")
@click.option("--tag", default="", help="Tag of every message.")
@click.option("--key", "keys", multiple=True, help="Key of every message; may be repeated.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May repeat.")
@click.option("--delay-level", type=click.IntRange(0, 18), default=0, help="Deliver later.")
@click.option(
    "--delay", "delay_s", type=Duration(0.001), default=None, help="Deliver so long later."
)
@click.option("--deliver-at", "deliver_at_ms", type=Moment(), default=None, help="Deliver then.")
@click.option("--shard-key", help="Keep all messages in the queue of this key, in order.")
@click.option(
    "--transaction",
    type=click.Choice([outcome.name.lower() for outcome in TransactionState]),
    help="Send half messages, and end them so; unknown leaves them to the broker's checks.",
)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Per request.")
@click.option("--concurrency", type=click.IntRange(1, 1024), default=1, show_default=True)
@click.option("-g", "--group", default="trioha_producer", show_default=True)
@click.option("--each", is_flag=True, help="Print every result as a JSON line.")
@output_option
def command(
    namesrv: str,
    topic: str,
    count: int | None,
    size: int,
    tag: str,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    delay_level: int,
    delay_s: float | None,
    deliver_at_ms: int | None,
    shard_key: str | None,
    transaction: str | None,
    batch: int,
    concurrency: int,
    group: str,
    each: bool,
    output: str,
) -> None:
    """Send messages and report what the broker made of them.

    \b
    echo hello | trioha produce -n 127.0.0.1:9876 -t T
    trioha produce -n 127.0.0.1:9876 -t T --count 10000 --size 1024 --concurrency 16 -o json
    echo hello | trioha produce -n 127.0.0.1:9876 -t T --delay 90s
    echo hello | trioha produce -n 127.0.0.1:9876 -t T --deliver-at 2027-01-31T08:00
    echo hello | trioha produce -n 127.0.0.1:9876 -t T --transaction commit

    It stops at the first message that is refused (exit code 5) or of which it is not known
    whether it is stored (exit code 3). Results keep the order of the input only with
    --concurrency 1.
    """
    if bool(delay_level) + bool(delay_s) + bool(deliver_at_ms) > 1:
        raise click.UsageError("give one of --delay-level, --delay and --deliver-at")
    if transaction and (batch > 1 or delay_level or delay_s or deliver_at_ms):
        raise click.UsageError("--transaction goes with neither --batch nor a delay")
    message = Message(
        topic,
        _filler(size),
        tag,
        keys,
        delay_level=delay_level,
        delay_s=delay_s or 0,
        deliver_at_ms=deliver_at_ms or 0,
        properties=dict(_pair(text) for text in properties),
    )
    options = SendOptions(
        template=message,
        count=count,
        batch=batch,
        concurrency=concurrency,
        shard_key=shard_key,
        each=each,
        transaction=TransactionState[transaction.upper()] if transaction else None,
    )
    tally = SendTally()
    try:
        trio.run(_produce, namesrv, group, options, tally, strict_exception_groups=True)
    finally:
        _print(tally, topic, output)


async def _produce(namesrv: str, group: str, options: SendOptions, tally: SendTally) -> None:
    if options.transaction is None:
        async with open_producer(namesrv, group=group) as producer:
            await send_all(producer, options, tally)
        return
    async with open_transactional_producer(namesrv, _know_nothing, group=group) as producer:
        await send_all(producer, options, tally)


async def _know_nothing(_: ReceivedMessage) -> TransactionState:
    # The broker asks about other transactions of the group: this command's ended or stay open.
    return TransactionState.UNKNOWN


async def send_all(producer: Producer, options: SendOptions, tally: SendTally) -> None:
    """Send everything with `options.concurrency` tasks that share one source.

    Errors: as `Producer.send`; the first one ends all of it.
    """
    tally.started_s = trio.current_time()
    source, batches = trio.open_memory_channel[list[Message]](0)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_feed, source, options, name="produce.feed")
            for number in range(options.concurrency):
                nursery.start_soon(
                    _send_each, producer, batches, options, tally, name=f"produce.send[{number}]"
                )
    finally:
        tally.seconds = trio.current_time() - tally.started_s


async def _feed(source: trio.MemorySendChannel[list[Message]], options: SendOptions) -> None:
    async with source, aclosing(_bodies(options)) as bodies:
        messages: list[Message] = []
        async for body in bodies:
            messages.append(attrs.evolve(options.template, body=body))
            if len(messages) == options.batch:
                await source.send(messages)
                messages = []
        if messages:
            await source.send(messages)


async def _send_each(
    producer: Producer,
    batches: trio.MemoryReceiveChannel[list[Message]],
    options: SendOptions,
    tally: SendTally,
) -> None:
    async for messages in batches:
        if options.transaction is not None:
            assert isinstance(producer, TransactionalProducer), "a producer without transactions"
            result = await _send_half(producer, messages[0], options.shard_key, options.transaction)
        elif options.batch == 1:
            result = await producer.send(messages[0], key=options.shard_key)
        else:
            result = await producer.send_batch(messages, key=options.shard_key)
        tally.statuses[result.status.name] += len(messages)
        tally.last = result
        if options.each:
            print_json_line(_result(result))


async def _send_half(
    producer: TransactionalProducer,
    message: Message,
    shard_key: str | None,
    outcome: TransactionState,
) -> SendResult:
    """Send a half message and end its transaction.

    Errors: as `Producer.send`; OutcomeUnknown if the broker has not confirmed the end.
    """

    async def execute(_: SendResult) -> TransactionState:
        return outcome

    result = await producer.send_in_transaction(message, execute, key=shard_key)
    if result.reason and outcome is not TransactionState.UNKNOWN:
        raise OutcomeUnknown(
            f"message {result.sent.msg_id} may not be {_ENDED[outcome]} yet: "
            f"{result.reason}; the broker's checks decide"
        )
    return result.sent


async def _bodies(options: SendOptions) -> AsyncGenerator[bytes, None]:
    if options.count is not None:
        for _ in range(options.count):
            yield options.template.body
        return
    rest = b""
    while True:
        # In a thread: stdin may be a file, which no event loop can wait for.
        chunk = await trio.to_thread.run_sync(
            os.read, sys.stdin.fileno(), _READ_BYTES, abandon_on_cancel=True
        )
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_BYTES_MAX:
            raise click.ClickException(f"a line of stdin exceeds {_LINE_BYTES_MAX} bytes")
        for line in lines:
            yield line.removesuffix(b"\r")
        if not chunk:
            if rest:
                yield rest
            return


def _filler(size: int) -> bytes:
    return (b"0123456789abcdefghijklmnopqrstuvwxyz" * (size // 36 + 1))[:size]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise click.UsageError(f"--property {text!r} is not NAME=VALUE")
    return name, value


def _result(result: SendResult) -> dict[str, object]:
    return {
        "status": result.status.name,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        **({"recall_handle": result.recall_handle} if result.recall_handle else {}),
    }


def _print(tally: SendTally, topic: str, output: str) -> None:
    rate = tally.sent / tally.seconds if tally.seconds else 0.0
    if output == "json":
        print_json(
            {
                "topic": topic,
                "sent": tally.sent,
                "statuses": dict(tally.statuses),
                "seconds": round(tally.seconds, 3),
                "messages_per_s": round(rate, 1),
                "last": _result(tally.last) if tally.last is not None else None,
            }
        )
        return
    statuses = ", ".join(f"{name} {count}" for name, count in tally.statuses.items())
    click.echo(
        f"{tally.sent} messages sent to {topic} in {tally.seconds:.2f} s"
        + (f" ({rate:,.0f}/s): {statuses}" if tally.sent else "")
    )
