"""`trioha console`: watch a cluster, in a terminal."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from trioha.cli.client_options import chosen_context, namesrv_option, secret_option
from trioha.cli.garbage import importing
from trioha.contexts import load_contexts
from trioha.credentials import current_credentials
from trioha.errors import TriohaError
from trioha.wire.address import parse_namesrvs


@click.command("console")
@namesrv_option
@secret_option
@click.option(
    "--replay",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Show a recording of `trioha record` instead of a live cluster.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Allow what changes the cluster. Every such step still asks for a name to be typed.",
)
@click.pass_context
def command(ctx: click.Context, namesrv: str, replay: Path | None, write: bool) -> None:
    """Watch a cluster: replication links, brokers, topics, groups, messages.

    \b
    trioha console -n 127.0.0.1:9876
    trioha console -n '10.0.0.1:9876;10.0.0.2:9876' --write
    trioha console --context production
    trioha console --replay monday.trioha
    """
    try:
        with importing():
            from trioha_console.app import ConsoleApp
            from trioha_console.garbage import IdleCollector
            from trioha_console.layout import layout_path
            from trioha_console.link import Links
            from trioha_console.replay_source import ReplaySource
            from trioha_console.source import LiveSource, Source
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(("textual", "rich")):
            raise
        raise TriohaError("the console needs Textual; pip install 'trioha[console]'") from None
    contexts = load_contexts(os.environ)
    context = chosen_context(ctx)
    source: Source
    if replay is not None:
        source = ReplaySource.open(replay)
    else:
        title = context.name if context is not None else namesrv
        # Asked for now if need be: the console takes the terminal.
        links = Links(credentials=current_credentials())
        source = LiveSource(parse_namesrvs(namesrv), title=title, links=links)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "the console needs a terminal for its input and its output;"
            " `trioha cluster health` and `trioha ha status` print the same"
        )
    app = ConsoleApp(
        source,
        armed=write,
        rules=context.rules if context is not None else contexts.rules,
        contexts=contexts,
        layout_path=layout_path(),
        collector=IdleCollector(time.monotonic()),
    )
    app.run()
