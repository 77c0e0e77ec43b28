"""`trioha group history`: a group's lag over hours, and its rebalances."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from trioha.cli.documents import noun_options, run_job, show
from trioha.cli.measures import Moment
from trioha.cli.names import group_argument
from trioha.cli.output import table
from trioha.failover.asking import Flow
from trioha.jobs.group_past import GroupHistory, group_history, read_group_past
from trioha.jobs.groups import describe_group
from trioha.jobs.telling import JobScope, going_on
from trioha.journal.file import Event, journal_files, read_journal, read_journal_file
from trioha.watch.group_past import GroupPast, past_of_journals, past_of_recording
from trioha.watch.recording import open_recording

_HOURS_MS = 6 * 3_600_000
_BAR = 30


@click.command("history")
@group_argument
@click.option("--since", "begin_ms", type=Moment(), help="Begin there.  [default: 6h ago]")
@click.option("--until", "end_ms", type=Moment(), help="End there.  [default: now]")
@click.option("--steps", type=click.IntRange(1, 1000), default=24, show_default=True)
@click.option(
    "--recording",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read a recording, and ask no node; its times are the default.",
)
@click.option(
    "--journal",
    "journals",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="Read a master's journal, or the store it lies in; may be given again.",
)
@noun_options
def history_command(
    group: str,
    begin_ms: int | None,
    end_ms: int | None,
    steps: int,
    recording: Path | None,
    journals: Sequence[Path],
    namesrv: str,
    timeout_s: float,
    output: str,
) -> None:
    """Show a group's lag over the last hours, and its rebalances.

    The masters' journals are asked. They note a group's lag every ten seconds while it changes.
    Which members came and left is in recordings made with `trioha record --members GROUP`.

    \b
    trioha group history billing
    trioha group history billing --since '2d ago' --steps 48
    trioha group history billing --recording night.trioha
    trioha group history billing --journal /var/lib/trioha/a --journal /var/lib/trioha/b

    Exit code 1: no such group.
    """
    now_ms = int(time.time() * 1000)
    notes: list[str] = []
    silent: list[str] = []
    if recording is not None and journals:
        raise click.UsageError("give --recording or --journal, not both")
    if recording is not None:
        found = open_recording(recording)
        begin_ms = found.start_wall_ms if begin_ms is None else begin_ms
        end_ms = found.end_wall_ms if end_ms is None else end_ms
        past = past_of_recording(found, group)
    begin_ms = now_ms - _HOURS_MS if begin_ms is None else begin_ms
    end_ms = now_ms if end_ms is None else end_ms
    if end_ms < begin_ms:
        raise click.UsageError("--until is before --since")
    if journals:
        past = _past_of_folders(journals, group)
    elif recording is None:
        since_ms = begin_ms

        @going_on
        def read(scope: JobScope) -> Flow[tuple[GroupPast, list[str], list[str]]]:
            silent = (yield from describe_group(scope, group, ask_clients=False)).silent
            past, notes = yield from read_group_past(scope, group, since_ms)
            return past, [one for one in notes if one not in silent], silent

        past, notes, silent = run_job(read, namesrv, timeout_s)
    shown = group_history(group, past, begin_ms, end_ms, steps, notes, silent)
    show(shown, output, lambda _: _in_words(shown))


def _past_of_folders(folders: Sequence[Path], group: str) -> GroupPast:
    journals: dict[str, list[Event]] = {}
    for folder in folders:
        directory = folder if journal_files(folder) else folder / "journal"
        files = journal_files(directory)
        if not files:
            raise click.ClickException(f"{folder}: no journal here")
        head, _ = read_journal_file(files[-1])
        name = str(head.get("node", folder)).partition(":")[0]
        journals.setdefault(name, []).extend(
            item for item in read_journal(directory) if isinstance(item, Event)
        )
    return past_of_journals(journals, group)


def _in_words(one: GroupHistory) -> str:
    known = [then.lag for then in one.lags if then.lag is not None]
    if known:
        most = max(*known, 1)
        rows = [
            (
                then.at[:19],
                then.lag,
                None if then.consumed_per_s is None else round(then.consumed_per_s, 1),
                "" if then.lag is None else "#" * -(-then.lag * _BAR // most),
            )
            for then in one.lags
        ]
        lines = [table(("UNTIL (UTC)", "LAG", "CONSUMED/S", ""), rows)]
    else:
        lines = [f"No lag of {one.name} is told for this time."]
    if one.rebalances:
        changes = [
            (then.at[:19], then.what, then.client_id, len(then.had), len(then.has))
            for then in one.rebalances
        ]
        lines += ["", table(("AT (UTC)", "WHAT", "CLIENT", "HAD QUEUES", "HAS QUEUES"), changes)]
    return "\n".join(lines + [f"! {note}" for note in one.notes])
