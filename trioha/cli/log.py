"""`trioha log dump|verify|diff|accept-loss`: commitlogs on disk, without a node."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import click

from trioha.cli.failures import ExitCode
from trioha.cli.log_loss import accept_loss_command
from trioha.cli.output import output_option, print_json, print_json_line, size_in_words
from trioha.log_lines import rfc3339
from trioha.store.inspect import (
    DamagedStretch,
    DiffReport,
    VerifyReport,
    diff_logs,
    iter_records,
    verify_store,
)
from trioha.wire.message_id import unpack_host
from trioha.wire.record import Record

_DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)
_BODY_SHOWN_BYTES = 60


@click.group("log")
def command() -> None:
    """Read, verify and compare commitlogs without a running node.

    DIRECTORY is a store or its commitlog, written by trioha or by a Java broker. Nothing is
    changed or locked; a running broker's log may be looked at too. Only `accept-loss` changes the
    store of a stopped broker.
    """


command.add_command(accept_loss_command)


@command.command("dump")
@click.argument("directory", type=_DIRECTORY)
@click.option("--begin", type=click.IntRange(0), default=0, help="From this offset on.")
@click.option("--end", type=click.IntRange(0), default=None, help="Up to this offset.")
@click.option("--count", type=click.IntRange(1), default=None, help="At most so many records.")
@click.option("--topic", default=None, help="Only this topic.")
@click.option("--raw", is_flag=True, help="Bodies alone, byte for byte, a line break after each.")
@output_option
def dump(
    directory: Path,
    begin: int,
    end: int | None,
    count: int | None,
    topic: str | None,
    raw: bool,
    output: str,
) -> None:
    """Print records: a line each, or a JSON line each.

    A line shows the first bytes of a body, all but printable ASCII escaped; --raw prints whole
    bodies and nothing else.

    \b
    trioha log dump /var/lib/trioha --count 5
    trioha log dump /var/lib/trioha --topic T -o json | jq .keys
    """
    if raw and output == "json":
        raise click.UsageError("--raw prints bodies alone; leave it out, or leave out -o json")
    items = (
        item
        for item in iter_records(_commitlog(directory), begin, end)
        if isinstance(item, DamagedStretch) or topic is None or item.topic == topic
    )
    for item in islice(items, count):
        if isinstance(item, DamagedStretch):
            click.echo(f"trioha: {_stretch_in_words(item)}", err=True)
        elif raw:
            sys.stdout.buffer.write(bytes(item.body) + b"\n")
        elif output == "json":
            print_json_line(record_as_json(item))
        else:
            click.echo(_record_in_words(item))


@command.command("verify")
@click.argument("directory", type=_DIRECTORY)
@click.option(
    "--commitlog",
    type=_DIRECTORY,
    default=None,
    help="Where the log is, if not in DIRECTORY (storePathCommitLog).",
)
@output_option
@click.pass_context
def verify(ctx: click.Context, directory: Path, commitlog: Path | None, output: str) -> None:
    """Check every record, and every consume queue against the log. DIRECTORY is a store.

    \b
    trioha log verify /var/lib/trioha

    Exit code 0 when all is sound, 1 when something is not.
    """
    if commitlog is None and not (directory / "commitlog").is_dir():
        raise click.ClickException(f"{directory}: no commitlog here; is it a store?")
    report = verify_store(directory, commitlog)
    if output == "json":
        print_json({"sound": report.sound, **attrs.asdict(report)})
    else:
        click.echo("\n".join(_verify_lines(report)))
    ctx.exit(ExitCode.OK if report.sound else ExitCode.FAILED)


@command.command("diff")
@click.argument("a", type=_DIRECTORY)
@click.argument("b", type=_DIRECTORY)
@output_option
@click.pass_context
def diff(ctx: click.Context, a: Path, b: Path, output: str) -> None:
    """Compare two logs byte for byte, where both have bytes, and their ends.

    \b
    trioha log diff /var/lib/trioha/a /var/lib/trioha/a-slave

    Exit code 0 when they are equal, 1 when not.
    """
    report = diff_logs(_commitlog(a), _commitlog(b))
    if output == "json":
        print_json({"equal": report.equal, **attrs.asdict(report)})
    else:
        click.echo("\n".join(_diff_lines(report)))
    ctx.exit(ExitCode.OK if report.equal else ExitCode.FAILED)


def record_as_json(record: Record) -> dict[str, Any]:
    """Every field of a record; a body that is not text is shown in hex."""
    try:
        body = {"body": record.body.decode()}
    except UnicodeDecodeError:
        body = {"body_hex": record.body.hex()}
    return {
        "phy_offset": record.phy_offset,
        "size": record.size,
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "msg_id": record.message_id,
        "tags": record.tags,
        "keys": record.keys,
        "properties": record.properties,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "crc": record.crc,
        "born_timestamp": record.born_timestamp,
        "born_host": "{}:{}".format(*unpack_host(record.born_host)),
        "store_timestamp": record.store_timestamp,
        "store_host": "{}:{}".format(*unpack_host(record.store_host)),
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        **body,
    }


def _record_in_words(record: Record) -> str:
    body = ascii(record.body[:_BODY_SHOWN_BYTES])[2:-1]
    more = "…" if len(record.body) > _BODY_SHOWN_BYTES else ""
    return (
        f"{record.phy_offset:>12}  {rfc3339(record.store_timestamp)}  {record.topic}"
        f" q{record.queue_id}@{record.queue_offset}  {size_in_words(len(record.body))}"
        f"  {body}{more}"
    )


def _verify_lines(report: VerifyReport) -> Iterator[str]:
    yield (
        f"{report.records} records in {report.queues} queues,"
        f" offsets {report.first_offset} to {report.end_offset}"
    )
    yield from map(_stretch_in_words, report.damage)
    yield from report.queue_errors
    yield from (f"{path}: this file does not belong here" for path in report.foreign_files)
    yield "sound" if report.sound else f"{report.findings} finding(s)"


def _diff_lines(report: DiffReport) -> Iterator[str]:
    yield f"A: offsets {report.begin_a} to {report.end_a}"
    yield f"B: offsets {report.begin_b} to {report.end_b}"
    if report.first_difference is not None:
        yield f"they differ at offset {report.first_difference}"
    elif report.equal:
        yield "equal, byte for byte"
    else:
        behind, name = report.end_a - report.end_b, "B"
        if behind < 0:
            behind, name = -behind, "A"
        yield f"equal where both have bytes, but {name} ends {behind} bytes earlier"


def _stretch_in_words(stretch: DamagedStretch) -> str:
    return (
        f"{stretch.file}: offsets {stretch.begin_offset} to {stretch.end_offset} are damaged:"
        f" {stretch.reason}"
    )


def _commitlog(directory: Path) -> Path:
    inner = directory / "commitlog"
    return inner if inner.is_dir() else directory
