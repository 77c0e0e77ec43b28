"""`trioha journal show|follow`: what a node recorded, from its files or from the node itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import trio

from trioha.cli.client_options import address_argument, timeout_option
from trioha.cli.output import print_json_line
from trioha.errors import Unreachable
from trioha.journal import EVENTS, EventLevel
from trioha.journal.file import Damage, Event, journal_files, read_journal
from trioha.log_lines import LineFormat, event_line, rfc3339
from trioha.words import what_there_is

RETRY_S = 1.0


@click.group("journal")
def command() -> None:
    """Read what a node recorded, or follow it. The events are listed in docs/journal.md."""


@command.command("show")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--event", "names", multiple=True, metavar="NAME", help="Only these events.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only the last N.")
def show(directory: Path, names: Sequence[str], last: int | None) -> None:
    """Print a journal as JSON lines; damaged stretches are told on stderr.

    DIRECTORY is the journal, or the store it lies in. A running node's may be read too.

    \b
    trioha journal show /var/lib/trioha
    trioha journal show /var/lib/trioha/journal --event ha_disconnected --last 10
    """
    if not journal_files(directory) and (directory / "journal").is_dir():
        directory = directory / "journal"
    if not journal_files(directory):
        raise click.ClickException(f"{directory}: no journal here")
    items: Iterable[Event | Damage] = (
        item
        for item in read_journal(directory)
        if isinstance(item, Damage) or not names or item.name in names
    )
    for item in items if last is None else deque(items, last):
        if isinstance(item, Damage):
            click.echo(
                f"trioha: {item.file}: {item.reason} at {item.position}, {item.length} bytes",
                err=True,
            )
            continue
        _print_event(item)


@command.command("follow")
@address_argument
@click.option("--event", "names", multiple=True, metavar="NAME", help="Only these events.")
@click.option(
    "--last", type=click.IntRange(0, 1000), metavar="N", help="Begin N events back.  [default: 10]"
)
@click.option(
    "--from", "first", type=click.IntRange(0), metavar="N", help="Begin at this sequence."
)
@click.option("--once", is_flag=True, help="Print what is there and end.")
@timeout_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="Log lines for people, JSON lines for programs.",
)
def follow(
    address: str,
    names: Sequence[str],
    last: int | None,
    first: int | None,
    once: bool,
    timeout_s: float,
    output: str,
) -> None:
    """Print a running node's events as they happen, until interrupted.

    ADDRESS is a broker's or a name server's HOST:PORT. The node keeps nothing for who follows: a
    question waits there until there is something to tell, and what was missed is read from its
    journal. When the node goes away this waits until it is back and goes on where it was.

    \b
    trioha journal follow 127.0.0.1:10911
    trioha journal follow 127.0.0.1:10911 --event ha_disconnected --event ha_connected -o json
    trioha journal follow 127.0.0.1:9876 --last 1000 --once -o json > namesrv.jsonl

    Exit code 4 when the node does not answer at the start.
    """
    if first is not None and last is not None:
        raise click.UsageError("--from and --last both say where to begin; give one")
    for name in names:
        if name not in EVENTS:
            cure = what_there_is(name, EVENTS, otherwise="; docs/journal.md lists them")
            raise click.UsageError(f"no such event: {name}{cure}")
    trio.run(
        lambda: _follow(
            address,
            names,
            10 if last is None else last,
            first,
            once=once,
            timeout_s=timeout_s,
            as_json=output == "json",
        )
    )


async def _follow(
    address: str,
    names: Sequence[str],
    last: int,
    first: int | None,
    *,
    once: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    from trioha.client import ClusterConfig
    from trioha.client.node_admin import POLL_S, open_node_admin

    patience = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    async with open_node_admin(address, cluster_config=patience) as node:
        piece = await node.journal(from_sequence=first, last=last, names=names)
        is_away = False
        while True:
            for event in piece.events:
                if as_json:
                    _print_event(event)
                else:
                    level = EVENTS[event.name].level if event.name in EVENTS else EventLevel.INFO
                    click.echo(
                        event_line(
                            LineFormat.CONSOLE, event.wall_ms, level, event.name, event.fields
                        )
                    )
            if once and piece.next_sequence >= piece.end_sequence:
                return
            try:
                piece = await node.journal(
                    from_sequence=piece.next_sequence, names=names, wait_s=0 if once else POLL_S
                )
                if is_away:
                    click.echo(f"trioha: {address} answers again", err=True)
                is_away = False
            except Unreachable as error:
                if once:
                    raise
                if not is_away:
                    click.echo(f"trioha: {error}; trying again", err=True)
                is_away = True
                piece = type(piece)((), piece.next_sequence, piece.end_sequence)
                await trio.sleep(RETRY_S)


def _print_event(event: Event) -> None:
    print_json_line(
        {
            "ts": rfc3339(event.wall_ms),
            "sequence": event.sequence,
            "wall_ms": event.wall_ms,
            "event": event.name,
            **event.fields,
        }
    )
