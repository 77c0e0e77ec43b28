"""`trioha journal show`: what a node recorded, as JSON lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from trioha.cli.output import print_json_line
from trioha.journal_file import Damage, Event, journal_files, read_journal
from trioha.log_lines import rfc3339


@click.group("journal")
def command() -> None:
    """Read what a node recorded. The events are listed in docs/journal.md."""


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
        print_json_line(
            {
                "ts": rfc3339(item.wall_ms),
                "sequence": item.sequence,
                "wall_ms": item.wall_ms,
                "event": item.name,
                **item.fields,
            }
        )
