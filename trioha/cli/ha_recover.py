"""`trioha ha recover`: send again what a log had to give up."""

from __future__ import annotations

from pathlib import Path

import click
import trio

from trioha.cli.client_options import cluster_options, secret_option
from trioha.cli.confirmation import check_confirmable
from trioha.cli.failures import ExitCode
from trioha.cli.output import print_json, size_in_words, table
from trioha.cli.progress import TerminalProgress
from trioha.client import ClusterConfig, open_admin, open_producer
from trioha.client.recover import Fate, Tally, count_messages, recover
from trioha.log_lines import rfc3339
from trioha.store.cuts import Cut, open_cut


@click.command("recover")
@click.argument("cut_dir", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--dry-run", is_flag=True, help="Look everything up and send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("-g", "--group", default="trioha_recover", show_default=True, help="Producer group.")
@secret_option
@cluster_options
@click.pass_context
def recover_command(
    ctx: click.Context,
    cut_dir: Path,
    dry_run: bool,
    yes: bool,
    group: str,
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Send again the messages of CUT_DIR, a folder under a store's `cut`.

    \b
    trioha ha recover /var/lib/trioha/cut/1048576-1050000-1795292642482 --dry-run
    trioha ha recover /var/lib/trioha/cut/1048576-1050000-1795292642482 --yes

    A deposed master that comes back keeps there what it has to give up: its successor never had
    it. Each message goes to its topic and queue with its keys, tags, properties and id, marked by
    the property TRIOHA_RECOVERED; one that the cluster holds already, by its id, is left out, so
    the command may be repeated. Order among them is kept, but they come behind what was sent
    since. Half transactions are left out.

    \b
    Exit codes: 0 all is there now, 1 not confirmed by you, 2 usage, 3 it is not known whether a
    message was stored, 4 the cluster does not answer, 5 a message was refused.
    """
    cut = open_cut(cut_dir)
    check_confirmable(yes, dry_run, output)
    if output == "table":
        click.echo(cut_in_words(cut))
    if not (yes or dry_run or click.confirm("Send what the cluster lacks of it?")):
        ctx.exit(ExitCode.FAILED)
    tally = Tally()
    try:
        trio.run(_recover, cut, namesrv, timeout_s, group, tally, dry_run)
    finally:
        _report(cut, tally, dry_run, output)


async def _recover(
    cut: Cut, namesrv: str, timeout_s: float, group: str, tally: Tally, dry_run: bool
) -> None:
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
    progress = TerminalProgress()
    progress.begin("looking" if dry_run else "sending", cut.end - cut.begin, "bytes")
    try:
        async with (
            open_admin(namesrv, cluster_config=config) as admin,
            open_producer(namesrv, group=group, cluster_config=config) as producer,
        ):
            await recover(
                cut, admin, producer, tally, dry_run=dry_run, on_progress=progress.advance
            )
    finally:
        progress.end()


def cut_in_words(cut: Cut) -> str:
    """Return the content of a cut's folder in words."""
    note = cut.note
    lines = [
        f"offsets {cut.begin} to {cut.end}, {size_in_words(cut.end - cut.begin)},"
        f" cut {rfc3339(cut.wall_ms)}: {note.get('reason', 'no reason given')}",
        f"{note.get('records', 0)} records, {note.get('damaged_bytes', 0)} bytes are none",
    ]
    rows = list(count_messages(cut))
    if rows:
        lines += ["", table(("TOPIC", "QUEUE", "MESSAGES"), rows)]
    return "\n".join(lines)


def _report(cut: Cut, tally: Tally, dry_run: bool, output: str) -> None:
    counts = {fate.value: tally.counts[fate] for fate in Fate}
    if output == "json":
        print_json(
            {
                "cut": str(cut.path),
                "dry_run": dry_run,
                **counts,
                "topics": dict(tally.topics),
                "statuses": dict(tally.statuses),
            }
        )
        return
    verb = "would be sent" if dry_run else "sent"
    statuses = ", ".join(f"{name} {count}" for name, count in tally.statuses.items())
    click.echo(
        f"{counts['sent']} {verb}{f' ({statuses})' if statuses else ''},"
        f" {counts['present']} were there already, {counts['undecided']} of undecided transactions"
        f" left out, {counts['damaged']} damaged stretches"
    )
