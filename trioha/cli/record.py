"""`trioha record`: keep what a cluster says of itself, to look at it later."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import click
import trio

from trioha import __version__
from trioha.cli.client_options import chosen_context, namesrv_option, timeout_option
from trioha.cli.measures import Duration, Size
from trioha.cli.names import GROUP
from trioha.cli.output import output_option, print_json, table
from trioha.client.recorder import Recorded, RecordOptions, record
from trioha.contexts import load_contexts
from trioha.log_lines import rfc3339
from trioha.services.node.sd_notify import notify_ready, notify_stopping
from trioha.services.node.signals import watch_signals
from trioha.watch.collector import Interest
from trioha.watch.marks import Mark, counted
from trioha.watch.recording import Recording, open_recording
from trioha.words import age_in_words, size_in_words

_MARKS_SHOWN = 40
_LEVELS = ("good", "warn", "bad")


@click.command("record")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="The file to write.")
@click.option(
    "--info",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Say what a recording holds, and record nothing.",
)
@namesrv_option
@click.option(
    "--interval",
    "interval_s",
    type=Duration(0.1),
    default="1s",
    show_default=True,
    help="Between rounds of questions.",
)
@click.option("--for", "for_s", type=Duration(0.1), help="End by itself after so long.")
@click.option(
    "--max-size",
    "size_max",
    type=Size(65_536),
    help="Go on in a new file when this one is so large; the full one becomes FILE.1.",
)
@click.option("--queues", is_flag=True, help="Both ends of every queue, too.")
@click.option(
    "--members",
    "groups",
    type=GROUP,
    multiple=True,
    help="The members of this group, too, with each one's queues; may be given again.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")
@timeout_option
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    out: Path | None,
    info: Path | None,
    output: str,
    **flags: Any,
) -> None:
    """Record a cluster: what every node says of itself, round by round.

    A recording is replayed by `trioha console --replay FILE` with the same screens, and goes into
    `trioha bundle`. Roles that change, links that drop, and alerts are marked in it and told on
    stderr. It is readable while it is written. SIGINT or SIGTERM ends it.

    \b
    trioha record --out incident.trioha -n 127.0.0.1:9876
    trioha record --out night.trioha --context prod --interval 5s --for 12h
    trioha record --out billing.trioha --members billing
    trioha record --out /var/lib/trioha/box.trioha --max-size 256MiB --overwrite
    trioha record --info incident.trioha -o json
    """
    if (out is None) == (info is None):
        raise click.UsageError("give --out FILE to record, or --info FILE to look at a recording")
    if info is not None:
        facts = recording_facts(open_recording(info), info)
        if output == "json":
            print_json(facts)
        else:
            click.echo(facts_in_words(facts))
        return
    assert out is not None
    _check_intervals(flags)
    context = chosen_context(ctx)
    namesrv, queues, groups = flags.pop("namesrv"), flags.pop("queues"), flags.pop("groups")
    done = trio.run(
        _record,
        RecordOptions(
            path=out,
            namesrv=namesrv,
            interest=Interest(topics=True, stats_of_all=queues, members_of=frozenset(groups)),
            rules=load_contexts(os.environ).rules if context is None else context.rules,
            facts={
                "namesrvs": namesrv,
                "context": None if context is None else context.name,
                "interval_ms": round(flags["interval_s"] * 1000),
                "host": socket.gethostname(),
                "version": __version__,
            },
            **flags,
        ),
    )
    if output == "json":
        print_json({"file": str(out), **{name: getattr(done, name) for name in _COUNTS}})
    else:
        click.echo(
            f"trioha record: {done.frame_count} rounds, {done.mark_count} marks,"
            f" {size_in_words(done.byte_count)} in {out}"
        )


_COUNTS = ("frame_count", "mark_count", "byte_count", "file_count")


def _check_intervals(flags: dict[str, Any]) -> None:
    if flags["for_s"] is not None and flags["for_s"] < flags["interval_s"]:
        raise click.UsageError("--for is shorter than --interval: nothing would be recorded twice")


async def _record(options: RecordOptions) -> Recorded:
    shutdown = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(watch_signals, shutdown, name="signals")

        def started() -> None:
            click.echo(f"trioha record: {options.namesrv} to {options.path}", err=True)
            notify_ready(f"recording to {options.path}")

        done = await record(options, shutdown, on_mark=_tell, on_started=started)
        notify_stopping()
        nursery.cancel_scope.cancel()
    return done


def _tell(mark: Mark) -> None:
    click.echo(f"{rfc3339(mark.wall_ms)} {_LEVELS[mark.level]}: {mark.text}", err=True)


def recording_facts(recording: Recording, path: Path) -> dict[str, Any]:
    """Return the content of a recording as plain values."""
    last = recording.raw(len(recording.frames) - 1)
    return {
        "file": str(path),
        "bytes": recording.size,
        "recorded_by": dict(recording.head),
        "start": rfc3339(recording.start_wall_ms),
        "end": rfc3339(recording.end_wall_ms),
        "duration_s": (recording.end_wall_ms - recording.start_wall_ms) / 1000,
        "frames": len(recording.frames),
        "cut_short": recording.is_cut,
        "flaws": [
            {"position": flaw.position, "bytes": flaw.length, "reason": flaw.reason}
            for flaw in recording.flaws
        ],
        "nodes": sorted(last["members"]),
        "mark_counts": counted(recording.marks),
        "marks": [
            {
                "ts": rfc3339(mark.wall_ms),
                "kind": mark.kind,
                "subject": mark.subject,
                "text": mark.text,
                "level": _LEVELS[mark.level],
            }
            for mark in recording.marks
        ],
    }


def facts_in_words(facts: dict[str, Any]) -> str:
    """The same for people."""
    by = facts["recorded_by"]
    lines = [
        f"{facts['file']}: {facts['frames']} rounds in {age_in_words(facts['duration_s'])},"
        f" {size_in_words(facts['bytes'])}",
        f"from {facts['start']} to {facts['end']}",
        f"of {by.get('namesrvs', '?')}, {len(facts['nodes'])} brokers,"
        f" by trioha {by.get('version', '?')} on {by.get('host', '?')}",
    ]
    for flaw in facts["flaws"]:
        lines.append(f"! {flaw['reason']} at byte {flaw['position']}, {flaw['bytes']} bytes")
    marks = facts["marks"]
    if marks:
        shown = marks[-_MARKS_SHOWN:]
        lines += [
            "",
            table(("WHEN", "", "WHAT"), [(m["ts"], m["level"], m["text"]) for m in shown]),
        ]
        if len(marks) > len(shown):
            lines.append(f"and {len(marks) - len(shown)} earlier ones; -o json has them all")
    else:
        lines += ["", "Nothing happened."]
    return "\n".join(lines)
