"""`trioha play`: a scenario on a cluster in this process, in virtual time."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trioha.cli.failures import ExitCode
from trioha.journal import EventLevel

if TYPE_CHECKING:
    from trioha.testing.playing import Played
    from trioha.testing.timeline import TimelineEvent

_HASH_SEED = "PYTHONHASHSEED"


@click.command("play")
@click.argument("name", metavar="FILE|NAME", required=False)
@click.option("--list", "listed", is_flag=True, help="List the scenarios that come with trioha.")
@click.option("--seed", type=int, default=0, show_default=True, help="Decides all that is random.")
@click.option("--layout", metavar="LAYOUT", help="In place of the file's LAYOUT.")
@click.option("-q", "--quiet", is_flag=True, help="Print the result only.")
@click.option(
    "--events",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all events there, as JSON lines.",
)
@click.option(
    "--record",
    "recording",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Make a recording for `trioha console --replay`.",
)
@click.pass_context
def command(
    ctx: click.Context,
    name: str | None,
    listed: bool,
    seed: int,
    layout: str | None,
    quiet: bool,
    events: Path | None,
    recording: Path | None,
) -> int:
    """Play a scenario: run its script against a cluster in this process, in virtual time.

    A scenario is a file with `async def scenario(cluster)`; LAYOUT and SETTINGS beside it describe
    the cluster. One seed gives one order of events, so a failure can be played again.

    \b
    trioha play --list
    trioha play split_brain --seed 7
    trioha play my_scenario.py --record incident.trioha

    docs/testing-with-trioha.md tells what a script can do. Exit codes: 0 it held, 1 it failed.
    """
    if not listed and name is not None and _HASH_SEED not in os.environ:
        # The order of sets of strings depends on it, and with that the order of events.
        environment = {**os.environ, _HASH_SEED: "0"}
        os.execve(sys.executable, [sys.executable, "-m", "trioha", *sys.argv[1:]], environment)
    from trioha.testing.playing import load_scenario, play, shipped

    if listed:
        for one in shipped():
            click.echo(f"{one.name:<20} {one.title}")
        return ExitCode.OK
    if name is None:
        raise click.UsageError("name a scenario or its file; --list shows what comes with trioha")
    # A script that makes handlers fail on purpose is no news.
    logging.getLogger("trioha.client").setLevel(logging.CRITICAL)
    scenario = load_scenario(name)
    since_ms = 0

    def tell(event: TimelineEvent) -> None:
        nonlocal since_ms
        since_ms = since_ms or event.wall_ms
        if not quiet and event.level > EventLevel.DEBUG:
            click.echo(event.line(since_ms))

    played = play(scenario, seed=seed, layout=layout, recording=recording, on_event=tell)
    if events is not None:
        events.write_bytes(played.log)
    _conclude(scenario.name, seed, played)
    return ExitCode.OK if played.failure is None else ExitCode.FAILED


def _conclude(name: str, seed: int, played: Played) -> None:
    took = f"{played.virtual_s:.1f} s of virtual time"
    if played.failure is None:
        click.echo(f"{name}, seed {seed}: held. {took}")
        return
    error = played.failure
    told = str(error) or "no message"
    if isinstance(error, BaseExceptionGroup):
        told += "".join(f"\n  {type(one).__name__}: {one}" for one in error.exceptions)
    click.echo(f"{name}, seed {seed}: failed. {took}\n{type(error).__name__}: {told}")
    if "Cluster " not in told:
        click.echo(played.story)
